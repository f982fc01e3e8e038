//! What is counted of the kept answers of one downstream since the start.

use std::collections::BTreeMap;

use crate::name::CallName;

/// Why a reading call is not answered from memory, or its answer not kept. HTTP has further reasons, of RFC 9111.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotKept {
    /// It reads what is not listed.
    Unlisted,
    /// A transaction, a watch, or a change of database, user or protocol is under way.
    State,
    /// An earlier call of its connection waits for its answer.
    Behind,
    /// The client does not take its answers.
    Backlog,
    /// It is too long to be held.
    TooLong,
    /// Too many calls of its connection wait.
    TooMany,
    /// Its connection is passed on untouched.
    Untouched,
    /// The answer is an error.
    Error,
    /// The answer says that something is not there.
    Absent,
    /// The answer is too large.
    TooLarge,
    /// Something was written meanwhile.
    Changed,
    /// The answer has a form that is not taken apart.
    Form,
}

impl NotKept {
    /// All of them, so that each is there from the beginning.
    pub(crate) const ALL: [Self; 12] = [
        Self::Unlisted,
        Self::State,
        Self::Behind,
        Self::Backlog,
        Self::TooLong,
        Self::TooMany,
        Self::Untouched,
        Self::Error,
        Self::Absent,
        Self::TooLarge,
        Self::Changed,
        Self::Form,
    ];

    /// The name on every surface.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Unlisted => "unlisted",
            Self::State => "state",
            Self::Behind => "behind",
            Self::Backlog => "backlog",
            Self::TooLong => "too_long",
            Self::TooMany => "too_many",
            Self::Untouched => "untouched",
            Self::Error => "error",
            Self::Absent => "absent",
            Self::TooLarge => "too_large",
            Self::Changed => "changed",
            Self::Form => "form",
        }
    }
}

/// How often something was found in memory, and how often not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) hits: u64,
    pub(crate) misses: u64,
}

impl Found {
    fn count(&mut self, is_hit: bool) {
        self.hits += u64::from(is_hit);
        self.misses += u64::from(!is_hit);
    }
}

/// The calls of one name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NamedLookups {
    pub(crate) found: Found,
    /// Those that the store was asked, with nothing before them, and what it took.
    pub(crate) asked: u64,
    pub(crate) asked_ns: u64,
}

impl NamedLookups {
    /// What the hits would have taken: each the mean of what the store takes.
    pub(crate) fn saved_ns(&self) -> u64 {
        let saved = u128::from(self.asked_ns) * u128::from(self.found.hits) / u128::from(self.asked.max(1));
        u64::try_from(saved).unwrap_or(u64::MAX)
    }
}

/// Everything that is counted.
#[derive(Debug, Default)]
pub(crate) struct KeptFigures {
    by_name: BTreeMap<CallName, NamedLookups>,
    /// By the places of the rules.
    by_rule: Vec<Found>,
    /// By the names of the reasons.
    pub(crate) refused: BTreeMap<&'static str, u64>,
    pub(crate) kept: u64,
    pub(crate) evicted: u64,
    /// Writes to keys that may be kept, and those that may have changed any key.
    pub(crate) forgot_keys: u64,
    pub(crate) forgot_all: u64,
    /// Of what would have been given, how often the store said something else.
    pub(crate) differed: u64,
    /// Connections that are passed on untouched.
    pub(crate) untouched: u64,
}

impl KeptFigures {
    /// With so many rules.
    pub(crate) fn new(rules: usize) -> Self {
        let refused = NotKept::ALL.into_iter().map(|why| (why.name(), 0)).collect();
        Self { by_rule: vec![Found::default(); rules], refused, ..Self::default() }
    }

    /// Counts a look.
    pub(crate) fn looked(&mut self, name: CallName, rule: usize, is_hit: bool) {
        self.by_name.entry(name).or_default().found.count(is_hit);
        if let Some(found) = self.by_rule.get_mut(rule) {
            found.count(is_hit);
        }
    }

    /// Counts what the store took for an answer.
    pub(crate) fn asked(&mut self, name: CallName, ns: u64) {
        let named = self.by_name.entry(name).or_default();
        named.asked += 1;
        named.asked_ns = named.asked_ns.saturating_add(ns);
    }

    pub(crate) fn refuse(&mut self, why: NotKept) {
        self.refuse_for(why.name());
    }

    pub(crate) fn refuse_for(&mut self, why: &'static str) {
        *self.refused.entry(why).or_default() += 1;
    }

    /// The calls of each name that was looked for.
    pub(crate) fn named(&self) -> impl Iterator<Item = (CallName, NamedLookups)> {
        self.by_name.iter().map(|(name, lookups)| (*name, *lookups))
    }

    /// By the places of the rules.
    pub(crate) fn by_rule(&self) -> &[Found] {
        &self.by_rule
    }

    pub(crate) fn saved_ns(&self) -> u64 {
        self.by_name.values().fold(0, |saved, named| saved.saturating_add(named.saved_ns()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_saved_is_the_hits_by_the_mean_of_the_store() {
        let (mut figures, get, mget) = (KeptFigures::new(1), CallName::of_command(b"GET"), CallName::of_command(b"MGET"));
        assert_eq!(figures.saved_ns(), 0);
        for (name, hits, took) in [(get, 3, [100, 300]), (mget, 1, [1000, 3000])] {
            (0..hits).for_each(|_| figures.looked(name, 0, true));
            took.into_iter().for_each(|ns| figures.asked(name, ns));
            figures.looked(name, 0, false);
        }
        assert_eq!(figures.saved_ns(), 3 * 200 + 2000);
        assert_eq!(figures.by_rule(), [Found { hits: 4, misses: 2 }]);
        figures.refuse(NotKept::Behind);
        assert_eq!((figures.refused["behind"], figures.refused["state"]), (1, 0));
    }
}
