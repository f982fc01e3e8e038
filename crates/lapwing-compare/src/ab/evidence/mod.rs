//! One function, [`log_evidence`], says how strongly the counts contradict a probability, at whatever moment one looks. Every
//! interval and every verdict is its inversion.
//!
//! It is the lesser of two logarithms of e-values: an exact mixture over pairs, valid for independent pairs, and a normal mixture
//! over time blocks, whose variance is measured and therefore includes bursts and drift shorter than the blocks.

mod beta_binomial;
mod blocks;
mod invert;
mod stirling;

pub(crate) use beta_binomial::log_beta_binomial;
pub(crate) use blocks::BlockVariance;
pub(crate) use invert::{proportion_interval, proportion_where, rejected_ranks};
#[cfg(test)]
pub(crate) use stirling::stirling_remainder;

/// How concentrated the mixtures are, for pairs and quantiles. It is the same for ever: tuning it to the data voids validity.
pub(crate) const PRIOR: f64 = 16.0;
/// The same for mismatches, which are rare.
pub(crate) const RARE_PRIOR: f64 = 0.5;

/// ln 40: the median's share of the error budget of 0.05 is 1/40.
pub(crate) const VERDICT_EVIDENCE: f64 = 3.688_879_454_113_936_3;
/// ln 520: each of the other thirteen intervals has 1/520. 1/40 + 13/520 = 0.05, so all hold together.
pub(crate) const INTERVAL_EVIDENCE: f64 = 6.253_828_811_575_473;

/// The natural logarithm of the e-value against "each of `trials` succeeds with probability `q`" after `successes`.
///
/// `successes` may be fractional (projections). Returns −∞ before the first block. Rises with the distance of `successes` from
/// `q · trials`, which makes inversion by bisection possible.
pub(crate) fn log_evidence(successes: f64, trials: f64, q: f64, variance: &BlockVariance, prior: f64) -> f64 {
    if variance.blocks == 0.0 {
        return f64::NEG_INFINITY;
    }
    let over_blocks = variance.log_mixture(successes - trials * q, prior);
    log_beta_binomial(successes, trials, q, prior).min(over_blocks)
}

/// Whether the evidence reaches `threshold`. The same as comparing [`log_evidence`], but the costly half is computed only where
/// the cheap one reaches it.
fn is_contradicted(successes: f64, trials: f64, q: f64, variance: &BlockVariance, prior: f64, threshold: f64) -> bool {
    variance.blocks > 0.0
        && variance.log_mixture(successes - trials * q, prior) >= threshold
        && log_beta_binomial(successes, trials, q, prior) >= threshold
}
