//! The report of one route, cost class, stage and candidate: estimates with intervals, verdicts, and how many more pairs they take.

mod estimates;
mod words;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[cfg(test)]
pub(crate) use estimates::log_ratio_interval;
pub(crate) use estimates::quantile_interval;
pub use estimates::{IntervalEstimate, Verdict};
use estimates::{MARGIN, further_pairs, side_ratio};
pub use words::{ASSUMPTIONS, sentence};

use super::bins::{BinCounts, latency_edge_ns, ratio_edge};
use super::block_variance::QuantileTracker;
use super::counts::PairCounts;
use super::evidence::{
    INTERVAL_EVIDENCE, PRIOR, RARE_PRIOR, VERDICT_EVIDENCE, log_beta_binomial, log_evidence, proportion_interval,
    proportion_where,
};
use super::tracking::{MEDIAN, Tracking};

/// The margin of p99: 10 %.
const TAIL_MARGIN: f64 = 0.1;
/// The index of p99 among the quantiles of a side.
const TAIL: usize = 2;

/// The statistics of the pairs of one route, cost class, stage and candidate.
///
/// All intervals hold together with 95 % confidence at every moment at which one looks (1/40 of error for the median, 1/520 for
/// each of thirteen others), as far as [`ASSUMPTIONS`] hold. The share of blocks with a mismatch has another 1/520. A report
/// costs about 0.1 ms.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LatencyReport {
    /// Pairs in the report, those with one failed side included.
    pub pairs: u64,
    /// Pairs in which the candidate was faster by at least 0.1 %.
    pub wins: u64,
    /// Pairs in which it was slower by at least 0.1 %.
    pub losses: u64,
    /// Pairs in which neither was.
    pub ties: u64,
    /// Pairs of which only the baseline failed: won by the candidate.
    pub baseline_failed: u64,
    /// Pairs of which only the candidate failed: lost by it.
    pub candidate_failed: u64,
    /// Pairs whose sides both failed, which are left out.
    pub both_failed: u64,
    /// What the median of the pairs' ratios says, with a margin of 2 %.
    pub verdict: Verdict,
    /// What the ratio of the sides' p99 says, with a margin of 10 %.
    pub tail_verdict: Verdict,
    /// Whether nothing can be said about the median yet, because its interval has no bounds. It takes about 13 blocks, 13 s.
    pub is_too_early: bool,
    /// How many more pairs until some verdict on the median, if what was seen goes on; `None` if none is in sight.
    pub further_pairs: Option<u64>,
    /// How long these take at the rate so far, in seconds.
    pub further_seconds: Option<f64>,
    /// Quantiles of the ratio within a pair, candidate to baseline.
    pub paired_ratio: RatioEstimates,
    /// The share of wins among wins and losses.
    pub win_share: IntervalEstimate,
    /// Latency quantiles of the baseline, in nanoseconds.
    pub baseline_ns: QuantileEstimates,
    /// Latency quantiles of the candidate, in nanoseconds.
    pub candidate_ns: QuantileEstimates,
    /// The ratios of the sides' quantiles, candidate to baseline.
    pub quantile_ratios: QuantileEstimates,
    /// How often outputs differed.
    pub mismatches: MismatchReport,
    /// The number of independent pairs that would vary as much as these; `None` before the first block.
    pub effective_pairs: Option<f64>,
    /// Whether requests depend on each other so much that they count as less than a quarter of their number.
    pub are_pairs_dependent: bool,
    /// The natural logarithm of the e-value against "wins and losses are equally likely"; `None` if neither is a majority of all
    /// pairs, or before the first block. [`changed_routes`](super::changed_routes) takes it.
    pub log_e_value: Option<f64>,
}

/// Quantiles of the ratio within a pair.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RatioEstimates {
    /// A tenth of the pairs have a lower ratio.
    pub p10: IntervalEstimate,
    /// The median, on which the verdict rests.
    pub p50: IntervalEstimate,
    /// A tenth of the pairs have a higher ratio.
    pub p90: IntervalEstimate,
}

/// Quantiles of a side, or the ratios of both sides'.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct QuantileEstimates {
    /// The median.
    pub p50: IntervalEstimate,
    /// 90 % are lower.
    pub p90: IntervalEstimate,
    /// 99 % are lower.
    pub p99: IntervalEstimate,
}

/// How often outputs differed, by comparison and by time block.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MismatchReport {
    /// Comparisons that differed.
    pub mismatches: u64,
    /// All comparisons that were judged.
    pub compared: u64,
    /// Of these, those that differ only in what the baseline's own outputs differ in as much.
    #[serde(default)]
    pub excused: u64,
    /// Comparisons that could not be judged, in addition to `compared`.
    #[serde(default)]
    pub unjudged: u64,
    /// The share of mismatches in what was judged.
    pub rate: IntervalEstimate,
    /// Time blocks with a mismatch.
    pub blocks_with_mismatch: u64,
    /// Time blocks with a comparison.
    pub blocks: u64,
    /// Their share. Where mismatches come in bursts this is the bound to rely on.
    pub block_share: IntervalEstimate,
}

impl LatencyReport {
    /// For independent pairs 30 blocks suffice to distinguish dependence from chance.
    const BLOCKS_TO_WARN: f64 = 30.0;

    /// The report of what was counted until now, the open block included.
    #[must_use]
    pub fn new(counts: &PairCounts, tracking: &Tracking) -> Self {
        let (wins, losses, pairs) = (counts.wins(), counts.losses(), counts.pairs());
        let paired = |i: usize| {
            let evidence = if i == MEDIAN { VERDICT_EVIDENCE } else { INTERVAL_EVIDENCE };
            quantile_estimate(&counts.ratios, &tracking.ratios[i], evidence, ratio_edge)
        };
        let paired_ratio = RatioEstimates { p10: paired(0), p50: paired(MEDIAN), p90: paired(2) };
        let quantile_ratios = QuantileEstimates::of(|i| side_ratio(counts, tracking, i));
        let further_pairs = further_pairs(counts, tracking);
        let median = tracking.ratios[MEDIAN].variance(&counts.ratios);
        let effective_pairs = (median.variance > 0.0).then(|| 0.25 * (pairs as f64).powi(2) / median.variance);
        let verdict = Verdict::of(&paired_ratio.p50, MARGIN);
        let majority = wins.max(losses);
        let log_e = || log_evidence(majority as f64, pairs as f64, 0.5, &median, PRIOR);
        Self {
            pairs,
            wins,
            losses,
            ties: pairs - wins - losses,
            baseline_failed: counts.baseline_failed,
            candidate_failed: counts.candidate_failed,
            both_failed: counts.both_failed,
            verdict,
            tail_verdict: Verdict::of(&quantile_ratios.p99, TAIL_MARGIN),
            is_too_early: verdict == Verdict::Undecided && paired_ratio.p50.is_unbounded(),
            further_pairs,
            further_seconds: further_pairs
                .filter(|_| pairs > 0)
                .map(|n| n as f64 * tracking.elapsed().as_secs_f64() / pairs as f64),
            paired_ratio,
            win_share: {
                let variance = tracking.wins.variance(wins, wins + losses);
                IntervalEstimate::share(wins, wins + losses, proportion_interval(wins, wins + losses, &variance, PRIOR))
            },
            baseline_ns: QuantileEstimates::of(|i| side_estimate(&counts.baseline, &tracking.baseline[i])),
            candidate_ns: QuantileEstimates::of(|i| side_estimate(&counts.candidate, &tracking.candidate[i])),
            quantile_ratios,
            mismatches: MismatchReport::new(counts, tracking),
            effective_pairs,
            are_pairs_dependent: median.blocks >= Self::BLOCKS_TO_WARN && effective_pairs.is_some_and(|n| 4.0 * n < pairs as f64),
            log_e_value: (2 * majority > pairs).then(log_e).filter(|log_e| log_e.is_finite()),
        }
    }
}

impl QuantileEstimates {
    fn of(estimate: impl Fn(usize) -> IntervalEstimate) -> Self {
        Self { p50: estimate(0), p90: estimate(1), p99: estimate(TAIL) }
    }
}

impl MismatchReport {
    fn new(counts: &PairCounts, tracking: &Tracking) -> Self {
        let (mismatches, compared) = (counts.mismatches, counts.compared);
        let variance = tracking.mismatches.variance(mismatches, compared);
        let blocks = tracking.mismatch_blocks;
        let (k, n) = (blocks.with_mismatch as f64, blocks.compared as f64);
        // before the first block no comparison says anything, as everywhere else
        let of_blocks = proportion_where(k, n, |p| n > 0.0 && log_beta_binomial(k, n, p, RARE_PRIOR) >= INTERVAL_EVIDENCE);
        Self {
            mismatches,
            compared,
            excused: counts.excused,
            unjudged: counts.unjudged,
            rate: IntervalEstimate::share(mismatches, compared, proportion_interval(mismatches, compared, &variance, RARE_PRIOR)),
            blocks_with_mismatch: blocks.with_mismatch,
            blocks: blocks.compared,
            block_share: IntervalEstimate::share(blocks.with_mismatch, blocks.compared, of_blocks),
        }
    }
}

fn quantile_estimate(bins: &BinCounts, tracker: &QuantileTracker, evidence: f64, edge: fn(usize) -> f64) -> IntervalEstimate {
    let middle = |bin| (edge(bin) * edge(bin + 1)).sqrt();
    let value = bins.find(tracker.quantile * bins.total() as f64).map(middle);
    IntervalEstimate::new(value, quantile_interval(bins, tracker, evidence, edge))
}

fn side_estimate(bins: &BinCounts, tracker: &QuantileTracker) -> IntervalEstimate {
    quantile_estimate(bins, tracker, INTERVAL_EVIDENCE, latency_edge_ns)
}
