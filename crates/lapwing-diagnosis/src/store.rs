//! What is kept of one series: the exchanges of the last five minutes in blocks of time, its timeline, and its time above the budget.

use std::collections::VecDeque;

use super::block::{BLOCK_NS, BLOCKS, Block};
use super::bound::LatencyBound;
use super::host::HostTimeline;
use super::inference::UpstreamWindows;
use super::judgement::SeriesFigures;
use super::observation::Observation;
use super::outcomes::{FailureKind, OutcomeSums, OutcomeTimeline};
use super::part::{Part, PartBounds, Parts, plain_bounds};
use super::random::SeededRandom;
use super::reference::Reference;
use super::report::{RouteDiagnosis, Status};
use super::samples::{Sample, Samples};
use super::timeline::Timeline;
use super::{Cause, MAX_WINDOW_NS};
use lapwing_ledger::{Exchange, ExchangeKind, Outcome, Server, Stamp};
use lapwing_metrics::RouteBudget;

/// How often what requests usually take is measured anew, in nanoseconds.
const REFERENCE_NS: u64 = 10_000_000_000;

/// What was logged of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoggedVerdict {
    /// Its requests fail, most of them so.
    Failing(FailureKind),
    /// They are slow.
    Slow(LatencyBound, Cause),
}

/// One series.
#[derive(Debug)]
pub(crate) struct SeriesStore {
    blocks: VecDeque<Block>,
    outcomes: OutcomeTimeline,
    timeline: Timeline,
    /// The upstream's windows; absent until there is one.
    windows: Option<Box<UpstreamWindows>>,
    budget: RouteBudget,
    /// The budget that the totals are counted against, in nanoseconds.
    limit_ns: u64,
    server: Option<Server>,
    random: SeededRandom,
    reference: Reference,
    reference_at: Stamp,
    /// Seconds above the budget by part that are not counted under a bound yet, and the bounds as the latest diagnosis has them; `None`
    /// before the first one.
    unbound: Parts,
    bounds: Option<PartBounds>,
    /// Seconds above the budget by bound since the start, and all of them.
    pub(crate) bound_seconds: [f64; LatencyBound::ALL.len()],
    pub(crate) excess_seconds: f64,
    /// The latest verdict that was logged, when, and when it was last looked for.
    pub(crate) logged: Option<LoggedVerdict>,
    pub(crate) logged_at: Option<Stamp>,
    pub(crate) examined_at: Stamp,
    pub(crate) last_record: Stamp,
}

impl SeriesStore {
    pub(crate) fn new(budget: RouteBudget, first: Stamp, now: Stamp) -> Self {
        let limits = || budget.limits();
        // the 99th percentile is what most budgets speak of; a stricter one counts more requests than it means to
        let order = [2, 3, 1, 0].into_iter().find_map(|place| limits().find(|(of, _)| *of == place));
        Self {
            blocks: VecDeque::new(),
            outcomes: OutcomeTimeline::default(),
            timeline: Timeline::new(first),
            windows: None,
            budget,
            limit_ns: order.map_or(u64::MAX, |(_, ns)| ns),
            server: None,
            random: SeededRandom::new(first.as_ns()),
            reference: Reference::default(),
            reference_at: Stamp::default(),
            unbound: [0.0; Part::COUNT],
            bounds: None,
            bound_seconds: [0.0; LatencyBound::ALL.len()],
            excess_seconds: 0.0,
            logged: None,
            logged_at: None,
            examined_at: now,
            last_record: now,
        }
    }

    /// Counts how an exchange ended; its time too, if it is a request that was answered. `each` is how many of the slowest and how many
    /// others a block may hold. Latencies are those of requests that ended well: a quick error is no quick answer.
    pub(crate) fn record(&mut self, exchange: &Exchange, each: [usize; 2], now: Stamp) {
        let ledger = &exchange.ledger;
        let (arrived, ended) = (ledger.started.min(now), ledger.started.plus(ledger.total_ns).min(now));
        self.server = ledger.server.or(self.server);
        self.last_record = now;
        let (index, newest) = (ended.as_ns() / BLOCK_NS, now.as_ns() / BLOCK_NS);
        if index + BLOCKS as u64 > newest {
            self.outcomes.record(exchange, index, ended);
        }
        // what a cache answered says nothing of the server
        if ledger.kind != ExchangeKind::Request || !ledger.outcome.is_answered() || !ledger.served_by.is_upstream() {
            return;
        }
        self.timeline.record(arrived, ended);
        if ledger.total_ns > self.limit_ns {
            self.count_excess(&Observation::of(exchange));
        }
        if ledger.window.is_some() {
            self.windows.get_or_insert_default().record(exchange);
        }
        if index + BLOCKS as u64 <= newest || ledger.outcome != Outcome::Ok {
            return;
        }
        let place = self.place(index, now);
        if let Some(block) = self.blocks.get_mut(place) {
            block.over = block.over.saturating_add(u32::from(ledger.total_ns > self.limit_ns));
            block.add(exchange, each, &mut |bound| self.random.below(bound));
        }
    }

    /// The upstream's windows.
    pub(crate) fn windows(&self) -> Option<&UpstreamWindows> {
        self.windows.as_deref()
    }

    /// Where the block of time `index` is, which is opened if it is not there.
    fn place(&mut self, index: u64, now: Stamp) -> usize {
        if self.blocks.back().is_some_and(|latest| latest.index == index) {
            return self.blocks.len() - 1; // as for nearly all
        }
        let place = self.blocks.partition_point(|block| block.index < index);
        if self.blocks.get(place).is_none_or(|block| block.index != index) {
            self.blocks.insert(place, Block::new(index));
            self.expire(now);
        }
        self.blocks.partition_point(|block| block.index < index)
    }

    /// Adds the time above the budget of an exchange that has some to the totals.
    fn count_excess(&mut self, seen: &Observation) {
        let seconds = (seen.total_ns - self.limit_ns) as f64 / 1e9;
        self.excess_seconds += seconds;
        let Some(excess) = self.reference.split(seen, self.limit_ns as f64) else { return };
        let whole: f64 = excess.parts.iter().sum();
        if whole > 0.0 {
            self.unbound.iter_mut().zip(excess.parts).for_each(|(sum, ns)| *sum += seconds * ns / whole);
        }
    }

    /// Counts time above the budget under these bounds, which the latest diagnosis says, from now on.
    pub(crate) fn set_bounds(&mut self, bounds: PartBounds) {
        self.bounds = Some(bounds);
        self.bind();
    }

    /// Counts what waits for it under its bounds. Before the first diagnosis it waits, so that the totals never say what no diagnosis does.
    pub(crate) fn bind(&mut self) {
        let Some(bounds) = &self.bounds else { return };
        for (seconds, bound) in std::mem::take(&mut self.unbound).into_iter().zip(bounds) {
            if let Some(bound) = bound {
                self.bound_seconds[*bound as usize] += seconds;
            }
        }
    }

    /// Drops blocks that no window reaches any more.
    pub(crate) fn expire(&mut self, now: Stamp) {
        let oldest = (now.as_ns() / BLOCK_NS + 1).saturating_sub(BLOCKS as u64);
        while self.blocks.front().is_some_and(|block| block.index < oldest) {
            self.blocks.pop_front();
        }
        self.outcomes.expire(oldest);
    }

    /// How the requests of the last `window_ns` nanoseconds ended.
    pub(crate) fn outcomes(&self, window_ns: u64, now: Stamp) -> OutcomeSums {
        let from = Stamp::default().plus(now.as_ns().saturating_sub(window_ns));
        self.outcomes.sums(from.as_ns() / BLOCK_NS, from)
    }

    /// The server that was recognised.
    pub(crate) const fn server(&self) -> Option<Server> {
        self.server
    }

    /// Forgets windows that no diagnosis reaches any more.
    pub(crate) fn expire_windows(&mut self, now: Stamp) {
        if let Some(windows) = &mut self.windows {
            windows.expire(Stamp::default().plus(now.as_ns().saturating_sub(MAX_WINDOW_NS)));
        }
        self.windows.take_if(|windows| windows.is_empty());
    }

    /// Keeps at most `each` of the slowest and of the others in every block.
    pub(crate) fn shrink(&mut self, each: [usize; 2]) {
        for block in &mut self.blocks {
            block.shrink(each, &mut |bound| self.random.below(bound));
        }
    }

    /// Measures anew what requests usually take, if that is due.
    pub(crate) fn refresh(&mut self, now: Stamp) {
        if self.limit_ns < u64::MAX && now.since(self.reference_at) >= REFERENCE_NS {
            self.reference_at = now;
            let reference = Reference::of(&self.figures(MAX_WINDOW_NS, now, None, false).samples);
            self.reference = reference;
        }
    }

    /// The figures of the last `window_ns` nanoseconds; `host` is the machine's load meanwhile.
    pub(crate) fn figures(&self, window_ns: u64, now: Stamp, host: Option<&HostTimeline>, is_mixed: bool) -> SeriesFigures<'_> {
        let from = Stamp::default().plus(now.as_ns().saturating_sub(window_ns));
        let blocks = self.blocks.iter().filter(|block| block.index >= from.as_ns() / BLOCK_NS);
        let (mut list, mut loads, mut count, mut requests, mut not_kept) = (Vec::new(), Vec::new(), 0, 0, 0);
        for block in blocks {
            list.extend(block.slowest().iter().map(|seen| Sample { seen, weight: 1.0, block: count }));
            list.extend(block.sample().iter().map(|seen| Sample { seen, weight: block.weight(), block: count }));
            requests += block.count();
            not_kept += block.over_not_kept(self.limit_ns);
            loads.push(host.and_then(|host| host.of(block.index)));
            count += 1;
        }
        SeriesFigures {
            samples: Samples::new(list, count),
            requests,
            outcomes: self.outcomes(window_ns, now),
            timeline: &self.timeline,
            from,
            now,
            loads,
            budget: self.budget,
            server: self.server,
            not_kept,
            is_mixed,
        }
    }

    /// Whether nothing of it is left in any window.
    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.outcomes.is_empty()
    }

    /// Whether a diagnosis differs from what was logged last, so that it is to be logged; if so, it is taken as logged.
    pub(crate) fn takes_for_log(&mut self, said: &RouteDiagnosis, now: Stamp, least_ns: u64) -> bool {
        let first = said.verdicts.first().map(|verdict| LoggedVerdict::Slow(verdict.bound, verdict.cause));
        let failing = said.outcomes.failures.first().map(|failure| LoggedVerdict::Failing(failure.kind));
        let verdict = match (said.status, first) {
            (Status::Failing, _) => failing,
            (Status::OverBudget | Status::SlowTail, Some(first)) => Some(first),
            (Status::Healthy, _) => None,
            // no verdict is no change, unless nothing fails any more
            (Status::NotEnoughEvidence, _)
                if matches!(self.logged, Some(LoggedVerdict::Failing(_))) && said.outcomes.well > 0 =>
            {
                None
            }
            _ => return false,
        };
        let is_early = self.logged_at.is_some_and(|at| now.since(at) < least_ns);
        if verdict == self.logged || is_early {
            return false;
        }
        (self.logged, self.logged_at) = (verdict, Some(now));
        true
    }

    /// Its budget.
    pub(crate) const fn budget(&self) -> RouteBudget {
        self.budget
    }

    /// Whether there is a budget that totals are counted against.
    pub(crate) const fn has_budget(&self) -> bool {
        self.limit_ns < u64::MAX
    }

    /// Adds the totals of a series that is given up.
    pub(crate) fn inherit(&mut self, gone: &Self) {
        self.excess_seconds += gone.excess_seconds;
        let bounds = gone.bounds.unwrap_or_else(plain_bounds);
        for (seconds, bound) in gone.unbound.iter().zip(bounds) {
            if let Some(bound) = bound {
                self.bound_seconds[bound as usize] += seconds;
            }
        }
        self.bound_seconds.iter_mut().zip(gone.bound_seconds).for_each(|(sum, seconds)| *sum += seconds);
    }

    /// How many records it has room for.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.blocks.iter().map(Block::capacity).sum()
    }
}
