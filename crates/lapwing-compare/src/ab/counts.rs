//! What is kept of the pairs: counts, nothing else, so that pods, windows and runs add up. Latencies are nanoseconds. Between pods
//! they travel as their non-empty bins; what another pod sends is checked before it is used.

use serde::{Deserialize, Serialize};

use super::bins::{BinCounts, LATENCY_BINS, LATENCY_OVERFLOW, RATIO_BINS, TIE, latency_bin, ratio_bin};

/// One of the two sides of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PairSide {
    /// What serves now: the primary.
    Baseline,
    /// What might replace it: the shadow.
    Candidate,
}

/// The counts of all pairs of one route, cost class, stage and candidate.
///
/// Every field is a count that only grows, so the counts of pods are added ([`merge`](Self::merge)), and any split of the same
/// pairs over pods has the same sum. A pair costs three histogram increments, about 20 ns. Memory follows the latencies seen: 4
/// KiB for each side and 1 KiB for each eighth of an octave, 280 KiB at the very most.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "SparsePairCounts", try_from = "SparsePairCounts")]
pub struct PairCounts {
    pub(crate) ratios: BinCounts,
    pub(crate) baseline: BinCounts,
    pub(crate) candidate: BinCounts,
    pub(crate) mismatches: u64,
    pub(crate) compared: u64,
    /// Of `compared`, those that differ only in what the baseline differs in by itself.
    pub(crate) excused: u64,
    /// Comparisons that could not be judged, which are not in `compared`.
    pub(crate) unjudged: u64,
    pub(crate) baseline_failed: u64,
    pub(crate) candidate_failed: u64,
    pub(crate) both_failed: u64,
}

impl Default for PairCounts {
    fn default() -> Self {
        Self {
            ratios: BinCounts::new(RATIO_BINS),
            baseline: BinCounts::new(LATENCY_BINS),
            candidate: BinCounts::new(LATENCY_BINS),
            mismatches: 0,
            compared: 0,
            excused: 0,
            unjudged: 0,
            baseline_failed: 0,
            candidate_failed: 0,
            both_failed: 0,
        }
    }
}

impl PairCounts {
    /// Records a pair whose sides both answered.
    pub fn record(&mut self, baseline_ns: u64, candidate_ns: u64) {
        self.ratios.record(ratio_bin(baseline_ns, candidate_ns));
        self.baseline.record(latency_bin(baseline_ns));
        self.candidate.record(latency_bin(candidate_ns));
    }

    /// Records a pair of which `failed` failed or timed out, while the other side took `other_ns`.
    ///
    /// The failed side's latency counts as infinite: a quick error is never an improvement, and a timeout is not missing.
    pub fn record_failed_side(&mut self, failed: PairSide, other_ns: u64) {
        let other = latency_bin(other_ns);
        let (ratio, baseline, candidate, failures) = match failed {
            PairSide::Baseline => (0, LATENCY_OVERFLOW, other, &mut self.baseline_failed),
            PairSide::Candidate => (RATIO_BINS - 1, other, LATENCY_OVERFLOW, &mut self.candidate_failed),
        };
        *failures += 1;
        self.ratios.record(ratio);
        self.baseline.record(baseline);
        self.candidate.record(candidate);
    }

    /// Counts a pair whose sides both failed. It says nothing of latency and is left out of everything else.
    pub fn record_both_failed(&mut self) {
        self.both_failed += 1;
    }

    /// Records the comparison of a pair's outputs: whether they differ. Comparisons may come later than latencies, and fewer.
    pub fn record_mismatch(&mut self, differs: bool) {
        self.compared += 1;
        self.mismatches += u64::from(differs);
    }

    /// Records outputs that differ only in what the baseline's own differ in.
    pub fn record_excused(&mut self) {
        self.record_mismatch(false);
        self.excused += 1;
    }

    /// Records outputs that cannot be judged.
    pub fn record_unjudged(&mut self) {
        self.unjudged += 1;
    }

    /// How many comparisons of outputs were judged.
    #[must_use]
    pub const fn judged(&self) -> u64 {
        self.compared
    }

    /// How many pairs both of whose sides failed.
    #[must_use]
    pub const fn both_failed(&self) -> u64 {
        self.both_failed
    }

    /// Adds the counts of another pod or another period.
    pub fn merge(&mut self, other: &Self) {
        self.ratios.merge(&other.ratios);
        self.baseline.merge(&other.baseline);
        self.candidate.merge(&other.candidate);
        for (sum, addend) in self.scalars_mut().into_iter().zip(other.scalars()) {
            *sum = sum.saturating_add(addend);
        }
    }

    /// Adds what a pod counted between two of its snapshots. A count that decreased means that the pod restarted between them;
    /// then all of `now` is new. A caller that knows about a restart passes empty counts as `before`.
    pub fn add_increase(&mut self, before: &Self, now: &Self) {
        match now.since(before) {
            Some(increase) => self.merge(&increase),
            None => self.merge(now),
        }
    }

    fn since(&self, before: &Self) -> Option<Self> {
        let mut increase = Self {
            ratios: self.ratios.since(&before.ratios)?,
            baseline: self.baseline.since(&before.baseline)?,
            candidate: self.candidate.since(&before.candidate)?,
            ..Self::default()
        };
        for ((difference, now), then) in increase.scalars_mut().into_iter().zip(self.scalars()).zip(before.scalars()) {
            *difference = now.checked_sub(then)?;
        }
        Some(increase)
    }

    fn scalars(&self) -> [u64; 7] {
        let Self { mismatches, compared, excused, unjudged, baseline_failed, candidate_failed, both_failed, .. } = self;
        [mismatches, compared, excused, unjudged, baseline_failed, candidate_failed, both_failed].map(|count| *count)
    }

    fn scalars_mut(&mut self) -> [&mut u64; 7] {
        let Self { mismatches, compared, excused, unjudged, baseline_failed, candidate_failed, both_failed, .. } = self;
        [mismatches, compared, excused, unjudged, baseline_failed, candidate_failed, both_failed]
    }

    /// How many pairs were recorded, without those whose sides both failed.
    #[must_use]
    pub fn pairs(&self) -> u64 {
        self.ratios.total()
    }

    /// Pairs in which the candidate was faster by 0.1 % or more, or alone answered.
    #[must_use]
    pub fn wins(&self) -> u64 {
        self.ratios.below(TIE)
    }

    /// Pairs in which the candidate was slower by 0.1 % or more, or alone failed.
    #[must_use]
    pub fn losses(&self) -> u64 {
        self.pairs() - self.ratios.below(TIE + 1)
    }

    /// The memory that the counts take, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.ratios.heap_bytes() + self.baseline.heap_bytes() + self.candidate.heap_bytes()
    }
}

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
