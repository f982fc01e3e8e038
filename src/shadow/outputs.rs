//! What the outputs of each target differ in, by route. Bounded: so many targets and routes, the rest is counted only.

use std::collections::BTreeMap;

use super::compare::{ComparedWith, Comparer, Comparison, ComparisonResult, Differences, DifferencesSnapshot};
use crate::ledger::TraceId;

/// How many accounts are kept, of a target and a route each.
const MAX_ACCOUNTS: usize = 64;

/// The accounts of all targets.
#[derive(Debug)]
pub struct OutputAccounts {
    comparer: Comparer,
    /// The targets that are candidates: all but the upstream itself.
    candidates: Vec<usize>,
    accounts: BTreeMap<(usize, String), Differences>,
    /// By target.
    compared: BTreeMap<usize, u64>,
    /// By target and kind, as each was judged when it came.
    mismatches: BTreeMap<(usize, &'static str), u64>,
    overflowed: u64,
}

impl OutputAccounts {
    /// For these targets; the upstream's own second answers belong to none of them.
    #[must_use]
    pub const fn new(comparer: Comparer, candidates: Vec<usize>) -> Self {
        Self {
            comparer,
            candidates,
            accounts: BTreeMap::new(),
            compared: BTreeMap::new(),
            mismatches: BTreeMap::new(),
            overflowed: 0,
        }
    }

    /// Records a comparison with the answer of `target`. Returns whether the outputs differ in what the upstream's own answers do not;
    /// `None` if they could not be compared.
    pub fn record(&mut self, target: usize, route: &str, comparison: &Comparison, trace: TraceId) -> Option<bool> {
        if !self.candidates.contains(&target) {
            for candidate in self.candidates.clone() {
                if let Some(account) = self.account(candidate, route) {
                    account.record(comparison, ComparedWith::Itself, trace);
                }
            }
            return is_different(comparison);
        }
        let account = self.account(target, route)?;
        account.record(comparison, ComparedWith::Candidate, trace);
        let is_mismatch = is_different(comparison)? && account.is_mismatch(comparison);
        *self.compared.entry(target).or_default() += 1;
        for kind in comparison.kinds().iter().filter(|_| is_mismatch) {
            *self.mismatches.entry((target, kind.name())).or_default() += 1;
        }
        Some(is_mismatch)
    }

    /// Whether there is an account of this route.
    #[must_use]
    pub fn has(&self, route: &str) -> bool {
        self.accounts.keys().any(|(_, known)| known == route)
    }

    /// How many outputs of `target` were compared.
    #[must_use]
    pub fn compared(&self, target: usize) -> u64 {
        self.compared.get(&target).copied().unwrap_or(0)
    }

    /// How many outputs of `target` differed, by kind, in what the upstream's own answers had not differed until then.
    pub fn mismatches(&self, target: usize) -> impl Iterator<Item = (&'static str, u64)> {
        self.mismatches.iter().filter(move |((of, _), _)| *of == target).map(|((_, kind), count)| (*kind, *count))
    }

    fn account(&mut self, target: usize, route: &str) -> Option<&mut Differences> {
        let key = (target, route.to_owned());
        if !self.accounts.contains_key(&key) && self.accounts.len() >= MAX_ACCOUNTS {
            self.overflowed += 1;
            return None;
        }
        let comparer = &self.comparer;
        Some(self.accounts.entry(key).or_insert_with(|| comparer.differences(route)))
    }

    /// What differs at `target`, by route.
    #[must_use]
    pub fn of(&self, target: usize) -> BTreeMap<String, DifferencesSnapshot> {
        let own = self.accounts.iter().filter(|((of, _), _)| *of == target);
        own.map(|((_, route), account)| (route.clone(), account.snapshot())).collect()
    }

    /// How many comparisons were left out, because there are too many routes.
    #[must_use]
    pub const fn overflowed(&self) -> u64 {
        self.overflowed
    }
}

fn is_different(comparison: &Comparison) -> Option<bool> {
    match comparison.result {
        ComparisonResult::Same => Some(false),
        ComparisonResult::Different => Some(true),
        ComparisonResult::Incomparable(_) => None,
    }
}
