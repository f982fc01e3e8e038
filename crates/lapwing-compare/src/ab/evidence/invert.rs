//! The evidence inverted: which ranks and which probabilities the counts contradict.

use super::{BlockVariance, INTERVAL_EVIDENCE, PRIOR, is_contradicted};

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
