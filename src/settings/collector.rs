//! The address of the OTLP collector that received telemetry is forwarded to: `http://host:4318` or `grpc://host:4317`.

use std::fmt;
use std::str::FromStr;

use super::upstream::{authority_of, split};
use super::{Invalid, text::text_serde};

/// An OTLP collector, without TLS.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Collector {
    /// OTLP over HTTP: the base URL, `http://host:port` and a path prefix if any, without a slash at the end;
    /// `/v1/traces` and its like are appended to it.
    Http(String),
    /// OTLP over gRPC: `host:port`. Text: `grpc://host:port`.
    Grpc(String),
}

text_serde!(Collector, "a URL, as in http://collector:4318 or grpc://collector:4317");

impl Collector {
    /// `host:port`.
    #[must_use]
    pub fn authority(&self) -> &str {
        match self {
            Self::Http(url) => split(url.strip_prefix("http://").unwrap_or(url)).0,
            Self::Grpc(authority) => authority,
        }
    }
}

impl FromStr for Collector {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let invalid = |reason: &str| Invalid::new(text, reason);
        let Some((scheme, rest)) = text.trim().split_once("://") else {
            return Err(invalid("needs a scheme, as in http://collector:4318 or grpc://collector:4317"));
        };
        let (authority, path) = split(rest);
        let path = path.trim_end_matches('/');
        if !path.bytes().all(|b| b.is_ascii_graphic()) || path.contains(['?', '#']) {
            return Err(invalid("must not have a query, a fragment, spaces or letters outside ASCII"));
        }
        if ["/v1/traces", "/v1/metrics", "/v1/logs"].iter().any(|signal| path.ends_with(signal)) {
            return Err(invalid("must be the base address: /v1/traces, /v1/metrics and /v1/logs are appended"));
        }
        let authority = || {
            authority_of(authority, None).map_err(|reason| match reason.strip_prefix("needs a port") {
                Some(_) => invalid("needs a port from 1 to 65535, as in http://collector:4318"),
                None => invalid(reason),
            })
        };
        match scheme.to_ascii_lowercase().as_str() {
            "http" => Ok(Self::Http(format!("http://{}{path}", authority()?))),
            "grpc" if path.is_empty() => authority().map(Self::Grpc),
            "grpc" => Err(invalid("must not have a path: gRPC has none")),
            "https" | "grpcs" => Err(invalid("TLS to the collector is not supported; pass through an agent on the node")),
            _ => Err(invalid("has an unknown scheme; the schemes are http and grpc")),
        }
    }
}

impl fmt::Display for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http(url) => f.write_str(url),
            Self::Grpc(authority) => write!(f, "grpc://{authority}"),
        }
    }
}
