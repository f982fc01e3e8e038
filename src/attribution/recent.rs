//! The exchanges merged last, so that a late span is recognised as late. Fixed in size: sets of four places, each of which drops
//! its oldest entry. So it costs next to nothing per exchange, and forgets a few exchanges early.

use std::hash::{BuildHasher, Hash};

use rustc_hash::FxBuildHasher;

use crate::ledger::{SeriesKey, SpanId, TraceId};

/// How many exchanges and how many traces are remembered; about 70 bytes for each pair.
const CAPACITY: usize = 4096;
const WAYS: usize = 4;

/// Merged exchanges by their own span, and the number of exchanges by trace.
#[derive(Debug)]
pub(super) struct Recent {
    exchanges: Places<(TraceId, SpanId), SeriesKey>,
    traces: Places<TraceId, u32>,
}

impl Default for Recent {
    fn default() -> Self {
        Self { exchanges: Places::new(), traces: Places::new() }
    }
}

impl Recent {
    /// Remembers an exchange.
    pub(super) fn push(&mut self, trace: TraceId, own: SpanId, series: SeriesKey) {
        self.exchanges.put((trace, own), |_| series);
        self.traces.put(trace, |n| n.saturating_add(1));
    }

    /// The series of the exchange whose own span is `parent`.
    pub(super) fn series(&self, trace: TraceId, parent: SpanId) -> Option<SeriesKey> {
        self.exchanges.get((trace, parent))
    }

    /// How many exchanges of `trace` were merged, as far as they are remembered.
    pub(super) fn of_trace(&self, trace: TraceId) -> u32 {
        self.traces.get(trace).unwrap_or(0)
    }
}

#[derive(Debug)]
struct Places<K, V> {
    places: Vec<Place<K, V>>,
    puts: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Place<K, V> {
    key: K,
    value: V,
    /// The sequence number of the entry, from 1; zero in an empty place.
    put: u32,
}

impl<K: Copy + Default + Eq + Hash, V: Copy + Default> Places<K, V> {
    fn new() -> Self {
        Self { places: vec![Place::default(); CAPACITY], puts: 0 }
    }

    fn first(key: K) -> usize {
        let sets = (CAPACITY / WAYS) as u64;
        usize::try_from(FxBuildHasher.hash_one(key) % sets).unwrap_or(0) * WAYS
    }

    fn get(&self, key: K) -> Option<V> {
        let first = Self::first(key);
        self.places[first..first + WAYS].iter().find(|p| p.put > 0 && p.key == key).map(|p| p.value)
    }

    /// Stores the result of applying `value` to the current entry (to the default if there is none).
    fn put(&mut self, key: K, value: impl FnOnce(V) -> V) {
        self.puts = self.puts.wrapping_add(1).max(1);
        let puts = self.puts;
        let first = Self::first(key);
        let set = &mut self.places[first..first + WAYS];
        // the key's own place; else an empty one, which counts as oldest; else the oldest
        let age = |p: &Place<K, V>| if p.put == 0 { u32::MAX } else { puts.wrapping_sub(p.put) };
        let Some(place) = set.iter_mut().max_by_key(|p| (p.put > 0 && p.key == key, age(p))) else { return };
        let was = if place.put > 0 && place.key == key { place.value } else { V::default() };
        *place = Place { key, value: value(was), put: puts };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_are_known_and_the_oldest_give_way() {
        let mut recent = Recent::default();
        let own = |n: usize| SpanId(n.to_be_bytes());
        let (first, rest) = (TraceId([1; 16]), TraceId([2; 16]));
        recent.push(first, own(1), SeriesKey::default());
        assert_eq!(recent.series(rest, own(1)), None, "another trace");
        assert_eq!((recent.series(first, own(1)).is_some(), recent.of_trace(first)), (true, 1));
        let n = 20 * CAPACITY;
        (0..n).for_each(|n| recent.push(rest, own(n + 2), SeriesKey::default()));
        assert_eq!((recent.series(first, own(1)), recent.of_trace(rest) as usize), (None, n));
        let known = |range: std::ops::Range<usize>| range.filter(|n| recent.series(rest, own(n + 2)).is_some()).count();
        assert_eq!(known(0..n), CAPACITY, "full");
        assert!(known(n - CAPACITY / 4..n) > CAPACITY / 4 * 95 / 100, "of the newest, few are forgotten");
        assert_eq!((recent.exchanges.places.capacity(), recent.traces.places.capacity()), (CAPACITY, CAPACITY));
    }
}
