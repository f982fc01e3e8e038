//! The address of an OTLP collector, `http://host:4318` or `grpc://host:4317`, over TLS `https` or `grpcs`, and that of one signal's endpoint.

use std::fmt;
use std::str::FromStr;

use super::upstream::{authority_of, split};
use super::{Invalid, text::text_serde};

/// An OTLP collector.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Collector {
    /// OTLP over HTTP: the base URL, `http://host:port` or `https://host:port` and a path prefix if any, without a slash at the end;
    /// `/v1/traces` and its like are appended to it.
    Http(String),
    /// OTLP over gRPC: `grpc://host:port` or `grpcs://host:port`.
    Grpc(String),
}

text_serde!(Collector, "a URL, as in http://collector:4318 or grpc://collector:4317", {
    "title": "collector", "type": "string", "pattern": r"^\s*([hH][tT][tT][pP][sS]?://[^/?#@\s]+:[0-9]+(/[^?#\s]*)?|[gG][rR][pP][cC][sS]?://[^/?#@\s]+:[0-9]+/?)\s*$",
    "examples": ["http://collector:4318", "grpc://collector:4317"]
});

impl Collector {
    /// `host:port`.
    #[must_use]
    pub fn authority(&self) -> &str {
        let (Self::Http(url) | Self::Grpc(url)) = self;
        split(url.split_once("://").map_or(&**url, |(_, rest)| rest)).0
    }

    /// The endpoint of a signal whose path in OTLP/HTTP is `path`.
    #[must_use]
    pub fn endpoint(&self, path: &str) -> CollectorEndpoint {
        match self {
            Self::Http(base) => CollectorEndpoint::Http(format!("{base}{path}")),
            Self::Grpc(url) => CollectorEndpoint::Grpc(url.clone()),
        }
    }
}

/// Where one signal is sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CollectorEndpoint {
    /// OTLP over HTTP: the whole URL, to which nothing is appended; without a path it has `/`.
    Http(String),
    /// OTLP over gRPC: `grpc://host:port` or `grpcs://host:port`.
    Grpc(String),
}

text_serde!(CollectorEndpoint, "a URL, as in http://collector:4318/v1/metrics or grpc://collector:4317", {
    "title": "endpoint", "type": "string", "pattern": r"^\s*([hH][tT][tT][pP][sS]?://[^/?#@\s]+:[0-9]+(/[^?#\s]*)?|[gG][rR][pP][cC][sS]?://[^/?#@\s]+:[0-9]+/?)\s*$",
    "examples": ["http://collector:4318/v1/metrics", "grpc://collector:4317"]
});

impl CollectorEndpoint {
    /// Whether it is reached over TLS.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        let (Self::Http(url) | Self::Grpc(url)) = self;
        url.starts_with("https://") || url.starts_with("grpcs://")
    }

    /// `host:port`.
    #[must_use]
    pub fn authority(&self) -> &str {
        let (Self::Http(url) | Self::Grpc(url)) = self;
        split(url.split_once("://").map_or(&**url, |(_, rest)| rest)).0
    }
}

impl FromStr for CollectorEndpoint {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        match parsed(text, "http://collector:4318/v1/metrics")? {
            Address::Http(server, "") => Ok(Self::Http(format!("{server}/"))),
            Address::Http(server, path) => Ok(Self::Http(format!("{server}{path}"))),
            Address::Grpc(server) => Ok(Self::Grpc(server)),
        }
    }
}

impl fmt::Display for CollectorEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Http(url) | Self::Grpc(url)) = self;
        f.write_str(url)
    }
}

/// A checked address, scheme and authority: over HTTP with its path as given.
enum Address<'a> {
    Http(String, &'a str),
    Grpc(String),
}

fn parsed<'a>(text: &'a str, example: &str) -> Result<Address<'a>, Invalid> {
    let invalid = |reason: &str| Invalid::new(text, reason);
    let Some((scheme, rest)) = text.trim().split_once("://") else {
        return Err(invalid(&format!("needs a scheme, as in {example} or grpc://collector:4317")));
    };
    let (authority, path) = split(rest);
    if !path.bytes().all(|b| b.is_ascii_graphic()) || path.contains(['?', '#']) {
        return Err(invalid("must not have a query, a fragment, spaces or letters outside ASCII"));
    }
    let authority = || {
        authority_of(authority, None).map_err(|reason| match reason.strip_prefix("needs a port") {
            Some(_) => invalid(&format!("needs a port from 1 to 65535, as in {example}")),
            None => invalid(reason),
        })
    };
    match scheme.to_ascii_lowercase().as_str() {
        scheme @ ("http" | "https") => Ok(Address::Http(format!("{scheme}://{}", authority()?), path)),
        scheme @ ("grpc" | "grpcs") if matches!(path, "" | "/") => Ok(Address::Grpc(format!("{scheme}://{}", authority()?))),
        "grpc" | "grpcs" => Err(invalid("must not have a path: gRPC has none")),
        _ => Err(invalid("has an unknown scheme; the schemes are http, grpc, https and grpcs")),
    }
}

impl FromStr for Collector {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        match parsed(text, "http://collector:4318")? {
            Address::Grpc(server) => Ok(Self::Grpc(server)),
            Address::Http(server, path) => {
                let path = path.trim_end_matches('/');
                if ["/v1/traces", "/v1/metrics", "/v1/logs"].iter().any(|signal| path.ends_with(signal)) {
                    let reason = "must be the base address: /v1/traces, /v1/metrics and /v1/logs are appended";
                    return Err(Invalid::new(text, reason));
                }
                Ok(Self::Http(format!("{server}{path}")))
            }
        }
    }
}

impl fmt::Display for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Http(url) | Self::Grpc(url)) = self;
        f.write_str(url)
    }
}
