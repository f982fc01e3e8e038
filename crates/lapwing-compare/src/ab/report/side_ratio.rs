//! The ratio of the sides' quantiles, with an interval from the sides' intervals and the correlation of their blocks.

use super::{INTERVAL_EVIDENCE, IntervalEstimate, quantile_interval};
use crate::ab::counts::{BinCounts, PairCounts, latency_edge_ns};
use crate::ab::tracking::{QuantileTracker, Tracking};

/// Half the width of a latency bin, in logarithms, on each side.
const BIN_WIDTH: f64 = 0.001;

/// The ratio of quantile `i` of the sides, candidate to baseline.
pub(crate) fn estimate(counts: &PairCounts, tracking: &Tracking, i: usize) -> IntervalEstimate {
    let of = |bins: &BinCounts, tracker| Some(log_quantile(bins, tracker)?.exp());
    let baseline = of(&counts.baseline, &tracking.baseline[i]);
    let ratio = of(&counts.candidate, &tracking.candidate[i]).zip(baseline).map(|(candidate, baseline)| candidate / baseline);
    let (low, high) = log_ratio_interval(counts, tracking, i);
    IntervalEstimate::new(ratio, (low.exp(), high.exp()))
}

/// The interval of the natural logarithm of that ratio, infinite while an interval of a side is.
///
/// MOVER (Zou and Donner, Stat. Med. 2008) with the correlation of the sides' block sums, lowered by two standard errors. That it
/// holds for confidence sequences too rests on simulation.
pub(crate) fn log_ratio_interval(counts: &PairCounts, tracking: &Tracking, i: usize) -> (f64, f64) {
    let unknown = (f64::NEG_INFINITY, f64::INFINITY);
    let (baseline, candidate) = (&tracking.baseline[i], &tracking.candidate[i]);
    let interval = |bins: &BinCounts, tracker| quantile_interval(bins, tracker, INTERVAL_EVIDENCE, latency_edge_ns);
    let (baseline_low, baseline_high) = interval(&counts.baseline, baseline);
    let (candidate_low, candidate_high) = interval(&counts.candidate, candidate);
    let is_known = |low: f64, high: f64| low > 0.0 && high < f64::INFINITY;
    if !is_known(baseline_low, baseline_high) || !is_known(candidate_low, candidate_high) {
        return unknown;
    }
    let squares = baseline.squares() * candidate.squares();
    let middles = log_quantile(&counts.baseline, baseline).zip(log_quantile(&counts.candidate, candidate));
    let Some((baseline_middle, candidate_middle)) = middles.filter(|_| squares > 0.0) else { return unknown };
    let correlation = tracking.side_products[i] / squares.sqrt();
    let error = (1.0 - correlation * correlation) / baseline.closed_blocks().sqrt();
    let correlation = (correlation - 2.0 * error).clamp(-1.0, 1.0);
    let width = |x: f64, y: f64| (x * x + y * y - 2.0 * correlation * x * y).max(0.0).sqrt() + BIN_WIDTH;
    let ratio = candidate_middle - baseline_middle;
    let below = width(candidate_middle - candidate_low.ln(), baseline_high.ln() - baseline_middle);
    let above = width(candidate_high.ln() - candidate_middle, baseline_middle - baseline_low.ln());
    (ratio - below, ratio + above)
}

/// The natural logarithm of a quantile in nanoseconds: the middle of its bin.
fn log_quantile(bins: &BinCounts, tracker: &QuantileTracker) -> Option<f64> {
    let bin = bins.find(tracker.quantile * bins.total() as f64)?;
    Some(0.5 * (latency_edge_ns(bin).ln() + latency_edge_ns(bin + 1).ln()))
}
