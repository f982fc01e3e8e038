//! A block of time: its cells, its arrivals, and how its service times vary. Neighbouring blocks merge by addition.

use super::cells::{Cells, WideCells};

/// Buckets of the ratio of a service time to its mean, six for each doubling.
pub(crate) const RATIO_BUCKETS: usize = 64;
/// Buckets below the mean itself.
const BELOW: i32 = 15;
const PER_DOUBLING: f64 = 6.0;

/// How service times vary about their mean: counts of the ratio to it, from 1/6 of it to 270 times it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ratios(pub(crate) [u32; RATIO_BUCKETS]);

impl Default for Ratios {
    fn default() -> Self {
        Self([0; RATIO_BUCKETS])
    }
}

impl Ratios {
    /// Counts a ratio.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within the buckets")]
    pub(crate) fn record(&mut self, ratio: f64) {
        let bucket = (ratio.max(1e-6).log2() * PER_DOUBLING).round() as i32 + BELOW;
        let bucket = &mut self.0[bucket.clamp(0, RATIO_BUCKETS as i32 - 1) as usize];
        *bucket = bucket.saturating_add(1);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (count, more) in self.0.iter_mut().zip(other.0) {
            *count = count.saturating_add(more);
        }
    }

    /// How many ratios were counted.
    pub(crate) fn total(&self) -> u64 {
        self.0.iter().map(|count| u64::from(*count)).sum()
    }

    /// The ratio at a place of a bucket, `0..1`.
    pub(crate) fn ratio(bucket: usize, place: f64) -> f64 {
        ((bucket as f64 - f64::from(BELOW) + place - 0.5) / PER_DOUBLING).exp2()
    }
}

/// What is kept of a block of time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Block {
    pub(crate) cells: Cells,
    /// How the windows of requests that did not wait vary about their mean.
    pub(crate) ratios: Ratios,
    /// Samples, rejected ones included.
    pub(crate) samples: u64,
    /// Samples that the fit rejects: much longer or shorter than the model explains.
    pub(crate) rejected: u64,
    /// The sum of the windows, in nanoseconds.
    pub(crate) window_sum: f64,
    /// The first and the last arrival, in nanoseconds.
    pub(crate) first_at: u64,
    pub(crate) last_at: u64,
    /// The gaps between arrivals: their number, sum and sum of squares, in seconds.
    pub(crate) gaps: [f64; 3],
}

impl Block {
    /// Adds a later block.
    pub(crate) fn merge(&mut self, other: &Self) {
        let mut cells = WideCells::default();
        cells.add_all(&self.cells);
        cells.add_all(&other.cells);
        self.cells = Cells::pack(&cells);
        self.ratios.merge(&other.ratios);
        self.samples += other.samples;
        self.rejected += other.rejected;
        self.window_sum += other.window_sum;
        self.first_at = self.first_at.min(other.first_at);
        self.last_at = self.last_at.max(other.last_at);
        for (sum, more) in self.gaps.iter_mut().zip(other.gaps) {
            *sum += more;
        }
    }
}
