//! The demo's feature store: encoded rows by entity id, and a small cache of decoded ones in front.
//!
//! It stands for the store that a real handler asks over the network, so a miss does real work (it decodes the row) and a
//! hit copies 64 floats. Memory is bounded: the store is the embedded table, the cache holds [`CACHED_ROWS`] rows.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::data::{Row, WIDTH, parse_pixels};

/// How many decoded rows the cache holds: a third of the table, so that hits and misses both happen.
pub(super) const CACHED_ROWS: usize = 120;

/// A lookup that failed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum LookupError {
    /// There is no such entity.
    #[error("entity_ids: {0} is not in the feature table")]
    Unknown(i64),
    /// The stored row is not 64 numbers.
    #[error("entity_ids: the stored features of {0} are unreadable")]
    Unreadable(i64),
}

/// Entity id to 64 raw features.
#[derive(Debug)]
pub(super) struct FeatureTable {
    store: FxHashMap<i64, &'static str>,
    cache: FxHashMap<i64, [f32; WIDTH]>,
    oldest_first: VecDeque<i64>,
}

impl FeatureTable {
    /// A table of these rows, with an empty cache.
    pub(super) fn new(rows: &[Row]) -> Self {
        let store = rows.iter().map(|r| (r.entity_id, r.pixels)).collect();
        Self { store, cache: FxHashMap::default(), oldest_first: VecDeque::with_capacity(CACHED_ROWS) }
    }

    /// Looks the ids up one by one and appends their features to `out`; returns how many the cache had.
    pub(super) fn hydrate(&mut self, ids: &[i64], out: &mut Vec<f32>) -> Result<usize, LookupError> {
        let mut hits = 0;
        for id in ids {
            if let Some(row) = self.cache.get(id) {
                out.extend_from_slice(row);
                hits += 1;
            } else {
                self.fetch(*id, out)?;
            }
        }
        Ok(hits)
    }

    fn fetch(&mut self, id: i64, out: &mut Vec<f32>) -> Result<(), LookupError> {
        let stored = self.store.get(&id).ok_or(LookupError::Unknown(id))?;
        let start = out.len();
        parse_pixels(stored, out).ok_or(LookupError::Unreadable(id))?;
        let row = <[f32; WIDTH]>::try_from(&out[start..]).map_err(|_| LookupError::Unreadable(id))?;
        if self.oldest_first.len() == CACHED_ROWS
            && let Some(oldest) = self.oldest_first.pop_front()
        {
            self.cache.remove(&oldest);
        }
        self.oldest_first.push_back(id);
        self.cache.insert(id, row);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::demo::data;

    #[test]
    fn a_second_lookup_is_a_hit_and_gives_the_same_features() {
        let rows = data::rows().unwrap();
        let mut table = FeatureTable::new(&rows);
        let ids = [rows[3].entity_id, rows[9].entity_id];
        let (mut first, mut second) = (Vec::new(), Vec::new());
        assert_eq!(table.hydrate(&ids, &mut first), Ok(0));
        assert_eq!(table.hydrate(&ids, &mut second), Ok(2));
        assert_eq!(first.len(), 2 * WIDTH);
        assert_eq!(first, second);
    }

    #[test]
    fn the_cache_stays_bounded_and_the_oldest_goes_first() {
        let rows = data::rows().unwrap();
        let mut table = FeatureTable::new(&rows);
        let ids: Vec<i64> = rows.iter().map(|r| r.entity_id).collect();
        table.hydrate(&ids, &mut Vec::new()).unwrap();
        assert_eq!((table.cache.len(), table.oldest_first.len()), (CACHED_ROWS, CACHED_ROWS));
        assert_eq!(table.hydrate(&ids[ids.len() - CACHED_ROWS..], &mut Vec::new()), Ok(CACHED_ROWS));
        assert_eq!(table.hydrate(&ids[..1], &mut Vec::new()), Ok(0));
    }

    #[test]
    fn an_unknown_entity_is_named() {
        let mut table = FeatureTable::new(&data::rows().unwrap());
        let error = table.hydrate(&[-5], &mut Vec::new()).unwrap_err();
        assert_eq!(error.to_string(), "entity_ids: -5 is not in the feature table");
    }
}
