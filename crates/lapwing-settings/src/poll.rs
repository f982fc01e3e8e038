//! Where the model server's own statistics are polled: `auto`, `off`, or an address.

use std::fmt;
use std::str::FromStr;

use super::upstream::{authority_of, split};
use super::{Invalid, text::text_serde};

/// Whether and where statistics are polled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Poll {
    /// At the upstream itself, once the traffic shows which server it is, and only where this server is known to serve statistics.
    /// Text: `auto`.
    #[default]
    Auto,
    /// Nowhere. Text: `off`.
    Off,
    /// At this address.
    At {
        /// `host:port`; the port defaults to 80.
        authority: String,
        /// The path of the metrics, from its slash on; empty if it has to be detected.
        path: String,
    },
}

text_serde!(Poll, "auto, off or a URL, as in http://127.0.0.1:8002/metrics", {
    "title": "`auto`, `off` or URL", "type": "string", "pattern": r"^\s*(auto|off|[hH][tT][tT][pP]://\S+)\s*$",
    "examples": ["auto", "off", "http://127.0.0.1:8002/metrics"]
});

impl FromStr for Poll {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let invalid = |reason: &str| Invalid::new(text, reason);
        let Some((scheme, rest)) = text.trim().split_once("://") else {
            return match text.trim() {
                "auto" => Ok(Self::Auto),
                "off" => Ok(Self::Off),
                _ => Err(invalid("must be auto, off or a URL, as in http://127.0.0.1:8002/metrics")),
            };
        };
        if scheme.eq_ignore_ascii_case("https") {
            return Err(invalid("TLS is not supported; statistics are polled within the pod"));
        }
        if !scheme.eq_ignore_ascii_case("http") {
            return Err(invalid("has an unknown scheme; statistics are polled over http"));
        }
        let (authority, path) = split(rest);
        if !path.bytes().all(|b| b.is_ascii_graphic()) || path.contains('#') {
            return Err(invalid("must not have a fragment, spaces or letters outside ASCII"));
        }
        if path.starts_with('?') {
            return Err(invalid("needs a path before its query, as in http://127.0.0.1:8002/metrics"));
        }
        let authority = authority_of(authority, Some(80)).map_err(invalid)?;
        Ok(Self::At { authority, path: if path == "/" { String::new() } else { path.to_owned() } })
    }
}

impl fmt::Display for Poll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Off => f.write_str("off"),
            Self::At { authority, path } => write!(f, "http://{authority}{path}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn poll_is_auto_off_or_an_address() {
        let at = |authority: &str, path: &str| Poll::At { authority: authority.to_owned(), path: path.to_owned() };
        let read = |text: &str| text.parse::<Poll>().unwrap();
        assert_eq!([read("auto"), read(" off ")], [Poll::Auto, Poll::Off]);
        assert_eq!(read("http://Model:8002/metrics"), at("model:8002", "/metrics"));
        assert_eq!([read("http://[::1]:8000/"), read("http://m")], [at("[::1]:8000", ""), at("m:80", "")]);
        for text in ["auto", "off", "http://m:8002/metrics", "http://m:80"] {
            assert_eq!(read(text).to_string(), text);
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "on",
            "5s",
            "m:8002",
            "https://m:1/metrics",
            "grpc://m:1",
            "http://",
            "http://m:0",
            "http://m:1/a b",
            "http://m:1?a",
        ] {
            assert!(text.parse::<Poll>().is_err(), "{text}");
        }
    }
}
