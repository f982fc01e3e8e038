//! The verdict after every pair, for some nanoseconds: the evidence at the four edges that decide it, not the interval. That it
//! equals the report's verdict at every look is tested.

use std::time::Duration;

use crate::ab::Verdict;
use crate::ab::bins::{BinCounts, RATIO_BINS, TIE};
use crate::ab::block_variance::{CumulativeCount, QuantileTracker};
use crate::ab::evidence::{PRIOR, VERDICT_EVIDENCE, log_beta_binomial};
use crate::ab::report::quantile_interval;
use crate::ab::tracking::BlockClock;

/// The bins whose lower edges decide: 1/1.02, the two edges of the tie, and 1.02.
const EDGES: [usize; 4] = [TIE - 19, TIE, TIE + 1, TIE + 20];

/// Which evidence counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    /// The method as it is.
    PairsAndBlocks,
    /// The mixture over pairs alone, which takes pairs for independent.
    PairsOnly,
}

/// The counts that decide a verdict on the median, kept up to date pair by pair.
pub(crate) struct Screen {
    pub(crate) bins: BinCounts,
    tracker: QuantileTracker,
    clock: BlockClock,
    count: CumulativeCount,
    below: [u64; 4],
}

impl Screen {
    pub(crate) fn new(first_block: Duration) -> Self {
        Self {
            bins: BinCounts::new(RATIO_BINS),
            tracker: QuantileTracker::new(0.5),
            clock: BlockClock::new(first_block),
            count: CumulativeCount::default(),
            below: [0; 4],
        }
    }

    pub(crate) fn tick(&mut self, elapsed: Duration) {
        if self.clock.advance(elapsed) {
            self.tracker.close_block(&self.bins);
            let bin = self.tracker.bin;
            (self.count.below, self.count.inside) = (self.bins.below(bin), self.bins.at(bin));
        }
    }

    pub(crate) fn record(&mut self, bin: usize) {
        self.bins.record(bin);
        for (below, edge) in self.below.iter_mut().zip(EDGES) {
            *below += u64::from(bin < edge);
        }
        let threshold = self.tracker.bin;
        self.count.below += u64::from(bin < threshold);
        self.count.inside += u64::from(bin == threshold);
        self.count.total += 1;
    }

    pub(crate) fn pairs(&self) -> u64 {
        self.count.total
    }

    /// Pairs below and above the tie.
    pub(crate) fn wins_and_losses(&self) -> (u64, u64) {
        (self.below[1], self.count.total - self.below[2])
    }

    /// The verdict that a report would give now.
    pub(crate) fn verdict(&self) -> Verdict {
        match self.different(Method::PairsAndBlocks) {
            _ if self.is_same(Method::PairsAndBlocks) => Verdict::Same,
            Some(different) => different,
            None => Verdict::Undecided,
        }
    }

    /// The verdict if it is that the sides differ; cheaper than [`verdict`](Self::verdict).
    pub(crate) fn difference(&self, method: Method) -> Option<Verdict> {
        self.different(method).filter(|_| !self.is_same(method))
    }

    fn different(&self, method: Method) -> Option<Verdict> {
        let [_, faster, not_slower, _] = self.below;
        if self.is_high(faster, method) {
            Some(Verdict::Faster)
        } else {
            self.is_low(not_slower, method).then_some(Verdict::Slower)
        }
    }

    fn is_same(&self, method: Method) -> bool {
        let [lower, .., upper] = self.below;
        self.is_low(lower, method) && self.is_high(upper, method)
    }

    fn is_low(&self, count: u64, method: Method) -> bool {
        2 * count < self.count.total && self.is_rejected(count, method)
    }

    fn is_high(&self, count: u64, method: Method) -> bool {
        2 * count > self.count.total && self.is_rejected(count, method)
    }

    /// Whether `count` of all pairs contradicts one half.
    ///
    /// The logarithm of the mixture over pairs is at most that of the largest likelihood ratio, n KL(count/n, ½) ≤ n χ² = 4 s²/n.
    /// So most looks end after three multiplications.
    fn is_rejected(&self, count: u64, method: Method) -> bool {
        let (n, s) = (self.count.total as f64, count as f64 - self.count.total as f64 / 2.0);
        4.0 * s * s >= VERDICT_EVIDENCE * n
            && (method == Method::PairsOnly || {
                let variance = self.tracker.variance_at(self.count);
                variance.blocks > 0.0 && variance.log_mixture(s, PRIOR) >= VERDICT_EVIDENCE
            })
            && log_beta_binomial(count as f64, n, 0.5, PRIOR) >= VERDICT_EVIDENCE
    }

    /// The interval of the median ratio.
    pub(crate) fn interval(&self) -> (f64, f64) {
        quantile_interval(&self.bins, &self.tracker, VERDICT_EVIDENCE, crate::ab::bins::ratio_edge)
    }
}
