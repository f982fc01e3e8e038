//! The traces that are sampled only for Lapwing: their spans are joined, and never forwarded to the user's collector.
//!
//! A trace that Lapwing started is recognised by its mark. A client's trace that Lapwing sampled by force is remembered in a bounded
//! set.

use std::mem;

use parking_lot::Mutex;
use rustc_hash::FxHashSet;

use crate::ledger::{TraceId, TraceMark};

/// Forced traces that are remembered: at least this many, at most twice as many (4 MiB).
const FORCED: usize = 65_536;

/// Traces that are sampled only for Lapwing.
#[derive(Debug)]
pub struct OwnTraces {
    mark: TraceMark,
    forced: Mutex<Forced>,
    capacity: usize,
}

/// Two generations: when the younger one is full, the older one is forgotten.
#[derive(Debug, Default)]
struct Forced {
    younger: FxHashSet<TraceId>,
    older: FxHashSet<TraceId>,
}

impl OwnTraces {
    /// Recognises the traces that carry `mark`; none is forced yet.
    #[must_use]
    pub fn new(mark: TraceMark) -> Self {
        Self::with_capacity(mark, FORCED)
    }

    fn with_capacity(mark: TraceMark, capacity: usize) -> Self {
        Self { mark, forced: Mutex::default(), capacity }
    }

    /// The mark of the traces that Lapwing starts.
    #[must_use]
    pub const fn mark(&self) -> TraceMark {
        self.mark
    }

    /// Remembers a client's trace that is sampled only because Lapwing forced it. After 65,536 later ones it may be forgotten, and
    /// its spans would then be forwarded. Called on the request path: one short lock, no allocation once warm.
    pub fn force(&self, trace: TraceId) {
        let mut forced = self.forced.lock();
        if forced.younger.len() >= self.capacity {
            // the older set's memory is used again: no allocation
            let Forced { younger, older } = &mut *forced;
            mem::swap(younger, older);
            younger.clear();
        }
        forced.younger.insert(trace);
    }

    /// Whether `trace` is sampled only for Lapwing.
    #[must_use]
    pub fn contains(&self, trace: &TraceId) -> bool {
        self.mark.made(*trace) || {
            let forced = self.forced.lock();
            forced.younger.contains(trace) || forced.older.contains(trace)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marked_and_forced_traces_are_ours_and_no_others() {
        let mark = TraceMark::random();
        let ours = OwnTraces::new(mark);
        let (made, forced, theirs) = (mark.make(), TraceId([7; 16]), TraceId([8; 16]));
        ours.force(forced);
        assert!(ours.contains(&made) && ours.contains(&forced));
        assert!(!ours.contains(&theirs) && !ours.contains(&TraceMark::random().make()));
    }

    #[test]
    fn as_many_as_promised_are_remembered_and_not_more_than_twice_as_many() {
        let ours = OwnTraces::with_capacity(TraceMark::random(), 10);
        let id = |i: u8| TraceId([i; 16]);
        for last in 1..=100 {
            ours.force(id(last));
            assert!((last.saturating_sub(9).max(1)..=last).all(|i| ours.contains(&id(i))), "{last}");
            assert!((1..=last).filter(|i| ours.contains(&id(*i))).count() <= 20);
        }
    }
}
