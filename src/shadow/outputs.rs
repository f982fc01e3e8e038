//! What the outputs of each target differ in, by route. Bounded: so many targets and routes, the rest is counted only.
//!
//! Requests that a quota took are kept apart from those that the share drew: they are not in proportion to the traffic, and a rate
//! over both would be that of no traffic. Each is judged by repeats of its own kind.

use std::collections::BTreeMap;

use super::compare::{ComparedWith, Comparer, Comparison, DifferenceKind, Differences, DifferencesSnapshot};
use super::pairs::OutputResult;
use crate::ledger::{CopyCause, TraceId};

/// How many accounts are kept, of a target, a route and a cause of copies each.
const MAX_ACCOUNTS: usize = 64;

/// What the comparison of a pair's outputs says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OutputVerdict {
    /// How they compare.
    pub result: OutputResult,
    /// If they differ: the greatest error; infinite for a difference that is no number.
    pub greatest_error: Option<f64>,
}

impl OutputVerdict {
    /// How the upstream's second answer compares with its first: nothing is excused. `None` if they could not be compared.
    #[must_use]
    pub fn of_repeat(comparison: &Comparison) -> Option<Self> {
        Some(Self::of(comparison.is_different()?, comparison, comparison.greatest_error(|_, _| true)))
    }

    /// `greatest_error` is that of what is blamed on the target, if anything is.
    fn of(is_different: bool, comparison: &Comparison, greatest_error: Option<f64>) -> Self {
        let result = match greatest_error {
            None if is_different => OutputResult::Noise,
            None => OutputResult::Same,
            Some(_) if comparison.kinds().contains(DifferenceKind::Status) => OutputResult::Status,
            Some(_) => OutputResult::Mismatch,
        };
        Self { result, greatest_error }
    }
}

/// The accounts of all targets.
#[derive(Debug)]
pub struct OutputAccounts {
    comparer: Comparer,
    accounts: BTreeMap<(usize, CopyCause, String), Differences>,
    /// By target and cause.
    compared: BTreeMap<(usize, CopyCause), u64>,
    /// By target, cause and kind, as each was judged when it came.
    mismatches: BTreeMap<(usize, CopyCause, &'static str), u64>,
    overflowed: u64,
}

impl OutputAccounts {
    /// Without any comparison.
    #[must_use]
    pub const fn new(comparer: Comparer) -> Self {
        Self { comparer, accounts: BTreeMap::new(), compared: BTreeMap::new(), mismatches: BTreeMap::new(), overflowed: 0 }
    }

    /// Records a comparison with the answer of `target` to a request that was copied for `cause`. Returns how the outputs compare, net of
    /// what the upstream's own answers differ in; `None` if they could not be compared.
    pub fn record(
        &mut self,
        target: usize,
        route: &str,
        cause: CopyCause,
        comparison: &Comparison,
        trace: TraceId,
    ) -> Option<OutputVerdict> {
        let account = self.account(target, route, cause)?;
        account.record(comparison, ComparedWith::Candidate, trace);
        let verdict = OutputVerdict::of(comparison.is_different()?, comparison, account.mismatch(comparison));
        *self.compared.entry((target, cause)).or_default() += 1;
        for kind in comparison.kinds().iter().filter(|_| verdict.result.is_mismatch()) {
            *self.mismatches.entry((target, cause, kind.name())).or_default() += 1;
        }
        Some(verdict)
    }

    /// Whether there is an account of this route.
    #[must_use]
    pub fn has(&self, route: &str) -> bool {
        self.accounts.keys().any(|(.., known)| known == route)
    }

    /// Records how the upstream's second answer compares with its first, for one candidate and cause of copies.
    pub fn record_repeat(&mut self, candidate: usize, route: &str, cause: CopyCause, comparison: &Comparison, trace: TraceId) {
        if let Some(account) = self.account(candidate, route, cause) {
            account.record(comparison, ComparedWith::Itself, trace);
        }
    }

    /// How many outputs of `target` were compared, by the cause of their copies; without causes that there were not.
    pub fn compared(&self, target: usize) -> impl Iterator<Item = (CopyCause, u64)> {
        self.compared.iter().filter(move |((of, _), _)| *of == target).map(|((_, cause), count)| (*cause, *count))
    }

    /// How many outputs of `target` differed, by cause and kind, in what the upstream's own answers had not differed until then.
    pub fn mismatches(&self, target: usize) -> impl Iterator<Item = (CopyCause, &'static str, u64)> {
        let own = self.mismatches.iter().filter(move |((of, ..), _)| *of == target);
        own.map(|((_, cause, kind), count)| (*cause, *kind, *count))
    }

    fn account(&mut self, target: usize, route: &str, cause: CopyCause) -> Option<&mut Differences> {
        let key = (target, cause, route.to_owned());
        if !self.accounts.contains_key(&key) && self.accounts.len() >= MAX_ACCOUNTS {
            self.overflowed += 1;
            return None;
        }
        let comparer = &self.comparer;
        Some(self.accounts.entry(key).or_insert_with(|| comparer.differences(route)))
    }

    /// What differs at `target` in answers to requests that were copied for `cause`, by route.
    #[must_use]
    pub fn of(&self, target: usize, cause: CopyCause) -> BTreeMap<String, DifferencesSnapshot> {
        let own = self.accounts.iter().filter(|((of, why, _), _)| (*of, *why) == (target, cause));
        own.map(|((.., route), account)| (route.clone(), account.snapshot())).collect()
    }

    /// How many comparisons were left out, because there are too many routes.
    #[must_use]
    pub const fn overflowed(&self) -> u64 {
        self.overflowed
    }
}
