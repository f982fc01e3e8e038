//! The headers of copies and records: those of a list, and what the user names.

use http::header::{HOST, TE};
use http::{HeaderMap, HeaderName};

use super::names::{KEPT_HEADERS, NEVER_KEPT};
use super::rules::NameRules;
use crate::config::{Config, CopyRule};

/// Which headers are kept.
#[derive(Clone, Debug)]
pub struct KeptHeaders {
    rules: NameRules,
    /// In which rules of `protocol.custom` find the model or the work.
    read: Vec<HeaderName>,
}

impl KeptHeaders {
    /// By `config`; headers that rules of `protocol` read are kept too, so that a copy has the work of its original.
    #[must_use]
    pub fn new(config: &Config, protocol: &lapwing_protocol::Config) -> Self {
        let read = protocol.request_headers().filter_map(|name| HeaderName::try_from(name).ok()).collect();
        Self { rules: NameRules::new(&config.headers), read }
    }

    /// What is kept of the headers, or trailers, of a request.
    #[must_use]
    pub fn of(&self, headers: &HeaderMap) -> HeaderMap {
        let kept = headers.iter().filter(|(name, _)| self.keeps(name));
        // `te` is about the connection, except for what gRPC says by it
        let kept = kept.filter(|(name, value)| **name != TE || *value == "trailers");
        let mut copied = HeaderMap::with_capacity(headers.len());
        for (name, value) in kept {
            copied.append(name.clone(), value.clone());
        }
        copied
    }

    /// Whether the header is kept.
    fn keeps(&self, name: &HeaderName) -> bool {
        if is_never_kept(name.as_str()) {
            return false;
        }
        match self.rules.of(name.as_str()) {
            Some(rule) => rule == CopyRule::Keep,
            None => *name == HOST || KEPT_HEADERS.contains(&name.as_str()) || self.read.contains(name),
        }
    }
}

/// Whether nobody can keep this header, because a copy has its own.
pub(crate) fn is_never_kept(name: &str) -> bool {
    NEVER_KEPT.iter().any(|never| never.eq_ignore_ascii_case(name))
}
