//! The exchanges merged last, so that a span which comes too late is known as one. Bounded: a ring.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::ledger::{SeriesKey, SpanId, TraceId};

/// How many exchanges are remembered; about 100 bytes each.
const CAPACITY: usize = 4096;

/// A ring of merged exchanges, to be looked up by own span and by trace.
#[derive(Debug, Default)]
pub(super) struct Recent {
    ring: VecDeque<(TraceId, SpanId)>,
    by_span: FxHashMap<SpanId, (TraceId, SeriesKey)>,
    by_trace: FxHashMap<TraceId, u32>,
}

impl Recent {
    /// Remembers an exchange, and forgets the oldest if the ring is full.
    pub(super) fn push(&mut self, trace: TraceId, own: SpanId, series: SeriesKey) {
        if self.ring.len() >= CAPACITY
            && let Some((trace, own)) = self.ring.pop_front()
        {
            self.by_span.remove(&own);
            if let Some(n) = self.by_trace.get_mut(&trace) {
                *n -= 1;
                if *n == 0 {
                    self.by_trace.remove(&trace);
                }
            }
        }
        self.ring.push_back((trace, own));
        self.by_span.insert(own, (trace, series));
        *self.by_trace.entry(trace).or_default() += 1;
    }

    /// The series of the exchange whose own span is `parent`.
    pub(super) fn series(&self, trace: TraceId, parent: SpanId) -> Option<SeriesKey> {
        self.by_span.get(&parent).filter(|(t, _)| *t == trace).map(|(_, series)| *series)
    }

    /// How many exchanges of `trace` are remembered.
    pub(super) fn of_trace(&self, trace: TraceId) -> u32 {
        self.by_trace.get(&trace).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_forgets_the_oldest() {
        let mut recent = Recent::default();
        let own = |n: usize| SpanId(n.to_be_bytes());
        let (first, rest) = (TraceId([1; 16]), TraceId([2; 16]));
        recent.push(first, own(1), SeriesKey::default());
        assert_eq!(recent.series(rest, own(1)), None, "another trace");
        assert!(recent.series(first, own(1)).is_some());
        (0..CAPACITY).for_each(|n| recent.push(rest, own(n + 2), SeriesKey::default()));
        assert_eq!((recent.series(first, own(1)), recent.of_trace(first)), (None, 0));
        assert_eq!(recent.of_trace(rest) as usize, CAPACITY);
        assert_eq!((recent.ring.len(), recent.by_span.len(), recent.by_trace.len()), (CAPACITY, CAPACITY, 1));
    }
}
