//! The answers in memory, by their keys: as many as fit into so many bytes. Each is looked at when it is asked for, whether it is
//! still good.

use std::hash::BuildHasherDefault;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, Weighter};
use rustc_hash::FxHasher;

use crate::answer::StoredAnswer;
use crate::answerable::RequestTerms;
use crate::key::CacheKey;
use crate::refusal::CacheRefusal;
use lapwing_ledger::Stamp;

/// What the table needs for an entry, beside the entry: its key, its place in lists, and that the table is up to half empty and
/// remembers keys that it let go.
const ENTRY_BYTES: u64 = 2 * (size_of::<CacheKey>() + size_of::<Arc<StoredAnswer>>() + 21) as u64;
/// What an answer costs that has next to nothing in it: how many there may be follows from that.
const SMALL_ENTRY: u64 = 1_024;
/// The most parts with a lock of their own.
const MAX_SHARDS: u64 = 16;
/// How many of the largest entries such a part must hold.
const ENTRIES_PER_SHARD: u64 = 4;

#[derive(Clone, Copy, Debug)]
struct ByCost;

impl Weighter<CacheKey, Arc<StoredAnswer>> for ByCost {
    fn weight(&self, _: &CacheKey, answer: &Arc<StoredAnswer>) -> u64 {
        answer.cost() + ENTRY_BYTES
    }
}

type Table =
    Cache<CacheKey, Arc<StoredAnswer>, ByCost, BuildHasherDefault<FxHasher>, DefaultLifecycle<CacheKey, Arc<StoredAnswer>>>;

/// What is found under a key.
#[derive(Clone, Debug)]
pub enum CacheLookup {
    /// An answer.
    Hit(Arc<StoredAnswer>),
    /// One that is not good any more.
    Expired,
    /// One that is good, but not for this request: it is older than that allows.
    TooOld,
    /// Nothing.
    Miss,
}

/// What is in the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreCounts {
    /// How many answers.
    pub entries: usize,
    /// What they cost, in bytes.
    pub bytes: u64,
    /// How many were stored, ever.
    pub stored: u64,
    /// How many were asked for and found to be out of date.
    pub expired: u64,
}

/// Answers in memory.
#[derive(Debug)]
pub struct AnswerStore {
    table: Table,
    stored: AtomicU64,
    expired: AtomicU64,
    max_cost: u64,
}

impl AnswerStore {
    /// A store of so many bytes, for answers whose bodies have at most `max_entry`.
    #[must_use]
    pub fn new(max_bytes: u64, max_entry: u64) -> Self {
        // a part that is smaller than an entry would never take it
        let per_shard = max_entry.saturating_mul(ENTRIES_PER_SHARD).max(1);
        let shards = (max_bytes / per_shard).clamp(1, MAX_SHARDS);
        let shards = 1 << shards.ilog2();
        let items = usize::try_from(max_bytes / SMALL_ENTRY).unwrap_or(usize::MAX).max(64);
        let mut options = OptionsBuilder::new();
        options.weight_capacity(max_bytes).estimated_items_capacity(items).shards(shards);
        // the builder only refuses to be without the first two
        let table = match options.build() {
            Ok(options) => Table::with_options(options, ByCost, BuildHasherDefault::default(), DefaultLifecycle::default()),
            Err(_) => Table::with(items, max_bytes, ByCost, BuildHasherDefault::default(), DefaultLifecycle::default()),
        };
        // beyond this it would be dropped at once, and empty the table before
        let max_cost = table.shard_capacity() / 2;
        Self { table, stored: AtomicU64::new(0), expired: AtomicU64::new(0), max_cost }
    }

    /// What is there for a request on these terms.
    #[must_use]
    pub fn get(&self, key: &CacheKey, request: &RequestTerms, now: Stamp) -> CacheLookup {
        if !request.may_answer {
            return CacheLookup::Miss;
        }
        let Some(answer) = self.table.get(key) else { return CacheLookup::Miss };
        let (kept_ns, fresh_ns) = (answer.kept_ns(now), answer.terms().fresh_ns);
        if kept_ns >= fresh_ns {
            self.expired.fetch_add(1, Relaxed);
            // another one may have come meanwhile
            self.table.remove_if(key, |stored| Arc::ptr_eq(stored, &answer));
            return CacheLookup::Expired;
        }
        if !answer.suits(request, now) {
            return CacheLookup::TooOld;
        }
        CacheLookup::Hit(answer)
    }

    /// The answer under this key, good or not. It does not count as asked for.
    pub(crate) fn peek(&self, key: &CacheKey) -> Option<Arc<StoredAnswer>> {
        self.table.peek(key)
    }

    /// Stores an answer, in place of one with the same key.
    ///
    /// # Errors
    ///
    /// If it costs more than half of what one part of the store holds.
    pub fn put(&self, key: CacheKey, answer: StoredAnswer) -> Result<Arc<StoredAnswer>, CacheRefusal> {
        if answer.cost() + ENTRY_BYTES > self.max_cost {
            return Err(CacheRefusal::TooLarge);
        }
        let answer = Arc::new(answer);
        self.table.insert(key, answer.clone());
        self.stored.fetch_add(1, Relaxed);
        Ok(answer)
    }

    /// Drops one answer.
    pub fn remove(&self, key: &CacheKey) {
        self.table.remove(key);
    }

    /// Drops all answers. What makes them unreachable is their generation; this only gives their memory back.
    pub fn clear(&self) {
        self.table.clear();
    }

    /// What is in it.
    #[must_use]
    pub fn counts(&self) -> StoreCounts {
        StoreCounts {
            entries: self.table.len(),
            bytes: self.table.weight(),
            stored: self.stored.load(Relaxed),
            expired: self.expired.load(Relaxed),
        }
    }

    /// What the table itself takes, in bytes, without the answers.
    #[cfg(test)]
    pub(crate) fn table_bytes(&self) -> usize {
        let used = self.table.memory_used();
        used.entries + used.map
    }
}
