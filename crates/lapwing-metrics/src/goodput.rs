//! Goodput: what was answered without an error and within its budget, of the requests that had one. Durations are nanoseconds. Work is
//! kept apart by how its amount is known, so that estimates are never added to what was measured.

use super::budget::RequestLimits;
use super::sparse::Sparse;
use lapwing_ledger::{Basis, Exchange, Outcome, Unit};

/// Why a request was not within its budget. There may be several reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetMiss {
    /// It took longer in all.
    Total,
    /// Its first token came later.
    FirstToken,
    /// Its output tokens came more slowly.
    PerToken,
    /// It failed.
    Failed,
    /// The client left before it was answered.
    Cancelled,
}

impl BudgetMiss {
    /// How many reasons there are.
    pub const COUNT: usize = 5;

    /// Every reason.
    pub const ALL: [Self; Self::COUNT] = [Self::Total, Self::FirstToken, Self::PerToken, Self::Failed, Self::Cancelled];

    /// The name on every surface.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Total => "total",
            Self::FirstToken => "first_token",
            Self::PerToken => "per_token",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

/// Work in one unit, by how its amount is known: all of it, and what was within its budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BudgetedWork {
    all: [u128; 3],
    within: [u128; 3],
}

impl BudgetedWork {
    /// The work of requests that had a budget, and the part of it within.
    #[must_use]
    pub const fn of(&self, basis: Basis) -> (u128, u128) {
        (self.all[basis as usize], self.within[basis as usize])
    }

    fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.all.iter_mut().chain(&mut self.within).zip(other.all.iter().chain(&other.within)) {
            *mine += theirs;
        }
    }
}

/// The goodput of a series over a period of time: 100 bytes, and 96 for each unit of work.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GoodputTotals {
    /// Requests that had a budget.
    pub requests: u64,
    /// Those that were answered without an error, and within it.
    pub within: u64,
    /// The others by [`BudgetMiss`], each in every reason that it has.
    pub missed: [u64; BudgetMiss::COUNT],
    work: Sparse<BudgetedWork, { Unit::COUNT }>,
}

impl GoodputTotals {
    /// The work of requests that had a budget, by unit and by how it is known: all of it, and the part within.
    pub fn work(&self) -> impl Iterator<Item = (Unit, Basis, (u128, u128))> {
        let known = Unit::ALL.into_iter().filter_map(|unit| Some((unit, self.work.get(unit.index())?)));
        known.flat_map(|(unit, work)| {
            let amounts = [Basis::Reported, Basis::Counted, Basis::Estimated].map(|basis| (unit, basis, work.of(basis)));
            amounts.into_iter().filter(|(_, _, (all, _))| *all > 0)
        })
    }

    /// Adds an exchange with what it missed of its budget.
    pub(crate) fn record(&mut self, exchange: &Exchange, missed: MissedBudget) {
        self.requests += 1;
        self.within += u64::from(missed.is_within());
        for (count, is_missed) in self.missed.iter_mut().zip(missed.0) {
            *count += u64::from(is_missed);
        }
        for unit in Unit::ALL {
            if let Some((amount, basis)) = exchange.ledger.work.get(unit) {
                let work = self.work.at(unit.index());
                work.all[basis as usize] += u128::from(amount);
                work.within[basis as usize] += if missed.is_within() { u128::from(amount) } else { 0 };
            }
        }
    }

    /// Adds the goodput of another period of time.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.requests += other.requests;
        self.within += other.within;
        for (mine, theirs) in self.missed.iter_mut().zip(other.missed) {
            *mine += theirs;
        }
        self.work.merge(&other.work, BudgetedWork::merge);
    }
}

/// What one request missed of its budget, by [`BudgetMiss`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MissedBudget([bool; BudgetMiss::COUNT]);

impl MissedBudget {
    /// Judges an exchange by its own deadline, else by `limits`. `None` if it had no budget: nobody gave it one, or it was answered and
    /// has no token that the budget could be for.
    pub(crate) fn of(exchange: &Exchange, limits: &RequestLimits) -> Option<Self> {
        let ledger = &exchange.ledger;
        let total_ns = ledger.deadline.map_or(limits.total_ns, |deadline| Some(deadline.budget_ns));
        if total_ns.is_none() && limits.first_token_ns.is_none() && limits.per_token_ns.is_none() {
            return None;
        }
        let over = |taken_ns: Option<u64>, limit_ns: Option<u64>| Some(taken_ns? > limit_ns?);
        let judged = [
            over(Some(ledger.total_ns), total_ns),
            over(limits.first_token_ns.and_then(|_| exchange.first_token_ns()), limits.first_token_ns),
            over(limits.per_token_ns.and_then(|_| exchange.per_output_token_ns()), limits.per_token_ns),
        ];
        let (is_ok, is_cancelled) = (ledger.outcome == Outcome::Ok, ledger.outcome == Outcome::Cancelled);
        let [total, first_token, per_token] = judged.map(|over| over == Some(true));
        let has_budget = !is_ok || judged.iter().any(Option::is_some);
        has_budget.then_some(Self([total, first_token, per_token, !is_ok && !is_cancelled, is_cancelled]))
    }

    fn is_within(self) -> bool {
        self.0 == Self::default().0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lapwing_ledger::{Deadline, DeadlineSource, Generation, Ledger, Stamp};

    const MS: u64 = 1_000_000;

    /// An exchange that took 100 ms, or an answer of five tokens that began after 40 ms.
    fn exchange(outcome: Outcome, is_generated: bool) -> Exchange {
        let mut ledger = Ledger::open(Stamp::default(), 0);
        (ledger.outcome, ledger.total_ns) = (outcome, 100 * MS);
        if is_generated {
            let mut generation = Generation::default();
            (0..5).for_each(|n| generation.content((40 + 10 * n) * MS));
            ledger.generation = Some(Box::new(generation));
            ledger.work.set(Unit::OutputToken, 5, Basis::Counted);
        }
        Exchange::of(ledger)
    }

    fn limits([total_ns, first_token_ns, per_token_ns]: [Option<u64>; 3]) -> RequestLimits {
        let of = |ms: Option<u64>| ms.map(|ms| ms * MS);
        let [total_ns, first_token_ns, per_token_ns] = [total_ns, first_token_ns, per_token_ns].map(of);
        RequestLimits { total_ns, first_token_ns, per_token_ns, ..RequestLimits::default() }
    }

    /// The names of what was missed; `None` if there was no budget.
    fn missed(exchange: &Exchange, budget: [Option<u64>; 3]) -> Option<Vec<&'static str>> {
        let missed = MissedBudget::of(exchange, &limits(budget))?;
        Some(BudgetMiss::ALL.into_iter().zip(missed.0).filter(|(_, is)| *is).map(|(miss, _)| miss.name()).collect())
    }

    #[test]
    fn a_request_is_within_its_budget_or_misses_it_in_every_way_that_it_does() {
        let ok = exchange(Outcome::Ok, true);
        assert_eq!(missed(&ok, [None; 3]), None);
        assert_eq!(missed(&ok, [Some(100), Some(40), Some(10)]), Some(vec![]), "just within");
        assert_eq!(missed(&ok, [Some(99), None, Some(9)]), Some(vec!["total", "per_token"]));
        assert_eq!(missed(&ok, [Some(200), Some(39), None]), Some(vec!["first_token"]));
        let failed = exchange(Outcome::ServerError, false);
        assert_eq!(missed(&failed, [Some(200), None, None]), Some(vec!["failed"]));
        assert_eq!(missed(&exchange(Outcome::Cancelled, false), [Some(50), None, None]), Some(vec!["total", "cancelled"]));
    }

    #[test]
    fn an_answer_without_tokens_has_no_budget_for_them() {
        assert_eq!(missed(&exchange(Outcome::Ok, false), [None, Some(1), Some(1)]), None);
        assert_eq!(missed(&exchange(Outcome::Ok, false), [Some(200), Some(1), None]), Some(vec![]));
        assert_eq!(missed(&exchange(Outcome::Broken, false), [None, Some(1), None]), Some(vec!["failed"]));
    }

    #[test]
    fn a_requests_own_deadline_takes_the_place_of_the_settings() {
        let mut own = exchange(Outcome::Ok, false);
        own.ledger.deadline = Some(Deadline { budget_ns: 99 * MS, source: DeadlineSource::Header });
        assert_eq!(missed(&own, [None; 3]), Some(vec!["total"]));
        assert_eq!(missed(&own, [Some(500), None, None]), Some(vec!["total"]));
    }

    #[test]
    fn estimates_are_never_added_to_what_was_measured() {
        let mut totals = GoodputTotals::default();
        for (basis, outcome) in
            [(Basis::Estimated, Outcome::Ok), (Basis::Reported, Outcome::Ok), (Basis::Reported, Outcome::ServerError)]
        {
            let mut one = exchange(outcome, false);
            one.ledger.work.set(Unit::InputToken, 7, basis);
            let missed = MissedBudget::of(&one, &limits([Some(100), None, None])).unwrap();
            totals.record(&one, missed);
        }
        let mut twice = totals.clone();
        twice.merge(&totals);
        assert_eq!((twice.requests, twice.within, twice.missed), (6, 4, [0, 0, 0, 2, 0]));
        let work: Vec<_> = twice.work().collect();
        assert_eq!(work, [(Unit::InputToken, Basis::Reported, (28, 14)), (Unit::InputToken, Basis::Estimated, (14, 14))]);
        assert!(size_of::<GoodputTotals>() <= 104, "{}", size_of::<GoodputTotals>());
    }
}
