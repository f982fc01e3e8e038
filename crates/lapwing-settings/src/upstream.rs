//! The address of the model server: `http://host:port`, `h2c://host:port`, `https://host:port`, `unix:/path`. Also the parser of authorities.

use std::fmt;
use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::str::FromStr;

use super::{Invalid, text::text_serde};

/// The model server that requests are forwarded to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Upstream {
    /// Over TCP. Text: `http://host:port`, `h2c://host:port`, `https://host:port`; the port defaults to 80, with TLS to 443.
    Http {
        /// `host:port`; an IPv6 address is in brackets.
        authority: String,
        /// What is spoken.
        scheme: HttpScheme,
    },
    /// Over a Unix socket. Text: `unix:/path`.
    Unix {
        /// The socket's absolute path.
        path: PathBuf,
    },
}

/// What is spoken to a server over TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HttpScheme {
    /// HTTP without TLS.
    Http,
    /// HTTP/2 without TLS, regardless of the client's version.
    H2c,
    /// HTTP over TLS.
    Https,
}

impl HttpScheme {
    /// Its name in a URL.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::H2c => "h2c",
            Self::Https => "https",
        }
    }

    const fn default_port(self) -> u16 {
        if matches!(self, Self::Https) { 443 } else { 80 }
    }
}

text_serde!(Upstream, "a URL, as in http://127.0.0.1:8000 or unix:/run/model.sock", {
    "title": "server", "type": "string", "pattern": r"^\s*(([hH][tT][tT][pP][sS]?|[hH]2[cC])://[^/?#@\s]+/?|unix:(//)?/.+)\s*$",
    "examples": ["http://127.0.0.1:8000", "h2c://127.0.0.1:8001", "https://model.example:8443", "unix:/run/model.sock"]
});

impl FromStr for Upstream {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let invalid = |reason: &str| Invalid::new(text, reason);
        let trimmed = text.trim();
        if let Some(path) = trimmed.strip_prefix("unix:") {
            // `unix:///run/m.sock` has an empty authority. More slashes than one name the same root (path_resolution(7)), and a path
            // kept with two would be read as that of an authority when its text is read again.
            let (path, relative) = (path.trim_start_matches('/'), !path.strip_prefix("//").unwrap_or(path).starts_with('/'));
            if relative || path.is_empty() || path.contains('\0') {
                return Err(invalid("needs an absolute path, as in unix:/run/model.sock"));
            }
            return Ok(Self::Unix { path: format!("/{path}").into() });
        }
        let Some((scheme, rest)) = trimmed.split_once("://") else {
            return Err(invalid("needs a scheme, as in http://127.0.0.1:8000 or unix:/run/model.sock"));
        };
        let scheme = match scheme.to_ascii_lowercase().as_str() {
            "http" => HttpScheme::Http,
            "h2c" => HttpScheme::H2c,
            "https" => HttpScheme::Https,
            "grpc" => return Err(invalid("gRPC upstreams are written h2c://host:port, or http://host:port")),
            "grpcs" => return Err(invalid("gRPC upstreams over TLS are written https://host:port")),
            _ => return Err(invalid("has an unknown scheme; the schemes are http, h2c, https and unix")),
        };
        let (authority, path) = split(rest);
        if !matches!(path, "" | "/") {
            return Err(invalid("must not have a path: requests keep the path that the client asked for"));
        }
        Ok(Self::Http { authority: authority_of(authority, Some(scheme.default_port())).map_err(invalid)?, scheme })
    }
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http { authority, scheme } => write!(f, "{}://{authority}", scheme.name()),
            Self::Unix { path } => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Authority, and path with all that follows it.
pub(crate) fn split(rest: &str) -> (&str, &str) {
    rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()))
}

/// `host:port` of `authority`, in lower case. The error is the reason why it is invalid. Without a `default`, a port is required.
pub(crate) fn authority_of(authority: &str, default: Option<u16>) -> Result<String, &'static str> {
    const PORT: &str = "needs a port from 1 to 65535, as in http://127.0.0.1:8000";
    if authority.contains('@') {
        return Err("must not carry a user or password");
    }
    let (host, port) = match authority.rfind(']') {
        Some(end) if authority.starts_with('[') => authority.split_at(end + 1),
        _ => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    let port = match port.strip_prefix(':') {
        Some(port) => port.parse().ok().filter(|&port: &u16| port != 0),
        None if port.is_empty() => default,
        None => None,
    };
    let v6 = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).is_some_and(|h| h.parse::<Ipv6Addr>().is_ok());
    let name = !host.is_empty() && host.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'));
    if !v6 && !name {
        return Err("needs a host name or an IP address (IPv6 in brackets)");
    }
    Ok(format!("{}:{}", host.to_ascii_lowercase(), port.ok_or(PORT)?))
}
