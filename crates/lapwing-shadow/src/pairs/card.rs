//! What is known of one target against the upstream, for requests of one route, model and cost class.

use std::time::Duration;

use super::agreement::OutputResult;
use super::half::PairFigure;
use super::half::{HalfOutcome, PairHalf};
use lapwing_compare::ab::{LatencyReport, PairCounts, PairSide, Tracking};
use lapwing_ledger::CopyCause;

/// The counts of one figure and how they vary over time.
#[derive(Debug, Default)]
struct Tracked {
    counts: PairCounts,
    ratios: RatioHistogram,
    tracking: Tracking,
}

/// Counts by figure.
#[derive(Debug, Default)]
pub(crate) struct Card {
    /// Boxed, because most figures are told by few servers.
    figures: [Option<Box<Tracked>>; PairFigure::ALL.len()],
    /// When its first pair was recorded, from the start of the process.
    since: Duration,
}

impl Card {
    pub(crate) fn new(since: Duration) -> Self {
        Self { since, ..Self::default() }
    }

    /// Records a pair.
    pub(crate) fn record(&mut self, primary: &PairHalf, copy: &PairHalf) {
        for (index, tracked) in self.figures.iter_mut().enumerate() {
            let (baseline, candidate) = (primary.figures[index], copy.figures[index]);
            match (primary.outcome, copy.outcome) {
                (HalfOutcome::Answered, HalfOutcome::Answered) => {
                    if let (Some(baseline), Some(candidate)) = (baseline, candidate) {
                        let tracked = tracked.get_or_insert_default();
                        tracked.counts.record(baseline, candidate);
                        // ratios are added up over classes, which quotas take out of proportion
                        if primary.copied != Some(CopyCause::Quota) {
                            tracked.ratios.record(baseline, candidate);
                        }
                    }
                }
                // a failure has no stages: it counts for every figure that the other side has
                (HalfOutcome::Answered, HalfOutcome::Failed) => {
                    if let Some(baseline) = baseline {
                        tracked.get_or_insert_default().counts.record_failed_side(PairSide::Candidate, baseline);
                    }
                }
                (HalfOutcome::Failed, HalfOutcome::Answered) => {
                    if let Some(candidate) = candidate {
                        tracked.get_or_insert_default().counts.record_failed_side(PairSide::Baseline, candidate);
                    }
                }
                (HalfOutcome::Failed, HalfOutcome::Failed) if index == 0 => {
                    tracked.get_or_insert_default().counts.record_both_failed();
                }
                _ => {}
            }
        }
    }

    /// Records how the outputs of a pair compare.
    pub(crate) fn record_outputs(&mut self, result: OutputResult) {
        let counts = &mut self.figures[0].get_or_insert_default().counts;
        match result {
            OutputResult::Unjudged => counts.record_unjudged(),
            OutputResult::Noise => counts.record_excused(),
            OutputResult::Same | OutputResult::Mismatch | OutputResult::Status => counts.record_mismatch(result.is_mismatch()),
        }
    }

    /// Closes the blocks that have ended at `now`, from the start of the process.
    pub(crate) fn tick(&mut self, now: Duration) {
        for tracked in self.figures.iter_mut().flatten() {
            tracked.tracking.tick(&tracked.counts, now.saturating_sub(self.since));
        }
    }

    /// The report of the whole upstream window; `None` without a pair.
    pub(crate) fn total(&self) -> Option<LatencyReport> {
        let tracked = self.figures[0].as_ref().filter(|tracked| tracked.counts.pairs() > 0)?;
        Some(LatencyReport::new(&tracked.counts, &tracked.tracking))
    }

    /// The report of each figure that both sides have.
    pub(crate) fn reports(&self) -> Vec<(PairFigure, LatencyReport)> {
        let report = |tracked: &Tracked| LatencyReport::new(&tracked.counts, &tracked.tracking);
        let figures = PairFigure::ALL.iter().zip(&self.figures);
        figures.filter_map(|(figure, tracked)| Some((*figure, report(tracked.as_deref()?)))).collect()
    }

    /// The counts of each figure that both sides have.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (PairFigure, &PairCounts)> {
        let figures = PairFigure::ALL.iter().zip(&self.figures);
        figures.filter_map(|(figure, tracked)| Some((*figure, &tracked.as_deref()?.counts)))
    }

    /// The ratios of each figure that both sides have.
    pub(crate) fn ratios(&self) -> impl Iterator<Item = (PairFigure, &RatioHistogram)> {
        let figures = PairFigure::ALL.iter().zip(&self.figures);
        figures.filter_map(|(figure, tracked)| Some((*figure, &tracked.as_deref()?.ratios)))
    }

    /// The memory that it takes, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let tracked = self.figures.iter().flatten().map(|tracked| tracked.counts.memory_bytes() + size_of::<Tracking>());
        size_of::<Self>() + tracked.sum::<usize>()
    }
}

/// The upper bounds of the buckets; one without a bound follows. 1 means as fast as the upstream, 0.5 twice as fast.
pub const RATIO_BOUNDS: [f64; 19] =
    [0.1, 0.2, 0.33, 0.5, 0.67, 0.8, 0.9, 0.95, 0.98, 1.0, 1.02, 1.05, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0];

/// Ratios of pairs whose sides were both answered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RatioHistogram {
    /// Pairs by bucket.
    pub buckets: [u64; RATIO_BOUNDS.len() + 1],
    /// The sum of the ratios, in millionths: integers, so that it does not depend on the order of adding.
    pub sum_millionths: u64,
}

impl RatioHistogram {
    /// Records a pair; one whose baseline took no time has no ratio.
    #[allow(clippy::cast_precision_loss, reason = "a ratio")]
    pub(crate) fn record(&mut self, baseline_ns: u64, candidate_ns: u64) {
        if baseline_ns == 0 {
            return;
        }
        let ratio = candidate_ns as f64 / baseline_ns as f64;
        let bucket = RATIO_BOUNDS.iter().position(|bound| ratio <= *bound).unwrap_or(RATIO_BOUNDS.len());
        self.buckets[bucket] += 1;
        let millionths = u128::from(candidate_ns) * 1_000_000 / u128::from(baseline_ns);
        self.sum_millionths = self.sum_millionths.saturating_add(u64::try_from(millionths).unwrap_or(u64::MAX));
    }

    /// The pairs in all buckets.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_in_the_bucket_whose_bound_it_does_not_exceed() {
        let mut ratios = RatioHistogram::default();
        for (baseline, candidate) in [(1_000, 500), (1_000, 1_000), (1_000, 1_001), (1_000, 50_000), (0, 7)] {
            ratios.record(baseline, candidate);
        }
        let filled: Vec<usize> = (0..ratios.buckets.len()).filter(|at| ratios.buckets[*at] > 0).collect();
        assert_eq!((filled, ratios.count()), (vec![3, 9, 10, RATIO_BOUNDS.len()], 4));
        assert_eq!(ratios.sum_millionths, 500_000 + 1_000_000 + 1_001_000 + 50_000_000);
    }
}
