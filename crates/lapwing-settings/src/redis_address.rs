//! The address of a Redis that Lapwing itself asks: `redis://user@host:port/db`, `rediss://` (TLS), `unix:/path`. A password is not
//! part of it, because addresses are shown.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use super::upstream::{authority_of, split};
use super::{Invalid, text::text_serde};

/// The port of a Redis.
const PORT: u16 = 6379;
/// The greatest number of a database that is taken.
const MAX_DB: u16 = 16_383;

/// Where a Redis is, and as whom it is asked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RedisAddress {
    /// Over TCP. The port defaults to 6379.
    Tcp {
        /// The host; an IPv6 address is without brackets.
        host: String,
        /// The port.
        port: u16,
        /// Whether TLS is spoken.
        is_tls: bool,
        /// The user of its access list; `None`: the default user.
        user: Option<String>,
        /// The number of its database.
        db: u16,
    },
    /// Over a Unix socket, as the default user.
    Unix {
        /// The socket's absolute path.
        path: PathBuf,
    },
}

impl RedisAddress {
    /// Whether TLS is spoken.
    #[must_use]
    pub const fn is_tls(&self) -> bool {
        matches!(self, Self::Tcp { is_tls: true, .. })
    }
}

text_serde!(RedisAddress, "a URL, as in redis://127.0.0.1:6379", {
    "title": "Redis", "type": "string",
    "pattern": r"^\s*([rR][eE][dD][iI][sS][sS]?://([^/?#:@\s]+@)?[^/?#@\s]+(/[0-9]*)?|unix:(//)?/.+)\s*$",
    "examples": ["redis://127.0.0.1:6379", "rediss://lapwing@redis.example:6380/1", "unix:/run/redis.sock"]
});

impl FromStr for RedisAddress {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let invalid = |reason: &str| Invalid::new(text, reason);
        let trimmed = text.trim();
        if let Some(path) = trimmed.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            if !path.starts_with('/') || path.len() < 2 || path.contains('\0') {
                return Err(invalid("needs an absolute path, as in unix:/run/redis.sock"));
            }
            return Ok(Self::Unix { path: path.into() });
        }
        let Some((scheme, rest)) = trimmed.split_once("://") else {
            return Err(invalid("needs a scheme, as in redis://127.0.0.1:6379"));
        };
        let is_tls = scheme.eq_ignore_ascii_case("rediss");
        if !is_tls && !scheme.eq_ignore_ascii_case("redis") {
            return Err(invalid("has an unknown scheme; the schemes are redis, rediss and unix"));
        }
        // before the path: a password may have a slash, and must not be taken for anything else
        let (user, rest) = rest.rsplit_once('@').map_or((None, rest), |(user, rest)| (Some(user), rest));
        if user.is_some_and(|user| user.contains(':')) {
            return Err(invalid("must not carry a password, because addresses are shown: put it in password_file"));
        }
        let is_name = |user: &str| !user.is_empty() && user.bytes().all(|b| b.is_ascii_graphic() && !b"/?#%@".contains(&b));
        if user.is_some_and(|user| !is_name(user)) {
            return Err(invalid("has a user that is no name: letters, digits and signs other than / ? # % @ :"));
        }
        let (authority, path) = split(rest);
        let db = match path.strip_prefix('/').unwrap_or(path) {
            "" => 0,
            db => db.parse().ok().filter(|db| *db <= MAX_DB).ok_or_else(|| {
                invalid("must have nothing behind its port but the number of a database, as in redis://127.0.0.1:6379/1")
            })?,
        };
        let authority = authority_of(authority, Some(PORT)).map_err(invalid)?;
        let Some((host, Ok(port))) = authority.rsplit_once(':').map(|(host, port)| (host, port.parse())) else {
            return Err(invalid("needs a host and a port, as in redis://127.0.0.1:6379"));
        };
        let host = host.trim_matches(['[', ']']).to_owned();
        Ok(Self::Tcp { host, port, is_tls, user: user.map(str::to_owned), db })
    }
}

impl fmt::Display for RedisAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (host, port, is_tls, user, db) = match self {
            Self::Unix { path } => return write!(f, "unix:{}", path.display()),
            Self::Tcp { host, port, is_tls, user, db } => (host, port, is_tls, user, db),
        };
        f.write_str(if *is_tls { "rediss://" } else { "redis://" })?;
        if let Some(user) = user {
            write!(f, "{user}@")?;
        }
        if host.contains(':') {
            write!(f, "[{host}]:{port}")?;
        } else {
            write!(f, "{host}:{port}")?;
        }
        if *db > 0 { write!(f, "/{db}") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_and_printed() {
        for (text, canonical) in [
            ("redis://Store", "redis://store:6379"),
            ("rediss://lapwing@10.0.0.1:6380/", "rediss://lapwing@10.0.0.1:6380"),
            ("REDIS://[::1]/3", "redis://[::1]:6379/3"),
            ("unix:///run/redis.sock", "unix:/run/redis.sock"),
        ] {
            let address: RedisAddress = text.parse().unwrap();
            assert_eq!((address.to_string().as_str(), canonical.parse()), (canonical, Ok(address)));
        }
        assert!("rediss://a".parse::<RedisAddress>().unwrap().is_tls());
    }

    #[test]
    fn what_is_no_address_has_a_reason_and_a_password_is_not_shown() {
        for (text, reason) in [
            ("127.0.0.1:6379", "needs a scheme"),
            ("http://store", "unknown scheme"),
            ("redis://user:hunter2@store", "must not carry a password"),
            ("redis://:hunter2/x@store", "must not carry a password"),
            ("redis://@store", "has a user that is no name"),
            ("redis://store/a", "number of a database"),
            ("redis://store/99999", "number of a database"),
            ("redis://store:0", "needs a port"),
            ("unix:redis.sock", "needs an absolute path"),
        ] {
            let fault = text.parse::<RedisAddress>().unwrap_err();
            assert!(fault.reason.contains(reason), "{text}: {}", fault.reason);
            assert!(!fault.to_string().contains("hunter2"), "{fault}");
        }
    }
}
