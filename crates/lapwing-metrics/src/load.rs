//! The load of the last seconds, summed over all series when their windows advance, and kept where the request path can read it without a
//! lock: for load reports. Nothing here is an estimate: what is not known is `None`.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::figures::SeriesTotals;
use super::measure::Measure;
use lapwing_ledger::{Outcome, Stage, Stamp};

/// Over how many slots of time (of 2 s) a load is.
const SLOTS: usize = 5;
/// For how long the number of slots counts as known, in nanoseconds.
const SLOTS_KEPT_NS: u64 = 60_000_000_000;
/// The bits of a number that is not known.
const UNKNOWN: u64 = u64::MAX;

/// What an endpoint carries.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EndpointLoad {
    /// Requests and streams that ended, per second.
    pub requests_per_s: f64,
    /// Those of them that failed and were not their client's fault, per second.
    pub failures_per_s: f64,
    /// The mean time in the queue of the answered requests that had one, in nanoseconds.
    pub queue_ns: Option<f64>,
}

/// What the series counted in one slot of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SlotLoad {
    requests: u64,
    failures: u64,
    queued: u64,
    queue_ns: u64,
}

impl SlotLoad {
    /// Adds what one series counted.
    pub(crate) fn add(&mut self, totals: &SeriesTotals) {
        let queue = totals.extent(Measure::Stage(Stage::Queue));
        self.requests += totals.count();
        self.failures += Outcome::ALL.into_iter().filter(|of| is_failure(*of)).map(|of| totals.outcomes[of.index()]).sum::<u64>();
        self.queued += queue.count;
        self.queue_ns = self.queue_ns.saturating_add(queue.sum_ns);
    }

    const fn plus(self, other: Self) -> Self {
        Self {
            requests: self.requests + other.requests,
            failures: self.failures + other.failures,
            queued: self.queued + other.queued,
            queue_ns: self.queue_ns.saturating_add(other.queue_ns),
        }
    }
}

/// Whether a request failed, and not by its client's fault.
const fn is_failure(outcome: Outcome) -> bool {
    outcome.is_error() && !matches!(outcome, Outcome::ClientError | Outcome::Rejected)
}

/// The latest slots of time.
#[derive(Debug)]
pub(crate) struct LoadWindow {
    /// When each began, the oldest first.
    slots: VecDeque<(Stamp, SlotLoad)>,
    /// When the last one ended.
    ended: Stamp,
}

impl LoadWindow {
    /// A window that begins at `opened`.
    pub(crate) fn new(opened: Stamp) -> Self {
        Self { slots: VecDeque::with_capacity(SLOTS), ended: opened }
    }

    /// Adds a slot that ends at `now`.
    pub(crate) fn push(&mut self, slot: SlotLoad, now: Stamp) {
        if self.slots.len() >= SLOTS {
            self.slots.pop_front();
        }
        self.slots.push_back((std::mem::replace(&mut self.ended, now), slot));
    }

    /// The load over all slots; `None` before the first has ended.
    #[allow(clippy::cast_precision_loss, reason = "a rate")]
    pub(crate) fn load(&self) -> Option<EndpointLoad> {
        let covered_ns = self.ended.since(self.slots.front()?.0);
        let sum = self.slots.iter().fold(SlotLoad::default(), |sum, (_, slot)| sum.plus(*slot));
        let per_s = |count: u64| count as f64 / covered_ns as f64 * 1e9;
        (covered_ns > 0).then(|| EndpointLoad {
            requests_per_s: per_s(sum.requests),
            failures_per_s: per_s(sum.failures),
            queue_ns: (sum.queued > 0).then(|| sum.queue_ns as f64 / sum.queued as f64),
        })
    }
}

/// The latest load, for threads that may not wait. One thread writes it; a reader may see one number before another.
#[derive(Debug)]
pub struct LatestLoad {
    requests_per_s: AtomicU64,
    failures_per_s: AtomicU64,
    queue_ns: AtomicU64,
    /// How many requests the upstream works on at once, zero if that is not known; and when it was found.
    slots: AtomicU64,
    slots_found: AtomicU64,
}

impl Default for LatestLoad {
    fn default() -> Self {
        let unknown = || AtomicU64::new(UNKNOWN);
        Self {
            requests_per_s: unknown(),
            failures_per_s: unknown(),
            queue_ns: unknown(),
            slots: AtomicU64::new(0),
            slots_found: AtomicU64::new(0),
        }
    }
}

impl LatestLoad {
    /// Replaces it.
    pub fn set(&self, load: EndpointLoad) {
        self.failures_per_s.store(load.failures_per_s.to_bits(), Relaxed);
        self.queue_ns.store(load.queue_ns.map_or(UNKNOWN, f64::to_bits), Relaxed);
        self.requests_per_s.store(load.requests_per_s.to_bits(), Relaxed);
    }

    /// Notes how many requests the upstream was found to work on at once; `None` if that is not known.
    pub fn set_slots(&self, slots: Option<u32>, now: Stamp) {
        self.slots_found.store(now.as_ns(), Relaxed);
        self.slots.store(slots.unwrap_or(0).into(), Relaxed);
    }

    /// How many requests the upstream works on at once, if that was found in the last minute.
    #[must_use]
    pub fn slots(&self, now: Stamp) -> Option<u32> {
        let slots = u32::try_from(self.slots.load(Relaxed)).ok().filter(|slots| *slots > 0)?;
        let found = Stamp::from_ns(self.slots_found.load(Relaxed))?;
        (now.since(found) <= SLOTS_KEPT_NS).then_some(slots)
    }

    /// Reads it; `None` before there is one.
    #[must_use]
    pub fn get(&self) -> Option<EndpointLoad> {
        let read = |of: &AtomicU64| Some(of.load(Relaxed)).filter(|bits| *bits != UNKNOWN).map(f64::from_bits);
        let (requests_per_s, failures_per_s) = (read(&self.requests_per_s)?, read(&self.failures_per_s)?);
        Some(EndpointLoad { requests_per_s, failures_per_s, queue_ns: read(&self.queue_ns) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_of_the_last_slots() {
        let at = |s: u64| Stamp::default().plus(s * 1_000_000_000);
        let mut window = LoadWindow::new(at(0));
        assert_eq!(window.load(), None);
        let slot = |requests, failures| SlotLoad { requests, failures, ..SlotLoad::default() };
        window.push(SlotLoad { queued: 4, queue_ns: 10, ..slot(10, 1) }, at(2));
        assert_eq!(window.load(), Some(EndpointLoad { requests_per_s: 5.0, failures_per_s: 0.5, queue_ns: Some(2.5) }));
        (2..=6).for_each(|n| window.push(slot(20, 0), at(n * 2)));
        assert_eq!(window.load(), Some(EndpointLoad { requests_per_s: 10.0, failures_per_s: 0.0, queue_ns: None }));
        (7..=11).for_each(|n| window.push(SlotLoad::default(), at(n * 2)));
        assert_eq!(window.load().map(|load| load.requests_per_s), Some(0.0), "idle is known too");
    }

    #[test]
    fn what_is_not_known_stays_so() {
        let latest = LatestLoad::default();
        assert_eq!(latest.get(), None);
        let load = EndpointLoad { requests_per_s: 2.0, failures_per_s: 0.0, queue_ns: None };
        latest.set(load);
        assert_eq!(latest.get(), Some(load));
        let at = |s: u64| Stamp::default().plus(1 + s * 1_000_000_000);
        assert_eq!(latest.slots(at(1)), None);
        latest.set_slots(Some(4), at(1));
        assert_eq!((latest.slots(at(61)), latest.slots(at(62))), (Some(4), None));
        latest.set_slots(None, at(62));
        assert_eq!(latest.slots(at(62)), None);
    }

    #[test]
    fn failures_are_not_the_clients() {
        let failed: Vec<&str> = Outcome::ALL.into_iter().filter(|of| is_failure(*of)).map(Outcome::name).collect();
        assert_eq!(failed, ["server_error", "body_error", "shed", "unreachable", "broken", "timed_out"]);
    }
}
