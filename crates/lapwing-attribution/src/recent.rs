//! The exchanges merged last, so that a late span is recognised as late. Fixed in size: sets of four places, each of which drops
//! its oldest entry, so that it forgets a few exchanges early. Exchanges wait in a list until the first query, because places are
//! scattered in memory, and without spans there is never a query.

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hash};

use rustc_hash::FxBuildHasher;

use lapwing_ledger::{SeriesKey, SpanId, TraceId};

/// How many exchanges and how many traces are remembered: about 70 bytes for each pair, and 36 for each since the last query.
const CAPACITY: usize = 4096;
const WAYS: usize = 4;

/// Merged exchanges by their own span, and the number of exchanges by trace.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    /// Those merged since the last query, except the oldest of more than [`CAPACITY`].
    unasked: VecDeque<(TraceId, SpanId, SeriesKey)>,
    exchanges: Places<(TraceId, SpanId), SeriesKey>,
    traces: Places<TraceId, u32>,
}

impl Recent {
    /// Remembers an exchange.
    pub(crate) fn push(&mut self, trace: TraceId, own: SpanId, series: SeriesKey) {
        if self.unasked.len() == CAPACITY {
            self.unasked.pop_front();
        }
        self.unasked.push_back((trace, own, series));
    }

    /// The series of the exchange whose own span is `parent`.
    pub(crate) fn series(&mut self, trace: TraceId, parent: SpanId) -> Option<SeriesKey> {
        self.place();
        self.exchanges.get((trace, parent))
    }

    /// How many exchanges of `trace` were merged, as far as they are remembered.
    pub(crate) fn of_trace(&mut self, trace: TraceId) -> u32 {
        self.place();
        self.traces.get(trace).unwrap_or(0)
    }

    fn place(&mut self) {
        for (trace, own, series) in self.unasked.drain(..) {
            self.exchanges.put((trace, own), |_| series);
            self.traces.put(trace, |n| n.saturating_add(1));
        }
    }
}

#[derive(Debug)]
struct Places<K, V> {
    /// None before the first entry.
    places: Vec<Place<K, V>>,
    puts: u32,
}

impl<K, V> Default for Places<K, V> {
    fn default() -> Self {
        Self { places: Vec::new(), puts: 0 }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Place<K, V> {
    key: K,
    value: V,
    /// The sequence number of the entry, from 1; zero in an empty place.
    put: u32,
}

impl<K: Copy + Default + Eq + Hash, V: Copy + Default> Places<K, V> {
    fn first(key: K) -> usize {
        let sets = (CAPACITY / WAYS) as u64;
        usize::try_from(FxBuildHasher.hash_one(key) % sets).unwrap_or(0) * WAYS
    }

    fn get(&self, key: K) -> Option<V> {
        let first = Self::first(key);
        self.places.get(first..first + WAYS)?.iter().find(|p| p.put > 0 && p.key == key).map(|p| p.value)
    }

    /// Stores the result of applying `value` to the current entry (to the default if there is none).
    fn put(&mut self, key: K, value: impl FnOnce(V) -> V) {
        self.places.resize(CAPACITY, Place::default());
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
        for n in 0..n {
            recent.push(rest, own(n + 2), SeriesKey::default());
            if n % 1000 == 0 {
                recent.place();
            }
        }
        assert_eq!((recent.series(first, own(1)), recent.of_trace(rest) as usize), (None, n));
        let mut known = |range: std::ops::Range<usize>| range.filter(|n| recent.series(rest, own(n + 2)).is_some()).count();
        assert_eq!(known(0..n), CAPACITY, "full");
        assert!(known(n - CAPACITY / 4..n) > CAPACITY / 4 * 95 / 100, "of the newest, few are forgotten");
        assert_eq!((recent.exchanges.places.capacity(), recent.traces.places.capacity()), (CAPACITY, CAPACITY));
    }

    #[test]
    fn if_nobody_asks_the_last_wait_in_a_list_of_fixed_size() {
        let mut recent = Recent::default();
        let own = |n: usize| SpanId(n.to_be_bytes());
        let trace = |n: usize| TraceId([own(n).0, [1; 8]].concat().try_into().unwrap());
        (1..=3 * CAPACITY).for_each(|n| recent.push(trace(n), own(n), SeriesKey::default()));
        assert_eq!((recent.unasked.len(), recent.exchanges.places.len(), recent.traces.places.len()), (CAPACITY, 0, 0));
        let last = 3 * CAPACITY;
        assert_eq!((recent.of_trace(trace(last)), recent.of_trace(trace(1))), (1, 0));
        assert!(recent.series(trace(last), own(last)).is_some() && recent.series(trace(last - 1), own(last)).is_none());
        assert_eq!(recent.unasked.len(), 0);
    }
}
