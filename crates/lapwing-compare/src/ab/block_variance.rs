//! The variance of a count from the sums of its blocks, and the correlation of neighbouring blocks. Trackers of a quantile and of a
//! proportion fix their threshold before a block and see by how much the count of the block exceeds what that threshold predicts.

use super::bins::BinCounts;
use super::evidence::BlockVariance;

/// A block: by how much more pairs were counted than expected, and of how many.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Block {
    /// The count less its expectation, in pairs (s).
    pub(crate) excess: f64,
    /// The pairs of the block (m).
    pub(crate) pairs: f64,
}

/// Sums over the closed blocks that had pairs. Floating point throughout: the square of a count exceeds 64 bits.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BlockSums {
    last_excess: Option<f64>,
    /// Σ s² (v).
    pub(crate) squares: f64,
    /// Σ s · s of the block before (x).
    neighbour_products: f64,
    /// Σ m.
    pub(crate) pairs: f64,
    /// Σ m².
    pairs_squared: f64,
}

impl BlockSums {
    /// The largest correlation of neighbouring blocks that is believed.
    const MAX_CORRELATION: f64 = 0.95;

    pub(crate) fn add(&mut self, block: Block) {
        let Block { excess, pairs } = block;
        self.squares += excess * excess;
        self.neighbour_products += self.last_excess.map_or(0.0, |last| excess * last);
        self.last_excess = Some(excess);
        self.pairs += pairs;
        self.pairs_squared += pairs * pairs;
    }

    /// The effective number of closed blocks; not a number before the first.
    pub(crate) fn effective_blocks(&self) -> f64 {
        self.pairs * self.pairs / self.pairs_squared
    }

    /// The variance of a count over `total` trials, scaled from the closed blocks and the `open` one.
    ///
    /// Lag-1 correlation r, raised by its bias (1 + 3r) / blocks, inflates the variance by κ = (1 + r) / (1 − r), as for an
    /// autoregressive series of first order.
    pub(crate) fn variance(&self, open: Block, total: u64) -> BlockVariance {
        let pairs = self.pairs + open.pairs;
        if pairs == 0.0 {
            return BlockVariance::NONE;
        }
        let blocks = pairs * pairs / (self.pairs_squared + open.pairs * open.pairs);
        let r = if self.squares > 0.0 { self.neighbour_products / self.squares } else { 0.0 };
        let r = (r + (1.0 + 3.0 * r) / blocks).clamp(0.0, Self::MAX_CORRELATION);
        let inflation = (1.0 + r) / (1.0 - r);
        let variance = inflation * (self.squares + open.excess * open.excess) * total as f64 / pairs;
        BlockVariance { variance, inflation, blocks }
    }
}

/// Cumulative counts about a threshold.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CumulativeCount {
    /// Values below the threshold's bin, or successes.
    pub(crate) below: u64,
    /// Values in the threshold's bin; 0 for a proportion.
    pub(crate) inside: u64,
    /// All values, or trials.
    pub(crate) total: u64,
}

/// A threshold that was fixed before the open block, so that the block's excess has mean 0 (it is predictable).
#[derive(Clone, Copy, Debug)]
struct Threshold {
    /// The expected share below.
    share: f64,
    /// How much of the threshold's bin counts as below, so that the share holds exactly where many values are equal (π).
    inside_share: f64,
    /// The counts at the start of the block.
    start: CumulativeCount,
}

impl Threshold {
    fn block(&self, now: CumulativeCount) -> Block {
        let since = |now: u64, then: u64| now as f64 - then as f64;
        let pairs = since(now.total, self.start.total);
        let below = since(now.below, self.start.below) + self.inside_share * since(now.inside, self.start.inside);
        Block { excess: below - self.share * pairs, pairs }
    }
}

/// The block variance of the count below a quantile of a histogram.
#[derive(Clone, Debug)]
pub(crate) struct QuantileTracker {
    /// Which quantile, within 0 and 1.
    pub(crate) quantile: f64,
    /// The bin of the threshold.
    pub(crate) bin: usize,
    threshold: Option<Threshold>,
    sums: BlockSums,
}

impl QuantileTracker {
    pub(crate) fn new(quantile: f64) -> Self {
        Self { quantile, bin: 0, threshold: None, sums: BlockSums::default() }
    }

    fn count(&self, bins: &BinCounts) -> CumulativeCount {
        CumulativeCount { below: bins.below(self.bin), inside: bins.at(self.bin), total: bins.total() }
    }

    pub(crate) fn open_block(&self, bins: &BinCounts) -> Block {
        self.threshold.map_or_else(Block::default, |threshold| threshold.block(self.count(bins)))
    }

    /// Closes the open block, and takes the quantile of all counts so far as the next threshold.
    pub(crate) fn close_block(&mut self, bins: &BinCounts) {
        let block = self.open_block(bins);
        if block.pairs > 0.0 {
            self.sums.add(block);
        }
        let rank = self.quantile * bins.total() as f64;
        let Some(bin) = bins.find(rank) else { return };
        self.bin = bin;
        let start = self.count(bins);
        let inside_share = (rank - start.below as f64) / start.inside as f64;
        self.threshold = Some(Threshold { share: self.quantile, inside_share, start });
    }

    /// The variance of the count below the quantile, the open block included.
    pub(crate) fn variance(&self, bins: &BinCounts) -> BlockVariance {
        self.variance_at(self.count(bins))
    }

    /// The same from counts that the caller has at hand.
    pub(crate) fn variance_at(&self, now: CumulativeCount) -> BlockVariance {
        let open = self.threshold.map_or_else(Block::default, |threshold| threshold.block(now));
        self.sums.variance(open, now.total)
    }

    /// The sum of the squared excesses of the closed blocks.
    pub(crate) fn squares(&self) -> f64 {
        self.sums.squares
    }

    /// The effective number of closed blocks.
    pub(crate) fn closed_blocks(&self) -> f64 {
        self.sums.effective_blocks()
    }
}

/// The block variance of a count of successes.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProportionTracker {
    threshold: Option<Threshold>,
    sums: BlockSums,
}

impl ProportionTracker {
    /// Closes the open block, and takes the share of successes so far as the next expectation.
    pub(crate) fn close_block(&mut self, successes: u64, trials: u64) {
        let now = CumulativeCount { below: successes, inside: 0, total: trials };
        let block = self.threshold.map_or_else(Block::default, |threshold| threshold.block(now));
        if block.pairs > 0.0 {
            self.sums.add(block);
        }
        if trials > 0 {
            self.threshold = Some(Threshold { share: successes as f64 / trials as f64, inside_share: 0.0, start: now });
        }
    }

    /// The variance of the count of successes, the open block included.
    pub(crate) fn variance(&self, successes: u64, trials: u64) -> BlockVariance {
        let now = CumulativeCount { below: successes, inside: 0, total: trials };
        let open = self.threshold.map_or_else(Block::default, |threshold| threshold.block(now));
        self.sums.variance(open, trials)
    }
}
