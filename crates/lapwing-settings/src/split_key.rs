//! What a live split divides requests by: `trace`, `header:NAME`, `cookie:NAME` or `json:POINTER`.

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
    /// A text or number of a JSON body, by its pointer (RFC 6901). Text: `json:/user`.
    Json(String),
}

/// The most parts of a pointer that are numbers: each may be an index or a key.
const NUMBERS: usize = 6;

text_serde!(SplitKey, "a key, as in header:x-user, cookie:session, json:/user or trace", {
    "title": "key", "type": "string",
    "pattern": r"^\s*(trace|(header|cookie):\s*[!#$%&'*+.^_`|~0-9A-Za-z-]+|json:\s*/.*)\s*$",
    "examples": ["header:x-user", "cookie:session", "json:/user", "trace"]
});

impl FromStr for SplitKey {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let trimmed = text.trim();
        if trimmed.starts_with(['/', '$', '#']) {
            return Err(Invalid::new(text, "seems to point into the body: write it as in json:/user"));
        }
        // the name of a cookie is a token, as that of a header is
        let name =
            |name: &str| HeaderName::try_from(name.trim()).map_err(|_| Invalid::new(text, "names no header and no cookie"));
        match trimmed.split_once(':') {
            None if trimmed == "trace" => Ok(Self::Trace),
            Some(("header", of)) => Ok(Self::Header(name(of)?)),
            Some(("cookie", of)) => name(of).map(|_| Self::Cookie(of.trim().to_owned())),
            Some(("json", of)) => pointer(of.trim()).map(Self::Json).map_err(|reason| Invalid::new(text, reason)),
            _ => Err(Invalid::new(text, "is not trace, header:NAME, cookie:NAME or json:POINTER")),
        }
    }
}

/// A pointer to one value.
fn pointer(of: &str) -> Result<String, &'static str> {
    let Some(parts) = of.strip_prefix('/') else { return Err("is no pointer into a JSON body, as in json:/user") };
    if parts.split('/').any(|part| part == "*") {
        return Err("points to many values: * is every element");
    }
    if parts.split('/').filter(|part| part.parse::<u64>().is_ok()).count() > NUMBERS {
        return Err("has more than 6 numbers");
    }
    Ok(of.to_owned())
}

impl fmt::Display for SplitKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Trace => f.write_str("trace"),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Cookie(name) => write!(f, "cookie:{name}"),
            Self::Json(pointer) => write!(f, "json:{pointer}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_and_faults_say_what_to_write() {
        for (text, canonical) in [
            ("trace", "trace"),
            (" header: X-User", "header:x-user"),
            ("cookie:Session", "cookie:Session"),
            ("json: /a/b~1c ", "json:/a/b~1c"),
        ] {
            assert_eq!(text.parse::<SplitKey>().unwrap().to_string(), canonical);
            assert_eq!(canonical.parse::<SplitKey>().unwrap().to_string(), canonical);
        }
        for (text, says) in [
            ("/user/id", "seems to point into the body"),
            ("$.user", "write it as in json:/user"),
            ("json:user", "is no pointer"),
            ("json:/messages/*/role", "points to many values"),
            ("json:/1/1/1/1/1/1/1", "more than 6 numbers"),
            ("header:", "names no header"),
            ("header:a b", "names no header"),
            ("cookie:a=b", "names no header and no cookie"),
            ("x-user", "is not trace, header:NAME, cookie:NAME or json:POINTER"),
        ] {
            let reason = text.parse::<SplitKey>().unwrap_err().reason;
            assert!(reason.contains(says), "{text}: {reason}");
        }
    }
}
