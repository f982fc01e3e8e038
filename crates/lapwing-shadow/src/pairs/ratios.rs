//! A histogram of the ratios within pairs, for Prometheus: its buckets, sum and count add up over pods.

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
