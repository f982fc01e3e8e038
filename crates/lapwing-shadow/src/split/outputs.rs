//! What the outputs of both sides of a live split say, where a share of the requests of each is copied to the other: how often they differ
//! beyond the tolerance and beyond what the baseline's own repeated answers differ in. As with times, of each key one in each block of
//! time counts.

use std::num::NonZeroU32;
use std::time::Duration;

use super::keys::{KeyRefusal, KeyTable};
use crate::pairs::OutputResult;
use lapwing_compare::ab::{PairSide, WatchedShare};

/// The compared outputs until now.
#[derive(Debug, Default)]
pub(crate) struct SplitOutputs {
    keys: KeyTable,
    /// Those that differ.
    pub(crate) mismatched: WatchedShare,
    /// Those of which it cannot be told.
    pub(crate) unjudged: u64,
    /// Those of a key of which another was compared in the same block, or beyond the table's room.
    pub(crate) left_out: u64,
}

impl SplitOutputs {
    /// Takes how the outputs of both sides compare for a request of `key`.
    pub(crate) fn take(&mut self, key: NonZeroU32, result: OutputResult, now_ns: u64) {
        if result == OutputResult::Unjudged {
            self.unjudged += 1;
            return;
        }
        // which side answered the client says nothing of how the two answers compare
        match self.keys.admit(PairSide::Candidate, key.get(), now_ns) {
            Ok(()) => self.mismatched.record(result.is_mismatch()),
            Err(KeyRefusal::Again | KeyRefusal::Crowded) => self.left_out += 1,
        }
    }

    /// Closes the blocks that have ended.
    pub(crate) fn tick(&mut self, elapsed: Duration) {
        self.mismatched.tick(elapsed);
    }

    /// Keys of which outputs were compared.
    pub(crate) fn keys(&self) -> u64 {
        self.keys.keys(PairSide::Candidate)
    }

    /// How many outputs were compared of each key.
    pub(crate) fn per_key(&self) -> f64 {
        self.keys.requests_per_key()
    }
}
