//! What a report is made of: an estimate with its interval, of a quantile or of the ratio of the sides, what such an interval says
//! of the candidate, and how many more pairs a verdict takes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ab::bins::{BinCounts, RATIO_BINS, TIE, latency_edge_ns, ratio_edge};
use crate::ab::block_variance::QuantileTracker;
use crate::ab::counts::PairCounts;
use crate::ab::evidence::{BlockVariance, INTERVAL_EVIDENCE, PRIOR, VERDICT_EVIDENCE, log_evidence, rejected_ranks};
use crate::ab::tracking::{MEDIAN, Tracking};

/// Within which relative difference of the median two sides are the same: 2 %.
pub(crate) const MARGIN: f64 = 0.02;

/// An estimate and the interval that holds the true value, together with all other intervals of its report.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct IntervalEstimate {
    /// The estimate; `None` without data, or where the quantile lies among failed sides.
    pub value: Option<f64>,
    /// The lower bound; 0 where nothing is known yet.
    pub low: f64,
    /// The upper bound; `None` where there is none yet.
    pub high: Option<f64>,
}

impl IntervalEstimate {
    pub(crate) fn new(value: Option<f64>, (low, high): (f64, f64)) -> Self {
        Self { value: value.filter(|value| value.is_finite()), low, high: Some(high).filter(|high| high.is_finite()) }
    }

    /// A share of `successes` among `trials`, with an interval within 0 and 1.
    pub(crate) fn share(successes: u64, trials: u64, interval: (f64, f64)) -> Self {
        Self::new(Some(successes as f64 / trials as f64), interval)
    }

    /// Whether a bound is missing, because it is too early for one or because one side fails.
    #[must_use]
    pub fn is_unbounded(&self) -> bool {
        self.high.is_none() || self.low <= 0.0
    }
}

/// The interval of a quantile, rounded outward to edges of bins; from 0 to infinity where nothing is known.
///
/// Howard and Ramdas, Bernoulli 28(3), 2022, theorem 1: the quantile lies between order statistics whose ranks are not rejected.
pub(crate) fn quantile_interval(
    bins: &BinCounts,
    tracker: &QuantileTracker,
    evidence: f64,
    edge: fn(usize) -> f64,
) -> (f64, f64) {
    let (low, high) = rejected_ranks(bins.total(), tracker.quantile, &tracker.variance(bins), evidence);
    let low = low.and_then(|rank| bins.find((rank + 1) as f64));
    let high = high.and_then(|rank| bins.find(rank as f64));
    (low.map_or(0.0, edge), high.map_or(f64::INFINITY, |bin| edge(bin + 1)))
}

/// Whether the candidate is faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// All of the interval lies below 1.
    Faster,
    /// All of the interval lies above 1.
    Slower,
    /// All of the interval lies within the margin, even if it also lies on one side of 1.
    Same,
    /// The interval allows more than one of these.
    Undecided,
}

impl Verdict {
    /// The verdict of an interval of ratios, candidate to baseline. `margin` is relative: 0.02 counts 1/1.02 to 1.02 as the same.
    pub(crate) fn of(ratio: &IntervalEstimate, margin: f64) -> Self {
        let (low, high) = (ratio.low, ratio.high.unwrap_or(f64::INFINITY));
        if low >= 1.0 / (1.0 + margin) && high <= 1.0 + margin {
            Self::Same
        } else if high < 1.0 {
            Self::Faster
        } else if low > 1.0 {
            Self::Slower
        } else {
            Self::Undecided
        }
    }

    /// Its name in surfaces: `faster`, `slower`, `same` or `undecided`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Faster => "faster",
            Self::Slower => "slower",
            Self::Same => "same",
            Self::Undecided => "undecided",
        }
    }
}

/// Half the width of a latency bin, in logarithms, on each side.
const BIN_WIDTH: f64 = 0.001;

/// The ratio of quantile `i` of the sides, candidate to baseline.
pub(crate) fn side_ratio(counts: &PairCounts, tracking: &Tracking, i: usize) -> IntervalEstimate {
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

/// Beyond this number of pairs no verdict is in sight.
const MOST_PAIRS: u64 = 1_000_000_000;
/// Blocks grow longer, so their number does not grow with the pairs beyond this.
const MOST_BLOCKS: f64 = 128.0;

/// How many more pairs until some verdict on the median; 0 if there is one, `None` if none is in sight.
///
/// Shares, variance and the number of blocks are those seen, scaled to more pairs; in simulations half the estimates were within
/// a factor of 1.1 of what it took, four in five within 0.9 and 2.3.
pub(crate) fn further_pairs(counts: &PairCounts, tracking: &Tracking) -> Option<u64> {
    let (ratios, n) = (&counts.ratios, counts.pairs());
    let seen = tracking.ratios[MEDIAN].variance(ratios);
    if seen.blocks == 0.0 {
        return None;
    }
    let share_below = |bin| ratios.below(bin) as f64 / n as f64;
    let upper = (TIE..RATIO_BINS).find(|bin| ratio_edge(bin + 1) > 1.0 + MARGIN)?;
    let lower = (0..=TIE).rev().find(|bin| ratio_edge(*bin) < 1.0 / (1.0 + MARGIN))?;
    let (faster, slower) = (share_below(TIE), 1.0 - share_below(TIE + 1));
    let (below_margin, above_margin) = (share_below(upper), 1.0 - share_below(lower + 1));

    let is_majority = |share: f64, pairs: u64| {
        let pairs = pairs as f64;
        let growth = pairs / n as f64;
        let variance = BlockVariance {
            variance: seen.variance * pairs / n as f64,
            blocks: (seen.blocks * growth).min(seen.blocks.max(MOST_BLOCKS)),
            ..seen
        };
        share > 0.5 && log_evidence(share * pairs, pairs, 0.5, &variance, PRIOR) >= VERDICT_EVIDENCE
    };
    let is_decided = |pairs| {
        is_majority(faster, pairs)
            || is_majority(slower, pairs)
            || (is_majority(below_margin, pairs) && is_majority(above_margin, pairs))
    };
    let (mut undecided, mut decided) = (n, n);
    while !is_decided(decided) {
        (undecided, decided) = (decided, 2 * decided);
        if decided > MOST_PAIRS {
            return None;
        }
    }
    while decided - undecided > 1 {
        let middle = undecided.midpoint(decided);
        *(if is_decided(middle) { &mut decided } else { &mut undecided }) = middle;
    }
    Some(decided - n)
}
