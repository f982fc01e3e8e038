//! What of a request goes into its copies and into recordings: the headers of a list, and everything else but secrets, which are known
//! by the names of their parameters and members (`secrets`).
//!
//! Lapwing cannot know a secret by its value. So headers are let through by name and never held back by name; in queries and bodies,
//! where names are the user's own, those that secrets have by custom are held back. `shadow.headers` and `shadow.fields` change both.

mod secrets;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use http::header::{HOST, TE};
use http::{HeaderMap, HeaderName};
pub(crate) use secrets::CopiedParts;
pub use secrets::{Secrets, Unsearchable};

use crate::config::{Config, CopyRule};
use crate::header_names::{KEPT_HEADERS, is_never_kept};
use lapwing_protocol::matches_glob;

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
        let kept = headers.iter().filter(|(name, _)| self.is_kept(name));
        // `te` is about the connection, except for what gRPC says by it
        let kept = kept.filter(|(name, value)| **name != TE || *value == "trailers");
        let mut copied = HeaderMap::with_capacity(headers.len());
        for (name, value) in kept {
            copied.append(name.clone(), value.clone());
        }
        copied
    }

    /// Whether the header is kept.
    fn is_kept(&self, name: &HeaderName) -> bool {
        if is_never_kept(name.as_str()) {
            return false;
        }
        match self.rules.of(name.as_str()) {
            Some(rule) => rule == CopyRule::Keep,
            None => *name == HOST || KEPT_HEADERS.contains(&name.as_str()) || self.read.contains(name),
        }
    }
}

/// The rules of one kind of names, in lower case.
#[derive(Clone, Debug, Default)]
pub(crate) struct NameRules {
    exact: BTreeMap<String, CopyRule>,
    patterns: Vec<(String, CopyRule)>,
}

impl NameRules {
    /// The rules of a checked configuration.
    pub(crate) fn new(rules: &BTreeMap<String, CopyRule>) -> Self {
        let lower = rules.iter().map(|(name, rule)| (name.to_ascii_lowercase(), *rule));
        let (patterns, exact): (Vec<_>, Vec<_>) = lower.partition(|(name, _)| name.contains('*'));
        Self { exact: exact.into_iter().collect(), patterns }
    }

    /// What is said of this name: first by itself, then by patterns, of which one that removes wins.
    pub(crate) fn of(&self, name: &str) -> Option<CopyRule> {
        if self.exact.is_empty() && self.patterns.is_empty() {
            return None;
        }
        let name = name.to_ascii_lowercase();
        if let Some(rule) = self.exact.get(&name) {
            return Some(*rule);
        }
        let mut fitting = self.patterns.iter().filter(|(glob, _)| matches_glob(glob.as_bytes(), name.as_bytes()));
        let (_, first) = fitting.next()?;
        Some(fitting.fold(*first, |said, (_, rule)| if *rule == CopyRule::Remove { *rule } else { said }))
    }
}
