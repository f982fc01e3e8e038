//! What time adds to the counts: how much they vary from block to block. One tracker per number of the report, all fed by the
//! cumulative counts of all pods together.
//!
//! Trackers of pods that shared a candidate or a baseline at the same time must not be added: their blocks are not independent,
//! and the sum would report less variance than there is. Pool the counts and tick one [`Tracking`] on them.

use std::time::Duration;

use super::block_variance::{ProportionTracker, QuantileTracker};
use super::counts::PairCounts;

/// The quantiles of the pairs' ratio.
pub(crate) const RATIO_QUANTILES: [f64; 3] = [0.1, 0.5, 0.9];
/// The index of the median among them.
pub(crate) const MEDIAN: usize = 1;
/// The quantiles of each side's latency.
pub(crate) const SIDE_QUANTILES: [f64; 3] = [0.5, 0.9, 0.99];

/// How the counts of one [`PairCounts`] varied over time. About 1.5 KiB; kept by the reporter, not by each pod.
#[derive(Clone, Debug)]
pub struct Tracking {
    clock: BlockClock,
    pairs: u64,
    pub(crate) ratios: [QuantileTracker; 3],
    pub(crate) baseline: [QuantileTracker; 3],
    pub(crate) candidate: [QuantileTracker; 3],
    pub(crate) wins: ProportionTracker,
    pub(crate) mismatches: ProportionTracker,
    pub(crate) mismatch_blocks: MismatchBlocks,
    /// Sums of the products of both sides' block sums, by quantile: how much the sides vary together.
    pub(crate) side_products: [f64; 3],
}

impl Default for Tracking {
    fn default() -> Self {
        Self::with_first_block(BlockClock::FIRST)
    }
}

impl Tracking {
    /// Blocks of 1 s, doubled after every 64 blocks up to 64 s.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Blocks that begin with another length, within 1 ms and 64 s.
    ///
    /// Longer blocks withstand longer disturbances and take as much longer to a verdict: with 10 s, episodes of 30 s do no harm,
    /// and 3 % is found in about 155 s. Choose the length before the run; choosing it by the data voids validity.
    #[must_use]
    pub fn with_first_block(length: Duration) -> Self {
        Self {
            clock: BlockClock::new(length),
            pairs: 0,
            ratios: RATIO_QUANTILES.map(QuantileTracker::new),
            baseline: SIDE_QUANTILES.map(QuantileTracker::new),
            candidate: SIDE_QUANTILES.map(QuantileTracker::new),
            wins: ProportionTracker::default(),
            mismatches: ProportionTracker::default(),
            mismatch_blocks: MismatchBlocks::default(),
            side_products: [0.0; 3],
        }
    }

    /// Closes the block that has ended, if one has. Call it from a timer, about once a second, with the time since the first call;
    /// being late is harmless. Costs some microseconds when a block ends, and next to nothing otherwise.
    ///
    /// If `counts` has fewer pairs than at the last tick, they were started anew, and so is the tracking; its clock goes on.
    pub fn tick(&mut self, counts: &PairCounts, elapsed: Duration) {
        if counts.pairs() < self.pairs {
            *self = Self { clock: self.clock.clone(), ..Self::default() };
        }
        // several ended blocks are closed as one: those after the first are empty
        if self.clock.advance(elapsed) {
            self.close_block(counts);
        }
    }

    /// The time of the last tick.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.clock.elapsed()
    }

    fn close_block(&mut self, counts: &PairCounts) {
        self.pairs = counts.pairs();
        for (sum, (baseline, candidate)) in self.side_products.iter_mut().zip(self.baseline.iter().zip(&self.candidate)) {
            let (baseline, candidate) = (baseline.open_block(&counts.baseline), candidate.open_block(&counts.candidate));
            if baseline.pairs > 0.0 && candidate.pairs > 0.0 {
                *sum += baseline.excess * candidate.excess;
            }
        }
        let histograms = [
            (&mut self.ratios, &counts.ratios),
            (&mut self.baseline, &counts.baseline),
            (&mut self.candidate, &counts.candidate),
        ];
        for (trackers, bins) in histograms {
            for tracker in trackers {
                tracker.close_block(bins);
            }
        }
        self.wins.close_block(counts.wins(), counts.wins() + counts.losses());
        self.mismatches.close_block(counts.mismatches, counts.compared);
        self.mismatch_blocks.close_block(counts.mismatches, counts.compared);
    }
}

/// The ends of blocks: the length doubles after every 64 blocks until it is 64 s, so that there are many blocks early and long
/// ones late.
#[derive(Clone, Debug)]
pub(crate) struct BlockClock {
    elapsed: Duration,
    end: Duration,
    length: Duration,
    closed: u64,
}

impl BlockClock {
    /// The default length of the first blocks.
    pub(crate) const FIRST: Duration = Duration::from_secs(1);
    /// The greatest length.
    const LONGEST: Duration = Duration::from_secs(64);
    /// After how many blocks the length doubles.
    const GROW_AFTER: u64 = 64;

    /// A clock at 0, whose first block has `length`, within 1 ms and 64 s.
    pub(crate) fn new(length: Duration) -> Self {
        let length = length.clamp(Duration::from_millis(1), Self::LONGEST);
        Self { elapsed: Duration::ZERO, end: length, length, closed: 0 }
    }

    /// Sets the time, and returns whether a block has ended since the last call.
    pub(crate) fn advance(&mut self, elapsed: Duration) -> bool {
        self.elapsed = elapsed;
        let has_ended = elapsed >= self.end;
        while elapsed >= self.end {
            self.closed += 1;
            if self.closed.is_multiple_of(Self::GROW_AFTER) {
                self.length = (2 * self.length).min(Self::LONGEST);
            }
            self.end += self.length;
        }
        has_ended
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.elapsed
    }
}

/// Blocks with comparisons, and those of them with a mismatch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MismatchBlocks {
    /// Closed blocks in which outputs were compared.
    pub(crate) compared: u64,
    /// Those with at least one mismatch.
    pub(crate) with_mismatch: u64,
    mismatches_before: u64,
    comparisons_before: u64,
}

impl MismatchBlocks {
    pub(crate) fn close_block(&mut self, mismatches: u64, comparisons: u64) {
        self.compared += u64::from(comparisons > self.comparisons_before);
        self.with_mismatch += u64::from(mismatches > self.mismatches_before);
        (self.mismatches_before, self.comparisons_before) = (mismatches, comparisons);
    }
}
