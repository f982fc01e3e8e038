//! The variance of a count from the sums of its blocks, and the correlation of neighbouring blocks.

use crate::ab::evidence::BlockVariance;

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
