//! The normal mixture over time blocks: an e-value for a probability whose variance is that of the blocks' sums.

/// What the blocks say of the variance of a count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockVariance {
    /// The variance of the count, with the correlation of neighbouring blocks (κV).
    pub(crate) variance: f64,
    /// By how much that correlation inflates it, at least 1 (κ).
    pub(crate) inflation: f64,
    /// The effective number of blocks, the open one included; 0 before the first.
    pub(crate) blocks: f64,
}

impl BlockVariance {
    /// Nothing known.
    pub(crate) const NONE: Self = Self { variance: 0.0, inflation: 1.0, blocks: 0.0 };

    /// The natural logarithm of the self-normalised mixture for a deviation `s` of the count from what was expected.
    ///
    /// The two-sided normal mixture of Howard et al. 2021 (proposition 5) over symmetric block sums (de la Peña, Ann. Prob. 27,
    /// 1999). κ and the term `κ s² / blocks`, which withholds judgement while blocks are few, are ours: they rest on simulation.
    pub(crate) fn log_mixture(&self, s: f64, prior: f64) -> f64 {
        let total = self.variance + prior;
        0.5 * (s * s / (total + self.inflation * s * s / self.blocks) - (total / prior).ln())
    }
}
