//! What became of questions to the second level.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::lookup::SharedMiss;
use crate::sealed::SealRefusal;
use lapwing_redis::RedisCounts;

/// What became of questions to the second level so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedCounts {
    /// Requests that were answered.
    pub hits: u64,
    /// Requests whose answer was not there.
    pub misses: u64,
    /// Requests for which the answer was too old, or not good for long enough.
    pub too_old: u64,
    /// What was there and refused, by reason, in the order of [`SealRefusal::ALL`]. `epoch` and `expired` are usual; others are not.
    pub refused: [u64; SealRefusal::ALL.len()],
    /// Requests that came while this process was about to forget, or while Redis had no epochs.
    pub without_epoch: u64,
    /// Requests that Redis did not answer: `redis` tells why.
    pub unanswered: u64,
    /// Answers that were given to be stored.
    pub put: u64,
    /// How often this process made all forget.
    pub renewed: u64,
    /// How often another did.
    pub renewed_elsewhere: u64,
    /// What Redis did.
    pub redis: RedisCounts,
}

#[derive(Debug, Default)]
pub(crate) struct SharedCounters {
    hits: AtomicU64,
    misses: AtomicU64,
    too_old: AtomicU64,
    refused: [AtomicU64; SealRefusal::ALL.len()],
    without_epoch: AtomicU64,
    unanswered: AtomicU64,
    pub(crate) put: AtomicU64,
    pub(crate) renewed: AtomicU64,
    pub(crate) renewed_elsewhere: AtomicU64,
}

pub(crate) fn bump(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

impl SharedCounters {
    pub(crate) fn hit(&self) {
        bump(&self.hits);
    }

    pub(crate) fn miss(&self, why: &SharedMiss) {
        match why {
            SharedMiss::Absent => bump(&self.misses),
            SharedMiss::TooOld => bump(&self.too_old),
            SharedMiss::Refused(refusal) => bump(&self.refused[*refusal as usize]),
            SharedMiss::WithoutEpoch => bump(&self.without_epoch),
            SharedMiss::Unanswered(_) => bump(&self.unanswered),
        }
    }

    pub(crate) fn counts(&self, redis: RedisCounts) -> SharedCounts {
        SharedCounts {
            hits: self.hits.load(Relaxed),
            misses: self.misses.load(Relaxed),
            too_old: self.too_old.load(Relaxed),
            refused: std::array::from_fn(|at| self.refused[at].load(Relaxed)),
            without_epoch: self.without_epoch.load(Relaxed),
            unanswered: self.unanswered.load(Relaxed),
            put: self.put.load(Relaxed),
            renewed: self.renewed.load(Relaxed),
            renewed_elsewhere: self.renewed_elsewhere.load(Relaxed),
            redis,
        }
    }
}
