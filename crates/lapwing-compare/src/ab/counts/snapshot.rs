//! The counts as they travel between pods: the non-empty bins only. What another pod sends is checked before it is used.

use serde::{Deserialize, Serialize};

use super::{BinCounts, LATENCY_BINS, PairCounts, RATIO_BINS};

/// The greatest count that is accepted: 2⁵³, up to which floating point counts exactly.
const MAX_COUNT: u64 = 1 << 53;

/// The serialised form of [`PairCounts`]. Each histogram is a list of its non-empty bins as `[bin, count]`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SparsePairCounts {
    ratios: Vec<(usize, u64)>,
    baseline: Vec<(usize, u64)>,
    candidate: Vec<(usize, u64)>,
    mismatches: u64,
    compared: u64,
    #[serde(default)]
    excused: u64,
    #[serde(default)]
    unjudged: u64,
    baseline_failed: u64,
    candidate_failed: u64,
    both_failed: u64,
}

/// Why counts of another pod are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// The histogram has no such bin.
    #[error("histogram {histogram} has no bin {bin}")]
    UnknownBin {
        /// Which histogram.
        histogram: &'static str,
        /// The bin that was sent.
        bin: usize,
    },
    /// A count is larger than 2⁵³.
    #[error("{what} counts more than 2^53")]
    TooLarge {
        /// Which count.
        what: &'static str,
    },
    /// Counts contradict each other.
    #[error("{0}")]
    Inconsistent(&'static str),
}

impl From<PairCounts> for SparsePairCounts {
    fn from(counts: PairCounts) -> Self {
        Self {
            ratios: counts.ratios.non_empty().collect(),
            baseline: counts.baseline.non_empty().collect(),
            candidate: counts.candidate.non_empty().collect(),
            mismatches: counts.mismatches,
            compared: counts.compared,
            excused: counts.excused,
            unjudged: counts.unjudged,
            baseline_failed: counts.baseline_failed,
            candidate_failed: counts.candidate_failed,
            both_failed: counts.both_failed,
        }
    }
}

impl TryFrom<SparsePairCounts> for PairCounts {
    type Error = SnapshotError;

    fn try_from(sparse: SparsePairCounts) -> Result<Self, SnapshotError> {
        let counts = Self {
            ratios: dense("ratios", &sparse.ratios, RATIO_BINS)?,
            baseline: dense("baseline", &sparse.baseline, LATENCY_BINS)?,
            candidate: dense("candidate", &sparse.candidate, LATENCY_BINS)?,
            mismatches: sparse.mismatches,
            compared: sparse.compared,
            excused: sparse.excused,
            unjudged: sparse.unjudged,
            baseline_failed: sparse.baseline_failed,
            candidate_failed: sparse.candidate_failed,
            both_failed: sparse.both_failed,
        };
        let pairs = counts.ratios.total();
        if counts.baseline.total() != pairs || counts.candidate.total() != pairs {
            return Err(SnapshotError::Inconsistent("the histograms count different numbers of pairs"));
        }
        if counts.mismatches.checked_add(counts.excused).is_none_or(|differing| differing > counts.compared) {
            return Err(SnapshotError::Inconsistent("there are more mismatches than comparisons"));
        }
        if counts.baseline_failed.checked_add(counts.candidate_failed).is_none_or(|failed| failed > pairs) {
            return Err(SnapshotError::Inconsistent("there are more failed sides than pairs"));
        }
        for (what, count) in [("compared", counts.compared), ("unjudged", counts.unjudged), ("both_failed", counts.both_failed)] {
            if count > MAX_COUNT {
                return Err(SnapshotError::TooLarge { what });
            }
        }
        Ok(counts)
    }
}

fn dense(histogram: &'static str, sparse: &[(usize, u64)], bins: usize) -> Result<BinCounts, SnapshotError> {
    let mut counts = BinCounts::new(bins);
    for (bin, count) in sparse {
        if *bin >= bins {
            return Err(SnapshotError::UnknownBin { histogram, bin: *bin });
        }
        if count.checked_add(counts.total()).is_none_or(|total| total > MAX_COUNT) {
            return Err(SnapshotError::TooLarge { what: histogram });
        }
        counts.add(*bin, *count);
    }
    Ok(counts)
}
