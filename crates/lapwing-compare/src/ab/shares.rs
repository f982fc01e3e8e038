//! A share that is watched over time: how many of the requests of a side failed, with an interval that holds at every look.

use std::time::Duration;

use super::block_variance::ProportionTracker;
use super::evidence::{RARE_PRIOR, proportion_interval};
use super::report::IntervalEstimate;
use super::tracking::BlockClock;

/// How many of the trials so far were hits, and how their share varied from block to block.
///
/// Nothing is known before about 13 blocks of a second, whatever happens: until then the interval is 0 to 1.
#[derive(Clone, Debug)]
pub struct WatchedShare {
    clock: BlockClock,
    hits: u64,
    trials: u64,
    tracker: ProportionTracker,
}

impl Default for WatchedShare {
    fn default() -> Self {
        Self { clock: BlockClock::new(BlockClock::FIRST), hits: 0, trials: 0, tracker: ProportionTracker::default() }
    }
}

impl WatchedShare {
    /// Counts a trial.
    pub fn record(&mut self, is_hit: bool) {
        self.trials += 1;
        self.hits += u64::from(is_hit);
    }

    /// Closes the block that has ended, if one has, at `elapsed` since the first call: as [`Tracking::tick`](super::Tracking::tick).
    pub fn tick(&mut self, elapsed: Duration) {
        if self.clock.advance(elapsed) {
            self.tracker.close_block(self.hits, self.trials);
        }
    }

    /// The hits.
    #[must_use]
    pub const fn hits(&self) -> u64 {
        self.hits
    }

    /// All trials.
    #[must_use]
    pub const fn trials(&self) -> u64 {
        self.trials
    }

    /// The share of hits, with an interval that misses the true share with a probability of 1/520 at most, over all looks together.
    #[must_use]
    pub fn estimate(&self) -> IntervalEstimate {
        let variance = self.tracker.variance(self.hits, self.trials);
        let interval = proportion_interval(self.hits, self.trials, &variance, RARE_PRIOR);
        IntervalEstimate::share(self.hits, self.trials, interval)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ab::tests::stream::SplitMix;

    /// The share after `seconds` with `per_second` trials each, of which so many per mille are hits.
    fn watched(permille: u64, per_second: u64, seconds: u64, seed: u64) -> (WatchedShare, bool) {
        let (mut share, mut random) = (WatchedShare::default(), SplitMix::new(seed));
        let mut was_missed = false;
        for second in 0..seconds {
            share.tick(Duration::from_secs(second));
            (0..per_second).for_each(|_| share.record(random.next() % 1_000 < permille));
            let IntervalEstimate { low, high, .. } = share.estimate();
            let truth = permille as f64 / 1_000.0;
            was_missed |= truth < low || high.is_some_and(|high| truth > high);
        }
        (share, was_missed)
    }

    #[test]
    fn the_interval_narrows_and_holds_at_every_look() {
        let missed = (0..200).filter(|seed| watched(20, 10, 120, *seed).1).count();
        assert!(missed <= 2, "{missed} of 200");
        let IntervalEstimate { value, low, high } = watched(20, 10, 1_200, 7).0.estimate();
        assert!(value.unwrap() > low && low > 0.01 && high.unwrap() < 0.035, "{low} {high:?}");
    }

    #[test]
    fn a_side_that_always_fails_is_known_to_after_some_blocks() {
        assert_eq!(watched(1_000, 5, 5, 1).0.estimate().low, 0.0);
        assert!(watched(1_000, 5, 20, 1).0.estimate().low > 0.5);
        assert!(WatchedShare::default().estimate().value.is_none());
    }
}
