//! What is known of one target against the upstream, for requests of one route, model and cost class.

use std::time::Duration;

use super::agreement::OutputResult;
use super::figure::PairFigure;
use super::half::{HalfOutcome, PairHalf};
use super::ratios::RatioHistogram;
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
