//! Classic Prometheus buckets, counted from the HDR cells when they are asked for. Bounds are nanoseconds.
//!
//! A cell that straddles a bound counts as below it, so a duration up to 0.1 % (below 1 ms: 512 ns) above a bound may be
//! counted at the bound. The cells of a bound never change, so buckets only grow.

use super::figures::Measure;
use super::snapshot::SeriesSnapshot;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

/// Upper bounds for requests and stages: 1, 2.5 and 5 of each decade from 10 µs, up to 1 min. What is longer is in `+Inf`.
pub const REQUEST_BOUNDS_NS: &[u64] = &[
    10 * US,
    25 * US,
    50 * US,
    100 * US,
    250 * US,
    500 * US,
    MS,
    2_500 * US,
    5 * MS,
    10 * MS,
    25 * MS,
    50 * MS,
    100 * MS,
    250 * MS,
    500 * MS,
    S,
    2_500 * MS,
    5 * S,
    10 * S,
    25 * S,
    60 * S,
];

/// Upper bounds for long-lived streams: 100 ms to half an hour.
pub const STREAM_BOUNDS_NS: &[u64] = &[100 * MS, 500 * MS, S, 5 * S, 10 * S, 30 * S, 60 * S, 300 * S, 600 * S, 1_800 * S];

impl SeriesSnapshot {
    /// How many durations of `measure` fall into each bucket, not cumulative: one more than `bounds_ns`, which must rise.
    #[must_use]
    pub fn buckets(&self, measure: Measure, bounds_ns: &[u64]) -> Vec<u64> {
        let mut buckets = vec![0; bounds_ns.len() + 1];
        let mut at = 0;
        for (lowest_ns, count) in self.counts(measure) {
            while bounds_ns.get(at).is_some_and(|bound| lowest_ns > *bound) {
                at += 1;
            }
            buckets[at] += count;
        }
        buckets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_rise() {
        assert!(REQUEST_BOUNDS_NS.is_sorted_by(|a, b| a < b) && STREAM_BOUNDS_NS.is_sorted_by(|a, b| a < b));
    }
}
