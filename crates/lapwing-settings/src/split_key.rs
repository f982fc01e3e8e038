//! What a live split divides requests by: `trace`, `header:NAME` or `cookie:NAME`.

use std::fmt;
use std::str::FromStr;

use http::HeaderName;

use super::{Invalid, text::text_serde};

/// What of a request decides which side of a split it goes to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SplitKey {
    /// The trace id of `traceparent`. Text: `trace`.
    #[default]
    Trace,
    /// The value of a header field. Text: `header:x-user`.
    Header(HeaderName),
    /// The value of a cookie. Text: `cookie:session`.
    Cookie(String),
}

text_serde!(SplitKey, "a key, as in header:x-user, cookie:session or trace", {
    "title": "key", "type": "string",
    "pattern": r"^\s*(trace|(header|cookie):\s*[!#$%&'*+.^_`|~0-9A-Za-z-]+)\s*$",
    "examples": ["header:x-user", "cookie:session", "trace"]
});

impl FromStr for SplitKey {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let trimmed = text.trim();
        if trimmed.starts_with(['/', '$', '#']) {
            let reason =
                "seems to point into the body, which is not read before the upstream is chosen: give a header or a cookie";
            return Err(Invalid::new(text, reason));
        }
        // the name of a cookie is a token, as that of a header is
        let name =
            |name: &str| HeaderName::try_from(name.trim()).map_err(|_| Invalid::new(text, "names no header and no cookie"));
        match trimmed.split_once(':') {
            None if trimmed == "trace" => Ok(Self::Trace),
            Some(("header", of)) => Ok(Self::Header(name(of)?)),
            Some(("cookie", of)) => name(of).map(|_| Self::Cookie(of.trim().to_owned())),
            _ => Err(Invalid::new(text, "is not trace, header:NAME or cookie:NAME")),
        }
    }
}

impl fmt::Display for SplitKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Trace => f.write_str("trace"),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Cookie(name) => write!(f, "cookie:{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_and_faults_say_what_to_write() {
        for (text, canonical) in [("trace", "trace"), (" header: X-User", "header:x-user"), ("cookie:Session", "cookie:Session")]
        {
            assert_eq!(text.parse::<SplitKey>().unwrap().to_string(), canonical);
            assert_eq!(canonical.parse::<SplitKey>().unwrap().to_string(), canonical);
        }
        for (text, says) in [
            ("/user/id", "seems to point into the body"),
            ("$.user", "seems to point into the body"),
            ("header:", "names no header"),
            ("header:a b", "names no header"),
            ("cookie:a=b", "names no header and no cookie"),
            ("x-user", "is not trace, header:NAME or cookie:NAME"),
        ] {
            let reason = text.parse::<SplitKey>().unwrap_err().reason;
            assert!(reason.contains(says), "{text}: {reason}");
        }
    }
}
