//! What the outputs of each target differ in, by route. Bounded: so many targets and routes, the rest is counted only.
//!
//! Requests that a quota took are kept apart from those that the share drew: they are not in proportion to the traffic, and a rate
//! over both would be that of no traffic. Each is judged by repeats of its own kind.

use std::collections::BTreeMap;

use super::pairs::OutputResult;
use lapwing_compare::outputs::{
    AnswerJudgement, Asked, ComparedWith, Comparer, Comparison, DifferenceKind, Differences, DifferencesSnapshot, FieldScales,
};
use lapwing_ledger::{CopyCause, TraceId};

/// How many accounts are kept, of a target, a route and a cause of copies each.
const MAX_ACCOUNTS: usize = 64;
/// Why a comparison without an account is not judged.
const NO_ROOM: &str = "too_many_routes";

/// What the comparison of a pair's outputs says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OutputVerdict {
    /// How they compare.
    pub result: OutputResult,
    /// If they differ: the greatest error; infinite for a difference that is no number.
    pub greatest_error: Option<f64>,
}

impl OutputVerdict {
    /// How the upstream's second answer compares with its first: nothing is excused.
    #[must_use]
    pub fn of_repeat(comparison: &Comparison) -> Self {
        match comparison.is_different() {
            Some(false) => Self::of(AnswerJudgement::Same, comparison),
            Some(true) => {
                let error = comparison.greatest_error(|_| true).unwrap_or(f64::INFINITY);
                Self::of(AnswerJudgement::Mismatch(error), comparison)
            }
            None => Self { result: OutputResult::Unjudged, greatest_error: None },
        }
    }

    fn of(judgement: AnswerJudgement, comparison: &Comparison) -> Self {
        let result = match judgement {
            AnswerJudgement::Same => OutputResult::Same,
            AnswerJudgement::Excused => OutputResult::Noise,
            AnswerJudgement::Unjudged(_) => OutputResult::Unjudged,
            AnswerJudgement::Mismatch(_) if comparison.kinds().contains(DifferenceKind::Status) => OutputResult::Status,
            AnswerJudgement::Mismatch(_) => OutputResult::Mismatch,
        };
        let greatest_error = if let AnswerJudgement::Mismatch(error) = judgement { Some(error) } else { None };
        Self { result, greatest_error }
    }
}

/// The accounts of all targets.
#[derive(Debug)]
pub struct OutputAccounts {
    comparer: Comparer,
    /// Whether the upstream is asked twice.
    is_noise_measured: bool,
    accounts: BTreeMap<(usize, CopyCause, String), Differences>,
    /// By target and cause: those that were judged.
    compared: BTreeMap<(usize, CopyCause), u64>,
    /// By target, cause and reason: those that could not be.
    unjudged: BTreeMap<(usize, CopyCause, &'static str), u64>,
    /// By target, cause and kind, as each was judged when it came.
    mismatches: BTreeMap<(usize, CopyCause, &'static str), u64>,
    overflowed: u64,
}

impl OutputAccounts {
    /// Without any comparison. `is_noise_measured`: whether the upstream is asked twice.
    #[must_use]
    pub const fn new(comparer: Comparer, is_noise_measured: bool) -> Self {
        Self {
            comparer,
            is_noise_measured,
            accounts: BTreeMap::new(),
            compared: BTreeMap::new(),
            unjudged: BTreeMap::new(),
            mismatches: BTreeMap::new(),
            overflowed: 0,
        }
    }

    /// How large the fields of a model's answers usually are on this route.
    #[must_use]
    pub fn scales(&self, target: usize, route: &str, cause: CopyCause, model: &str) -> FieldScales {
        let account = self.accounts.get(&(target, cause, route.to_owned()));
        account.map_or_else(FieldScales::default, |account| account.scales(model))
    }

    /// Records a comparison with the answer of `target` to a request that was copied for `cause`. Returns how the outputs compare, net of
    /// what the upstream's own answers differ in.
    pub fn record(
        &mut self,
        target: usize,
        route: &str,
        cause: CopyCause,
        comparison: &Comparison,
        trace: TraceId,
        asked: Asked<'_>,
    ) -> OutputVerdict {
        let judgement = self.account(target, route, cause).map_or(AnswerJudgement::Unjudged(NO_ROOM), |account| {
            account.record(comparison, ComparedWith::Candidate, trace, asked);
            account.judge(comparison, asked)
        });
        let verdict = OutputVerdict::of(judgement, comparison);
        if let AnswerJudgement::Unjudged(reason) = judgement {
            *self.unjudged.entry((target, cause, reason)).or_default() += 1;
            return verdict;
        }
        *self.compared.entry((target, cause)).or_default() += 1;
        for kind in comparison.kinds().iter().filter(|_| verdict.result.is_mismatch()) {
            *self.mismatches.entry((target, cause, kind.name())).or_default() += 1;
        }
        verdict
    }

    /// Whether there is an account of this route.
    #[must_use]
    pub fn has(&self, route: &str) -> bool {
        self.accounts.keys().any(|(.., known)| known == route)
    }

    /// Records how the upstream's second answer compares with its first, for one candidate and cause of copies.
    pub fn record_repeat(
        &mut self,
        candidate: usize,
        route: &str,
        cause: CopyCause,
        comparison: &Comparison,
        trace: TraceId,
        asked: Asked<'_>,
    ) {
        if let Some(account) = self.account(candidate, route, cause) {
            account.record(comparison, ComparedWith::Itself, trace, asked);
        }
    }

    /// How many outputs of `target` could not be judged, by the cause of their copies and the reason, as of when each came.
    pub fn unjudged(&self, target: usize) -> impl Iterator<Item = (CopyCause, &'static str, u64)> {
        let own = self.unjudged.iter().filter(move |((of, ..), _)| *of == target);
        own.map(|((_, cause, reason), count)| (*cause, *reason, *count))
    }

    /// How many outputs of `target` were compared and judged, by the cause of their copies; without causes that there were not.
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
        let (comparer, is_noise_measured) = (&self.comparer, self.is_noise_measured);
        Some(self.accounts.entry(key).or_insert_with(|| comparer.differences(route, is_noise_measured)))
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
