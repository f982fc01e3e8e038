//! One function, [`log_evidence`], says how strongly the counts contradict a probability, at whatever moment it is computed. Every
//! interval and every verdict is its inversion.
//!
//! It is the lesser of two logarithms of e-values: an exact mixture over pairs, valid for independent pairs, and a normal mixture
//! over time blocks, whose variance is measured and therefore includes bursts and drift shorter than the blocks. Over many routes,
//! e-BH bounds the share of false discoveries among those named as changed.

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

/// The natural logarithm of the beta-binomial mixture martingale against `P = q` after `S` successes in `n` trials.
///
/// The mixing distribution is Beta(ρ/(1−q), ρ/q), centred at `q`; 0 < q < 1, 0 ≤ S ≤ n. Equal to
/// `ln B(a+S, b+n−S) − ln B(a, b) − S ln q − (n−S) ln(1−q)`, written so that nothing cancels. Robbins, Ann. Math. Stat. 1970;
/// Howard, Ramdas, McAuliffe and Sekhon, Ann. Stat. 49(2), 2021, proposition 7.
#[allow(non_snake_case, reason = "the letters of the formula")]
pub(crate) fn log_beta_binomial(S: f64, n: f64, q: f64, rho: f64) -> f64 {
    let (a, b) = (rho / (1.0 - q), rho / q);
    let c = a + b;
    let (A, B, C) = (a + S, b + n - S, c + n);
    let s = S - n * q;
    let sigma = stirling_remainder;
    A * (s / (C * q)).ln_1p()
        + B * (-s / (C * (1.0 - q))).ln_1p()
        + 0.5 * ((C * a * b) / (c * A * B)).ln()
        + (sigma(A) + sigma(B) - sigma(C) - sigma(a) - sigma(b) + sigma(c))
}

/// `ln Γ(z) − ((z − ½) ln z − z + ½ ln 2π)` for `z > 0`, to about 1e-16.
///
/// From 16 on by five terms of Stirling's series, below by the recurrence `σ(z) = σ(z+1) + (z+½) ln(1+1/z) − 1`.
pub(crate) fn stirling_remainder(z: f64) -> f64 {
    let (mut z, mut sum) = (z, 0.0);
    while z < 16.0 {
        sum += (z + 0.5) * (1.0 / z).ln_1p() - 1.0;
        z += 1.0;
    }
    let r = 1.0 / z;
    let r2 = r * r;
    sum + r * (1.0 / 12.0 - r2 * (1.0 / 360.0 - r2 * (1.0 / 1260.0 - r2 * (1.0 / 1680.0 - r2 / 1188.0))))
}

/// What the blocks say about the variance of a count.
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

/// Steps of the bisection of a probability: enough for the last digit.
const STEPS: u32 = 60;

/// The ranks between which the `q`-quantile of `n` values lies: the largest count below `q n` that contradicts "a share `q` is
/// below", and the smallest above.
///
/// `None` where no count contradicts it. The quantile lies between the order statistics of rank `low + 1` and `high`.
pub(crate) fn rejected_ranks(n: u64, q: f64, variance: &BlockVariance, threshold: f64) -> (Option<u64>, Option<u64>) {
    let expected = n as f64 * q;
    let is_rejected = |count: u64| is_contradicted(count as f64, n as f64, q, variance, PRIOR, threshold);
    let low = is_rejected(0).then(|| bisect(0, expected.ceil() as u64, is_rejected));
    let high = is_rejected(n).then(|| bisect(n, expected.floor() as u64, is_rejected));
    (low, high)
}

/// The last count that is rejected, from `rejected` towards `accepted`.
fn bisect(rejected: u64, accepted: u64, is_rejected: impl Fn(u64) -> bool) -> u64 {
    let (mut rejected, mut accepted) = (rejected, accepted);
    while rejected.abs_diff(accepted) > 1 {
        let middle = rejected.midpoint(accepted);
        *(if is_rejected(middle) { &mut rejected } else { &mut accepted }) = middle;
    }
    rejected
}

/// The probabilities that `successes` of `trials` do not contradict at the level of an interval. From 0 to 1 without trials.
pub(crate) fn proportion_interval(successes: u64, trials: u64, variance: &BlockVariance, prior: f64) -> (f64, f64) {
    let (k, n) = (successes as f64, trials as f64);
    proportion_where(k, n, |p| is_contradicted(k, n, p, variance, prior, INTERVAL_EVIDENCE))
}

/// The interval of probabilities around `k/n` that are not rejected.
pub(crate) fn proportion_where(k: f64, n: f64, is_rejected: impl Fn(f64) -> bool) -> (f64, f64) {
    let share = if n > 0.0 { k / n } else { 0.5 };
    let bound = |extreme: f64| {
        if !is_rejected(extreme) {
            return extreme.round();
        }
        let (mut accepted, mut rejected) = (share, extreme);
        for _ in 0..STEPS {
            let middle = (accepted + rejected) / 2.0;
            *(if is_rejected(middle) { &mut rejected } else { &mut accepted }) = middle;
        }
        rejected
    };
    (bound(1e-12), bound(1.0 - 1e-12))
}

/// The largest expected share of routes that are named although nothing changed.
const FALSE_DISCOVERY_RATE: f64 = 0.05;

/// What can be said about the routes that are named.
pub const CHANGED_ROUTES_CLAIM: &str = "at most 5 % of those named are expected to be false";

/// The indices of the routes that changed, strongest first, from the natural logarithm of each route's e-value
/// ([`log_e_value`](super::LatencyReport::log_e_value)); `None` counts as no evidence.
///
/// Of R routes, the K with the largest e-values are named, for the largest K such that the K-th is at least R / (0.05 K).
/// Wang and Ramdas, JRSSB 2022; valid whatever the dependence between routes. Prefer it to reading many reports at 95 % each.
#[must_use]
pub fn changed_routes(log_e_values: &[Option<f64>]) -> Vec<usize> {
    let known = log_e_values.iter().enumerate().filter_map(|(route, log_e)| Some((route, (*log_e)?)));
    let mut strongest: Vec<_> = known.filter(|(_, log_e)| !log_e.is_nan()).collect();
    strongest.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    let routes = log_e_values.len() as f64;
    let is_named = |named: usize| strongest[named - 1].1 >= (routes / (named as f64 * FALSE_DISCOVERY_RATE)).ln();
    let named = (1..=strongest.len()).rev().find(|named| is_named(*named)).unwrap_or(0);
    strongest[..named].iter().map(|(route, _)| *route).collect()
}
