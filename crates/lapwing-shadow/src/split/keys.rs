//! Which requests of which keys are judged: of each key one for each block of time. Requests of one user are alike, so a thousand of them say
//! little more than one; whoever asks most would otherwise decide. Each key has blocks of its own, so that those who ask all the time do not
//! all come at once.

use rustc_hash::FxHashMap;

use lapwing_compare::ab::PairSide;

/// The length of a block, in nanoseconds.
pub(crate) const KEY_BLOCK_NS: u64 = 10_000_000_000;
/// How many keys are remembered. Those that did not come in this block or the one before give way.
const MAX_KEYS: usize = 65_536;

/// Why a request is not judged because of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyRefusal {
    /// Another of its key was judged in this block.
    Again,
    /// The table is full.
    Crowded,
}

/// The keys that were judged, by the block in which they were last.
#[derive(Debug, Default)]
pub(crate) struct KeyTable {
    last: FxHashMap<u32, u64>,
    /// The block in which room was last made.
    cleared: u64,
    /// Keys of each side, and requests judged of them.
    counts: [(u64, u64); 2],
}

impl KeyTable {
    /// Admits a request of `key`, which started at `started_ns` of the monotonic clock, unless another of its key was admitted in this block.
    pub(crate) fn admit(&mut self, side: PairSide, key: u32, started_ns: u64) -> Result<(), KeyRefusal> {
        let block = (started_ns + offset_ns(key)) / KEY_BLOCK_NS;
        let known = self.last.get(&key).copied();
        if known == Some(block) {
            return Err(KeyRefusal::Again);
        }
        if known.is_none() && self.last.len() >= MAX_KEYS {
            // it takes a look at all of them
            if block > self.cleared {
                self.last.retain(|_, last| *last + 1 >= block);
                self.cleared = block;
            }
            if self.last.len() >= MAX_KEYS {
                return Err(KeyRefusal::Crowded);
            }
        }
        // one that comes late, because it was slow, is of an earlier block
        self.last.insert(key, known.map_or(block, |last| last.max(block)));
        let (keys, requests) = &mut self.counts[index(side)];
        *keys += u64::from(known.is_none());
        *requests += 1;
        Ok(())
    }

    /// How many keys of a side were judged. One that gave way and came back counts twice.
    pub(crate) fn keys(&self, side: PairSide) -> u64 {
        self.counts[index(side)].0
    }

    /// How many requests were judged of each key, on the side where these are more.
    #[allow(clippy::cast_precision_loss, reason = "a mean")]
    pub(crate) fn requests_per_key(&self) -> f64 {
        self.counts.iter().map(|(keys, requests)| *requests as f64 / (*keys).max(1) as f64).fold(1.0, f64::max)
    }
}

/// By how much the blocks of a key begin earlier than those of others: key numbers are spread evenly.
const fn offset_ns(key: u32) -> u64 {
    (key as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) % KEY_BLOCK_NS
}

const fn index(side: PairSide) -> usize {
    match side {
        PairSide::Baseline => 0,
        PairSide::Candidate => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use PairSide::{Baseline, Candidate};

    #[test]
    fn a_key_is_admitted_once_in_a_block() {
        let mut table = KeyTable::default();
        assert_eq!([1, 1, 2].map(|key| table.admit(Candidate, key, 5).is_ok()), [true, false, true]);
        assert_eq!(table.admit(Candidate, 1, KEY_BLOCK_NS + 5), Ok(()));
        assert_eq!(table.admit(Candidate, 1, 5), Ok(()), "it comes late");
        assert_eq!(table.admit(Candidate, 1, KEY_BLOCK_NS + 5), Err(KeyRefusal::Again));
        assert_eq!((table.keys(Candidate), table.keys(Baseline), table.requests_per_key()), (2, 0, 2.0));
        (0..8).for_each(|block| table.admit(Baseline, 9, block * KEY_BLOCK_NS).unwrap());
        assert_eq!((table.keys(Baseline), table.requests_per_key()), (1, 8.0));
    }

    #[test]
    fn those_who_ask_all_the_time_do_not_come_at_once() {
        let mut table = KeyTable::default();
        let admitted = |table: &mut KeyTable, second: u64| {
            (0..1_000).filter(|key| table.admit(Baseline, *key, second * 1_000_000_000).is_ok()).count()
        };
        let by_second: Vec<_> = (0..30).map(|second| admitted(&mut table, second)).collect();
        assert_eq!(by_second[0], 1_000, "who was never seen");
        assert!(by_second[1..].iter().all(|n| (60..140).contains(n)), "{by_second:?}");
    }

    #[test]
    fn the_table_is_bounded_and_old_keys_give_way() {
        let mut table = KeyTable::default();
        let full = u32::try_from(MAX_KEYS).unwrap();
        (0..full).for_each(|key| table.admit(Baseline, key, 0).unwrap());
        assert_eq!(table.admit(Baseline, full, 1), Err(KeyRefusal::Crowded));
        assert_eq!(table.admit(Baseline, full, 3 * KEY_BLOCK_NS), Ok(()));
        assert_eq!(table.last.len(), 1);
    }
}
