//! The address of a store or service that the model server calls: `redis://host:port`, `rediss://host:port`, `http://`, `h2c://`,
//! `https://`, `unix:/path`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use super::upstream::{authority_of, split};
use super::{Invalid, text::text_serde};

/// Where a model server's calls go.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DownstreamAddress {
    /// Over TCP. The port defaults to 6379, 80, and with TLS to 6379 and 443.
    Tcp {
        /// `host:port`; an IPv6 address is in brackets.
        authority: String,
        /// What is spoken.
        scheme: DownstreamScheme,
    },
    /// Over a Unix socket.
    Unix {
        /// The socket's absolute path.
        path: PathBuf,
    },
}

/// What is spoken there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DownstreamScheme {
    /// Redis without TLS.
    Redis,
    /// Redis over TLS.
    Rediss,
    /// HTTP without TLS.
    Http,
    /// HTTP/2 without TLS.
    H2c,
    /// HTTP over TLS.
    Https,
}

impl DownstreamScheme {
    const ALL: [Self; 5] = [Self::Redis, Self::Rediss, Self::Http, Self::H2c, Self::Https];

    /// Its name in a URL.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::Rediss => "rediss",
            Self::Http => "http",
            Self::H2c => "h2c",
            Self::Https => "https",
        }
    }

    /// Whether it is over TLS.
    #[must_use]
    pub const fn is_tls(self) -> bool {
        matches!(self, Self::Rediss | Self::Https)
    }

    /// Whether Redis is spoken.
    #[must_use]
    pub const fn is_redis(self) -> bool {
        matches!(self, Self::Redis | Self::Rediss)
    }

    const fn default_port(self) -> u16 {
        match self {
            Self::Redis | Self::Rediss => 6379,
            Self::Http | Self::H2c => 80,
            Self::Https => 443,
        }
    }
}

impl DownstreamAddress {
    /// What is spoken, if the address says so.
    #[must_use]
    pub const fn scheme(&self) -> Option<DownstreamScheme> {
        match self {
            Self::Tcp { scheme, .. } => Some(*scheme),
            Self::Unix { .. } => None,
        }
    }
}

text_serde!(DownstreamAddress, "a URL, as in redis://127.0.0.1:6379 or http://127.0.0.1:6566", {
    "title": "server", "type": "string",
    "pattern": r"^\s*(([rR][eE][dD][iI][sS][sS]?|[hH][tT][tT][pP][sS]?|[hH]2[cC])://[^/?#@\s]+/?|unix:(//)?/.+)\s*$",
    "examples": ["redis://127.0.0.1:6379", "rediss://store.example:6380", "http://127.0.0.1:6566", "unix:/run/redis.sock"]
});

impl FromStr for DownstreamAddress {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let invalid = |reason: &str| Invalid::new(text, reason);
        let trimmed = text.trim();
        if let Some(path) = trimmed.strip_prefix("unix:") {
            let (path, is_relative) = (path.trim_start_matches('/'), !path.strip_prefix("//").unwrap_or(path).starts_with('/'));
            if is_relative || path.is_empty() || path.contains('\0') {
                return Err(invalid("needs an absolute path, as in unix:/run/redis.sock"));
            }
            return Ok(Self::Unix { path: format!("/{path}").into() });
        }
        let Some((named, rest)) = trimmed.split_once("://") else {
            return Err(invalid("needs a scheme, as in redis://127.0.0.1:6379 or http://127.0.0.1:6566"));
        };
        let Some(scheme) = DownstreamScheme::ALL.into_iter().find(|scheme| named.eq_ignore_ascii_case(scheme.name())) else {
            return Err(invalid("has an unknown scheme; the schemes are redis, rediss, http, h2c, https and unix"));
        };
        let (authority, path) = split(rest);
        if !matches!(path, "" | "/") {
            return Err(invalid("must not have a path or a database: the server's own client names them"));
        }
        Ok(Self::Tcp { authority: authority_of(authority, Some(scheme.default_port())).map_err(invalid)?, scheme })
    }
}

impl fmt::Display for DownstreamAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { authority, scheme } => write!(f, "{}://{authority}", scheme.name()),
            Self::Unix { path } => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_have_defaults_and_faults_have_reasons() {
        for (text, canonical) in [
            ("redis://Store", "redis://store:6379"),
            ("rediss://10.0.0.1:6380/", "rediss://10.0.0.1:6380"),
            ("HTTP://features:6566", "http://features:6566"),
            ("unix:///run/redis.sock", "unix:/run/redis.sock"),
        ] {
            let address: DownstreamAddress = text.parse().unwrap();
            assert_eq!((address.to_string().as_str(), canonical.parse()), (canonical, Ok(address)));
        }
        for (text, reason) in [
            ("127.0.0.1:6379", "needs a scheme"),
            ("redis://user:secret@store", "must not carry a user"),
            ("redis://store/3", "must not have a path or a database"),
            ("memcached://store", "unknown scheme"),
            ("unix:redis.sock", "needs an absolute path"),
        ] {
            let fault = text.parse::<DownstreamAddress>().unwrap_err();
            assert!(fault.reason.contains(reason), "{text}: {}", fault.reason);
        }
    }
}
