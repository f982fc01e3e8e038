//! What runs at each upstream, as far as it was sent from here.

use std::cmp::Ordering;
use std::collections::VecDeque;

use crate::service::Prediction;
use lapwing_ledger::Stamp;

/// Some of at most 16 upstreams, by their places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UpstreamSet(u16);

impl UpstreamSet {
    /// The first `count` upstreams.
    #[must_use]
    pub fn first(count: usize) -> Self {
        (0..count).collect()
    }

    /// Whether the upstream at this place is one of them.
    #[must_use]
    pub const fn contains(self, at: usize) -> bool {
        at < 16 && self.0 >> at & 1 == 1
    }

    /// Those that are not in `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Those of both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// How many there are.
    #[must_use]
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Their places, in order.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..16).filter(move |at| self.contains(*at))
    }
}

impl FromIterator<usize> for UpstreamSet {
    fn from_iter<I: IntoIterator<Item = usize>>(places: I) -> Self {
        Self(places.into_iter().filter(|at| *at < 16).fold(0, |set, at| set | 1 << at))
    }
}

/// A request that was sent to an upstream and has not ended there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(pub(crate) u64);

impl RunId {
    /// Of a request that nobody counts.
    pub(crate) const NONE: Self = Self(0);
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    id: RunId,
    /// What it takes an upstream of mean speed, if that is known.
    pub(crate) predicted: Option<Prediction>,
    /// Since when the server works on it, if its slots are taken in order; `None` while it waits there.
    pub(crate) began: Option<Stamp>,
}

/// What an upstream takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// A request that it works on at once.
    Idle,
    /// One to go on with when the first ends, so that it need not wait for it.
    Next,
    /// Nothing.
    None,
}

/// One upstream.
#[derive(Debug)]
pub(crate) struct Upstream {
    /// How many requests it works on at once; `None`: as many as come.
    pub(crate) slots: Option<u32>,
    pub(crate) speed: f64,
    /// How many more it is sent for now, to see how it takes them.
    pub(crate) more: usize,
    runs: VecDeque<Run>,
    /// When a request last ended.
    ended: Stamp,
    failures: u32,
    /// When one last failed, since the last answer.
    failed: Option<Stamp>,
    /// Until when it is sent nothing that can go elsewhere.
    ejected: Option<Stamp>,
    /// How often in a row.
    times: u32,
    /// Since it was, it is sent so many at once: one more with each answer, until that are all its slots.
    regained: Option<u32>,
}

/// How a request ended at its upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// The upstream answered, if only that the request is wrong.
    Answered,
    /// It failed: 5xx, no connection, a broken answer, or none in time.
    Failed,
    /// The client left, or it was not sent: that says nothing of the upstream.
    Left,
}

/// So many failures in a row eject an upstream (Envoy's `consecutive_5xx`).
const EJECT_AFTER: u32 = 5;
/// For how long, the first time; further ones in a row as many times as long, up to [`MOST_TIMES`].
const EJECT_NS: u64 = 5_000_000_000;
const MOST_TIMES: u32 = 6;
/// For so long after a failure others are preferred: until then it shows whether the upstream has gone.
const DOUBT_NS: u64 = 100_000_000;

impl Upstream {
    pub(crate) fn new() -> Self {
        Self {
            slots: None,
            speed: 1.0,
            more: 0,
            runs: VecDeque::new(),
            ended: Stamp::default(),
            failures: 0,
            failed: None,
            ejected: None,
            times: 0,
            regained: None,
        }
    }

    /// Nothing is there, and nothing known of it.
    pub(crate) fn forget(&mut self) {
        *self = Self::new();
    }

    /// How many requests are there.
    pub(crate) fn running(&self) -> usize {
        self.runs.len()
    }

    /// What it takes now.
    pub(crate) fn room(&self) -> Room {
        let Some(window) = self.window() else { return Room::Idle };
        let (more, may_go_on) = if self.regained.is_some() { (0, false) } else { (self.more, true) };
        match self.runs.len().cmp(&(window as usize + more)) {
            Ordering::Less => Room::Idle,
            Ordering::Equal if may_go_on => Room::Next,
            _ => Room::None,
        }
    }

    /// How many it is sent at once: its slots, or fewer after it was ejected. `None`: as many as come.
    pub(crate) fn window(&self) -> Option<u32> {
        let slots = self.slots?;
        Some(self.regained.map_or(slots, |regained| regained.min(slots)))
    }

    fn slots_or_all(&self) -> usize {
        self.slots.map_or(usize::MAX, |slots| slots.max(1) as usize)
    }

    pub(crate) fn begin(&mut self, id: RunId, predicted: Option<Prediction>, now: Stamp) {
        let began = (self.runs.len() < self.slots_or_all()).then_some(now);
        self.runs.push_back(Run { id, predicted, began });
    }

    /// Whether nothing has ended since the oldest request took longer than 99 of 100 do.
    pub(crate) fn is_stalled(&self, now: Stamp) -> bool {
        let limit = |run: &Run| {
            let predicted = run.predicted?;
            Some(run.began?.plus(self.takes(predicted.service_ns + predicted.q99_more_ns)))
        };
        let oldest = self.runs.front().and_then(limit);
        oldest.is_some_and(|limit| now > limit && self.ended < limit)
    }

    /// Whether a request has just failed there: it may be leaving, and nobody knows yet.
    pub(crate) fn is_doubtful(&self, now: Stamp) -> bool {
        self.failed.is_some_and(|failed| now.since(failed) < DOUBT_NS)
    }

    /// Whether it is sent nothing for now that can go elsewhere.
    pub(crate) fn is_ejected(&self, now: Stamp) -> bool {
        self.ejected.is_some_and(|until| now < until)
    }

    /// Notes how a request ended. Returns whether it ejected the upstream, which it may do if `may_eject`.
    pub(crate) fn judge(&mut self, how: RunEnd, may_eject: bool, now: Stamp) -> bool {
        match how {
            RunEnd::Left => return false,
            RunEnd::Answered => {
                (self.failures, self.failed, self.ejected, self.times) = (0, None, None, 0);
                self.regained =
                    self.regained.map(|window| window + 1).filter(|window| self.slots.is_some_and(|slots| *window < slots));
                return false;
            }
            RunEnd::Failed => (self.failures, self.failed) = (self.failures.saturating_add(1), Some(now)),
        }
        // the first that it is sent again may fail too
        if (self.failures < EJECT_AFTER && self.ejected.is_none()) || !may_eject || self.is_ejected(now) {
            return false;
        }
        self.times = (self.times + 1).min(MOST_TIMES);
        self.ejected = Some(now.plus(EJECT_NS * u64::from(self.times)));
        (self.failures, self.regained) = (0, Some(1));
        true
    }

    /// What it takes here, in nanoseconds, what takes an upstream of mean speed so long.
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "times below years")]
    pub(crate) fn takes(&self, ns: u64) -> u64 {
        (ns as f64 / self.speed.max(1e-3)) as u64
    }

    /// A request that is here.
    pub(crate) fn run(&self, id: RunId) -> Option<Run> {
        self.runs.iter().find(|run| run.id == id).copied()
    }

    /// Returns whether it ran here.
    pub(crate) fn end(&mut self, id: RunId, now: Stamp) -> bool {
        self.take(id, now).is_some()
    }

    /// Takes it away, if it ran here, with what it takes, if that is known.
    pub(crate) fn take(&mut self, id: RunId, now: Stamp) -> Option<Option<Prediction>> {
        let at = self.runs.iter().position(|run| run.id == id)?;
        let run = self.runs.remove(at)?;
        self.ended = now;
        let slots = self.slots_or_all();
        for run in self.runs.iter_mut().take(slots) {
            run.began.get_or_insert(now);
        }
        Some(run.predicted)
    }

    /// What is left of the work that is there, in nanoseconds of one slot.
    pub(crate) fn rest_ns(&self, now: Stamp) -> u64 {
        let of = |run: &Run| {
            let whole = run.predicted.map_or(0, |predicted| self.takes(predicted.service_ns));
            run.began.map_or(whole, |began| whole.saturating_sub(now.since(began)))
        };
        self.runs.iter().map(of).sum()
    }
}
