//! A bounded cache of rows in front of the demo's feature table, with its hit rate.
//!
//! It is empty at the start, so hydration is slow at first and becomes fast while the demo runs. Memory: at most `capacity` texts of
//! about 250 bytes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use super::table::{FeatureTable, LookupError};

/// Lookups of the cache since the start.
#[derive(Debug, Default)]
pub(crate) struct CacheCounts {
    hits: AtomicU64,
    lookups: AtomicU64,
}

/// [`CacheCounts`] at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CacheReading {
    /// Rows found in the cache.
    pub(crate) hits: u64,
    /// Rows looked up.
    pub(crate) lookups: u64,
}

impl CacheCounts {
    /// The counts so far.
    pub(crate) fn read(&self) -> CacheReading {
        // hits first, so that they never exceed the lookups read after them
        let hits = self.hits.load(Ordering::Acquire);
        CacheReading { hits, lookups: self.lookups.load(Ordering::Acquire) }
    }

    fn add(&self, hits: usize, lookups: usize) {
        self.lookups.fetch_add(lookups as u64, Ordering::Release);
        self.hits.fetch_add(hits as u64, Ordering::Release);
    }
}

impl CacheReading {
    /// The share of lookups since `earlier` that the cache answered, `0.0..=1.0`; `None` if there was no lookup.
    pub(crate) fn hit_rate_since(self, earlier: Self) -> Option<f64> {
        let lookups = self.lookups.saturating_sub(earlier.lookups);
        let hits = self.hits.saturating_sub(earlier.hits);
        (lookups > 0).then(|| hits as f64 / lookups as f64)
    }
}

/// A feature table with a cache of rows in front.
#[derive(Debug)]
pub(crate) struct CachedFeatures {
    table: FeatureTable,
    capacity: usize,
    cache: Mutex<Rows>,
    counts: Arc<CacheCounts>,
}

#[derive(Debug, Default)]
struct Rows {
    by_id: FxHashMap<i64, Arc<str>>,
    oldest_first: VecDeque<i64>,
}

impl CachedFeatures {
    /// An empty cache of at most `capacity` rows in front of `table`.
    pub(crate) fn new(table: FeatureTable, capacity: usize) -> Self {
        Self { table, capacity: capacity.max(1), cache: Mutex::default(), counts: Arc::default() }
    }

    /// The counts of the cache.
    pub(crate) const fn counts(&self) -> &Arc<CacheCounts> {
        &self.counts
    }

    /// The texts of these tickets, in this order, and how many of them the cache had. Misses read the table one by one.
    ///
    /// # Errors
    ///
    /// [`LookupError`] for the first ticket that cannot be read; nothing is counted then.
    pub(crate) fn hydrate(&self, ids: &[i64]) -> Result<(Vec<Arc<str>>, usize), LookupError> {
        let mut hits = 0;
        let mut texts = Vec::with_capacity(ids.len());
        for id in ids {
            let cached = self.cache.lock().by_id.get(id).cloned();
            hits += usize::from(cached.is_some());
            texts.push(match cached {
                Some(text) => text,
                None => self.fetch(*id)?,
            });
        }
        self.counts.add(hits, ids.len());
        Ok((texts, hits))
    }

    /// Forgets every row.
    pub(crate) fn clear(&self) {
        *self.cache.lock() = Rows::default();
    }

    /// Forgets these rows.
    pub(crate) fn forget(&self, ids: &[i64]) {
        let mut cache = self.cache.lock();
        let rows = &mut *cache;
        for id in ids {
            if rows.by_id.remove(id).is_some() {
                rows.oldest_first.retain(|known| known != id);
            }
        }
    }

    /// Reads a row from the table and keeps it. The lock is not held while the page is unpacked.
    fn fetch(&self, id: i64) -> Result<Arc<str>, LookupError> {
        let text: Arc<str> = self.table.read(id)?.into();
        let mut cache = self.cache.lock();
        let rows = &mut *cache;
        if rows.by_id.insert(id, Arc::clone(&text)).is_none() {
            rows.oldest_first.push_back(id);
            if rows.oldest_first.len() > self.capacity
                && let Some(oldest) = rows.oldest_first.pop_front()
            {
                rows.by_id.remove(&oldest);
            }
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::super::corpus::tickets;
    use super::super::table::id;
    use super::*;

    fn features(rows: usize, capacity: usize) -> CachedFeatures {
        CachedFeatures::new(FeatureTable::pack(&tickets(1, rows)).unwrap(), capacity)
    }

    #[test]
    fn a_second_lookup_is_a_hit_and_gives_the_same_text() {
        let features = features(20, 10);
        let ids = [id(3), id(9)];
        let (first, hits) = features.hydrate(&ids).unwrap();
        assert_eq!((hits, first.len()), (0, 2));
        let before = features.counts().read();
        assert_eq!(features.hydrate(&ids).unwrap(), (first, 2));
        let reading = features.counts().read();
        assert_eq!(reading, CacheReading { hits: 2, lookups: 4 });
        assert_eq!(reading.hit_rate_since(before), Some(1.0));
        assert_eq!(reading.hit_rate_since(CacheReading::default()), Some(0.5));
        assert_eq!(reading.hit_rate_since(reading), None);
    }

    #[test]
    fn the_cache_stays_bounded_and_the_oldest_goes_first() {
        let features = features(30, 10);
        let ids: Vec<i64> = (0..30).map(id).collect();
        features.hydrate(&ids).unwrap();
        {
            let cache = features.cache.lock();
            assert_eq!((cache.by_id.len(), cache.oldest_first.len()), (10, 10));
        }
        assert_eq!(features.hydrate(&ids[20..]).unwrap().1, 10);
        assert_eq!(features.hydrate(&ids[..1]).unwrap().1, 0);
    }

    #[test]
    fn what_is_forgotten_is_a_miss_once() {
        let features = features(10, 10);
        let ids: Vec<i64> = (0..4).map(id).collect();
        features.hydrate(&ids).unwrap();
        features.forget(&[id(1), id(3), id(9)]);
        assert_eq!(features.hydrate(&ids).unwrap().1, 2);
        assert_eq!(features.hydrate(&ids).unwrap().1, 4);
        assert_eq!(features.cache.lock().oldest_first.len(), 4);
        features.clear();
        assert_eq!(features.hydrate(&ids).unwrap().1, 0);
    }

    #[test]
    fn an_unknown_ticket_is_named_and_nothing_is_counted() {
        let features = features(3, 3);
        assert_eq!(features.hydrate(&[id(0), -5]).unwrap_err(), LookupError::Unknown(-5));
        assert_eq!(features.counts().read(), CacheReading::default());
    }
}
