//! When nobody waits for a Redis any more.
//!
//! A failure costs [`FAILURE`] points and a success gives one back. So [`LIMIT`] points, at which the breaker opens, are five failures one
//! after the other, or more than one in a hundred over a while: a deadline that more than a hundredth of all reads wait for would be seen
//! in the 99th percentile of requests. Once it is open no request waits. A probe in the background closes it, half: the next failure opens
//! it again, until successes have paid for those before.

use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};

/// What a failure costs.
const FAILURE: u32 = 100;
/// When it opens.
const LIMIT: u32 = 5 * FAILURE;

/// Whether requests may wait for a Redis.
#[derive(Debug, Default)]
pub(crate) struct Breaker {
    points: AtomicU32,
    is_open: AtomicBool,
    opens: AtomicU64,
}

impl Breaker {
    /// Whether nobody may wait.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open.load(Acquire)
    }

    /// Somebody was answered in time.
    pub(crate) fn succeeded(&self) {
        if self.points.load(Relaxed) > 0 {
            let _ = self.points.fetch_update(Relaxed, Relaxed, |points| points.checked_sub(1));
        }
    }

    /// Somebody was not. Returns whether this opened it.
    pub(crate) fn failed(&self) -> bool {
        let update = |points: u32| Some(points.saturating_add(FAILURE).min(LIMIT));
        let before = self.points.fetch_update(AcqRel, Acquire, update).unwrap_or(LIMIT);
        before.saturating_add(FAILURE) >= LIMIT && self.open()
    }

    /// Opens it; returns whether it was closed.
    pub(crate) fn open(&self) -> bool {
        let was_open = self.is_open.swap(true, AcqRel);
        if !was_open {
            self.opens.fetch_add(1, Relaxed);
        }
        !was_open
    }

    /// A probe was answered: others may try again, and the next failure opens it.
    pub(crate) fn half_close(&self) {
        self.points.store(LIMIT - FAILURE, Relaxed);
        self.is_open.store(false, Release);
    }

    /// Whether nothing is left of earlier failures.
    pub(crate) fn is_sound(&self) -> bool {
        !self.is_open() && self.points.load(Relaxed) == 0
    }

    /// How often it opened.
    pub(crate) fn opens(&self) -> u64 {
        self.opens.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_failures_in_a_row_open_it_and_one_does_after_a_probe() {
        let breaker = Breaker::default();
        assert_eq!((0..5).map(|_| breaker.failed()).collect::<Vec<_>>(), [false, false, false, false, true]);
        assert!(breaker.is_open() && !breaker.failed() && breaker.opens() == 1);
        breaker.half_close();
        assert!(!breaker.is_open() && !breaker.is_sound());
        assert!(breaker.failed() && breaker.opens() == 2);
        breaker.half_close();
        (0..LIMIT).for_each(|_| breaker.succeeded());
        assert!(breaker.is_sound());
        assert!(!breaker.failed());
    }

    #[test]
    fn a_share_of_failures_that_is_seen_in_the_99th_percentile_opens_it() {
        for (successes, opens) in [(200, 0), (110, 0), (80, 1), (20, 1)] {
            let breaker = Breaker::default();
            for _ in 0..100 {
                breaker.failed();
                (0..successes).for_each(|_| breaker.succeeded());
            }
            assert_eq!(breaker.opens(), opens, "one failure in {successes}");
        }
    }
}
