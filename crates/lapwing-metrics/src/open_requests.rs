//! Which requests were open at a time, in two generations: enough to know when every request that was open at some moment has
//! ended. A request costs two additions to counters, and no lock.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};

/// Requests in flight, by the generation in which each one began.
#[derive(Debug, Default)]
pub struct OpenRequests {
    generation: AtomicU64,
    open: [AtomicU64; 2],
}

/// The generation in which a request began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestGeneration(u64);

impl OpenRequests {
    /// Records that a request begins.
    pub fn begin(&self) -> RequestGeneration {
        let generation = self.generation();
        self.count(generation).fetch_add(1, AcqRel);
        RequestGeneration(generation)
    }

    /// Records that a request of `generation` has ended and its ledger was handed over.
    pub fn end(&self, RequestGeneration(generation): RequestGeneration) {
        self.count(generation).fetch_sub(1, Release);
    }

    /// The number of the current generation.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation.load(Acquire)
    }

    /// Whether no request of the generation before the current one is in flight, so that a new one may begin.
    #[must_use]
    pub fn may_advance(&self) -> bool {
        self.count(self.generation() + 1).load(Acquire) == 0
    }

    /// Begins a new generation; its number. To be called by one thread, and only after [`Self::may_advance`] returned true. Every
    /// request of the generation before the last has ended by then.
    pub fn advance(&self) -> u64 {
        self.generation.fetch_add(1, AcqRel) + 1
    }

    const fn count(&self, generation: u64) -> &AtomicU64 {
        &self.open[(generation & 1) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_generations_later_all_requests_of_the_first_have_ended() {
        let open = OpenRequests::default();
        let (old, first) = (open.begin(), open.generation());
        assert!(open.may_advance());
        open.advance();
        let young = open.begin();
        assert!(!open.may_advance(), "the old one is in flight");
        open.end(old);
        assert!(open.may_advance());
        assert_eq!(open.advance(), first + 2, "what was open in the first generation has ended");
        assert!(!open.may_advance());
        open.end(young);
        assert!(open.may_advance());
    }
}
