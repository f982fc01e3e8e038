//! The address of a feature store that Lapwing itself asks: a Redis, or a feature server over HTTP.

use std::fmt;
use std::str::FromStr;

use super::upstream::{authority_of, split};
use super::{Invalid, RedisAddress, text::text_serde};

/// The scheme of a feature server.
const HTTP: &str = "http://";

/// Where features are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FeatureStoreAddress {
    /// In a Redis.
    Redis(RedisAddress),
    /// Behind a server over HTTP, at `host:port`. The port defaults to 80.
    Http(String),
}

text_serde!(FeatureStoreAddress, "a URL, as in redis://127.0.0.1:6379 or http://127.0.0.1:6566", {
    "title": "store", "type": "string",
    "pattern": r"^\s*([rR][eE][dD][iI][sS][sS]?://([^/?#:@\s]+@)?[^/?#@\s]+(/[0-9]*)?|[hH][tT][tT][pP]://[^/?#@\s]+/?|unix:(//)?/.+)\s*$",
    "examples": ["redis://127.0.0.1:6379", "rediss://lapwing@redis.example:6380/1", "http://127.0.0.1:6566", "unix:/run/redis.sock"]
});

impl FromStr for FeatureStoreAddress {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let invalid = |reason: &str| Invalid::new(text, reason);
        let trimmed = text.trim();
        let Some(rest) = trimmed.get(HTTP.len()..).filter(|_| trimmed[..HTTP.len()].eq_ignore_ascii_case(HTTP)) else {
            if trimmed.get(.."https://".len()).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https://")) {
                return Err(invalid(
                    "has a scheme that is not for feature servers; the schemes are redis, rediss, unix and http",
                ));
            }
            return trimmed.parse().map(Self::Redis);
        };
        let (authority, path) = split(rest);
        if !matches!(path, "" | "/") {
            return Err(invalid("must not have a path: what is asked for is Feast's /get-online-features"));
        }
        authority_of(authority, Some(80)).map(Self::Http).map_err(invalid)
    }
}

impl fmt::Display for FeatureStoreAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Redis(address) => write!(f, "{address}"),
            Self::Http(authority) => write!(f, "{HTTP}{authority}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_redis_or_a_server() {
        for (text, canonical) in [
            ("REDIS://Store/2", "redis://store:6379/2"),
            ("unix:/run/redis.sock", "unix:/run/redis.sock"),
            ("HTTP://Feast:6566/", "http://feast:6566"),
            ("http://feast", "http://feast:80"),
        ] {
            let address: FeatureStoreAddress = text.parse().unwrap();
            assert_eq!((address.to_string().as_str(), canonical.parse()), (canonical, Ok(address)));
        }
        for (text, reason) in [
            ("store:6379", "needs a scheme"),
            ("https://feast", "not for feature servers"),
            ("http://feast/a", "must not have a path"),
            ("http://", "host"),
            ("redis://u:hunter2@r", "must not carry a password"),
        ] {
            let fault = text.parse::<FeatureStoreAddress>().unwrap_err();
            assert!(fault.reason.contains(reason) && !fault.to_string().contains("hunter2"), "{text}: {}", fault.reason);
        }
    }
}
