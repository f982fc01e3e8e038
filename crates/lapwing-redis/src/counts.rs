//! What became of reads and writes.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What became of reads and writes so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RedisCounts {
    /// Whether there is a connection that answers.
    pub is_up: bool,
    /// Keys that were there.
    pub hits: u64,
    /// Keys that were not.
    pub misses: u64,
    /// Reads that were answered.
    pub reads: u64,
    /// Reads that were not answered by their deadline.
    pub timeouts: u64,
    /// Reads that failed.
    pub errors: u64,
    /// Reads that nobody waited for: there was no connection, or the breaker was open.
    pub refused: u64,
    /// Reads that were not tried, because answers take longer than their deadline.
    pub hopeless: u64,
    /// Values that were written.
    pub written: u64,
    /// Values that were not: too many waited, or the server was away or full.
    pub dropped_writes: u64,
    /// Values that the server refused, such as when it is full.
    pub write_errors: u64,
    /// Values that wait to be written.
    pub queued: usize,
    /// The bytes of those.
    pub queued_bytes: u64,
    /// How often the breaker opened.
    pub breaker_opens: u64,
    /// How often a connection was made.
    pub connects: u64,
    /// How often none could be made.
    pub connect_errors: u64,
    /// What an answer takes, in nanoseconds, as a moving mean; 0 before the first.
    pub round_trip_ns: u64,
}

/// The counters behind [`RedisCounts`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) hits: AtomicU64,
    pub(crate) misses: AtomicU64,
    pub(crate) reads: AtomicU64,
    pub(crate) timeouts: AtomicU64,
    pub(crate) errors: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) hopeless: AtomicU64,
    pub(crate) written: AtomicU64,
    pub(crate) dropped_writes: AtomicU64,
    pub(crate) write_errors: AtomicU64,
    pub(crate) connects: AtomicU64,
    pub(crate) connect_errors: AtomicU64,
    round_trip_ns: AtomicU64,
}

pub(crate) fn add(counter: &AtomicU64, by: usize) {
    counter.fetch_add(by as u64, Relaxed);
}

impl Counters {
    /// An answer took so long.
    pub(crate) fn took(&self, ns: u64) {
        let before = self.round_trip_ns.load(Relaxed);
        // readings that are lost to others at the same time do not matter
        let mean = if before == 0 { ns } else { before - before / 8 + ns / 8 };
        self.round_trip_ns.store(mean.max(1), Relaxed);
    }

    /// What an answer takes; 0 before the first.
    pub(crate) fn round_trip_ns(&self) -> u64 {
        self.round_trip_ns.load(Relaxed)
    }

    /// All but what others know.
    pub(crate) fn counts(&self) -> RedisCounts {
        RedisCounts {
            hits: self.hits.load(Relaxed),
            misses: self.misses.load(Relaxed),
            reads: self.reads.load(Relaxed),
            timeouts: self.timeouts.load(Relaxed),
            errors: self.errors.load(Relaxed),
            refused: self.refused.load(Relaxed),
            hopeless: self.hopeless.load(Relaxed),
            written: self.written.load(Relaxed),
            dropped_writes: self.dropped_writes.load(Relaxed),
            write_errors: self.write_errors.load(Relaxed),
            connects: self.connects.load(Relaxed),
            connect_errors: self.connect_errors.load(Relaxed),
            round_trip_ns: self.round_trip_ns(),
            ..RedisCounts::default()
        }
    }
}
