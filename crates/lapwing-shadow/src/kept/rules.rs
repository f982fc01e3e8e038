//! What the user says of a name: kept or removed, by the whole name or by a pattern with `*`.

use std::collections::BTreeMap;

use crate::config::CopyRule;
use lapwing_protocol::matches_glob;

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
