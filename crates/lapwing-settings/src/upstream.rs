//! The address of the model server: `http://host:port`, `h2c://host:port`, `unix:/path`. Also the parser of authorities.

use std::fmt;
use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::str::FromStr;

use super::{Invalid, text::text_serde};

/// The model server that requests are forwarded to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Upstream {
    /// Over TCP. Text: `http://host:port`, or `h2c://host:port` for HTTP/2 only; the port defaults to 80.
    Http {
        /// `host:port`; an IPv6 address is in brackets.
        authority: String,
        /// Whether HTTP/2 is used regardless of the client's version.
        h2: bool,
    },
    /// Over a Unix socket. Text: `unix:/path`.
    Unix {
        /// The socket's absolute path.
        path: PathBuf,
    },
}

text_serde!(Upstream, "a URL, as in http://127.0.0.1:8000 or unix:/run/model.sock", {
    "title": "server", "type": "string", "pattern": r"^\s*(([hH][tT][tT][pP]|[hH]2[cC])://[^/?#@\s]+/?|unix:(//)?/.+)\s*$",
    "examples": ["http://127.0.0.1:8000", "h2c://127.0.0.1:8001", "unix:/run/model.sock"]
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
        let h2 = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "h2c" => true,
            "https" => return Err(invalid("TLS to the upstream is not supported; Lapwing sits in the same pod")),
            "grpc" => return Err(invalid("gRPC upstreams are written h2c://host:port, or http://host:port")),
            _ => return Err(invalid("has an unknown scheme; the schemes are http, h2c and unix")),
        };
        let (authority, path) = split(rest);
        if !matches!(path, "" | "/") {
            return Err(invalid("must not have a path: requests keep the path that the client asked for"));
        }
        Ok(Self::Http { authority: authority_of(authority, Some(80)).map_err(invalid)?, h2 })
    }
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http { authority, h2: false } => write!(f, "http://{authority}"),
            Self::Http { authority, h2: true } => write!(f, "h2c://{authority}"),
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
