//! What runs at each upstream, as far as it was sent from here.

use std::cmp::Ordering;
use std::collections::VecDeque;

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RunId(pub(crate) u64);

#[derive(Clone, Copy, Debug)]
struct Run {
    id: RunId,
    predicted_ns: u64,
    /// Since when the server works on it, if its slots are taken in order; `None` while it waits there.
    began: Option<Stamp>,
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
    runs: VecDeque<Run>,
}

impl Upstream {
    pub(crate) const fn new() -> Self {
        Self { slots: None, speed: 1.0, runs: VecDeque::new() }
    }

    /// How many requests are there.
    pub(crate) fn running(&self) -> usize {
        self.runs.len()
    }

    /// What it takes now.
    pub(crate) fn room(&self) -> Room {
        let Some(slots) = self.slots else { return Room::Idle };
        match self.runs.len().cmp(&(slots as usize)) {
            Ordering::Less => Room::Idle,
            Ordering::Equal => Room::Next,
            Ordering::Greater => Room::None,
        }
    }

    fn slots_or_all(&self) -> usize {
        self.slots.map_or(usize::MAX, |slots| slots.max(1) as usize)
    }

    pub(crate) fn begin(&mut self, id: RunId, predicted_ns: u64, now: Stamp) {
        let began = (self.runs.len() < self.slots_or_all()).then_some(now);
        self.runs.push_back(Run { id, predicted_ns, began });
    }

    /// Returns whether it ran here.
    pub(crate) fn end(&mut self, id: RunId, now: Stamp) -> bool {
        let Some(at) = self.runs.iter().position(|run| run.id == id) else { return false };
        self.runs.remove(at);
        let slots = self.slots_or_all();
        for run in self.runs.iter_mut().take(slots) {
            run.began.get_or_insert(now);
        }
        true
    }

    /// What is left of the work that is there, in nanoseconds of one slot.
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "times below years")]
    pub(crate) fn rest_ns(&self, now: Stamp) -> u64 {
        let of = |run: &Run| {
            let whole = run.predicted_ns as f64 / self.speed.max(1e-3);
            run.began.map_or(whole, |began| (whole - now.since(began) as f64).max(0.0))
        };
        self.runs.iter().map(of).sum::<f64>() as u64
    }
}
