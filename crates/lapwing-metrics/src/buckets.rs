//! Classic Prometheus buckets, counted from the HDR cells on request. Bounds are nanoseconds, and picoseconds for times per unit.
//!
//! A cell that straddles a bound counts as below it, so a duration up to 0.1 % (below 1 ms: 512 ns) above a bound may be counted
//! at the bound; a time per unit, up to 0.8 %. The cells of a bound never change, so buckets only grow.

use super::measure::Measure;
use super::snapshot::SeriesSnapshot;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

/// Upper bounds for requests and stages: 1, 2.5 and 5 of each decade from 10 µs, then 1, 2, 5, 10 and 30 min. Longer durations are in
/// `+Inf`. Clients of large models wait for 10 min by default, so that bound is one, and what they wait for beyond it has one more.
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
    120 * S,
    300 * S,
    600 * S,
    1_800 * S,
];

/// Upper bounds for long-lived streams: 100 ms to half an hour.
pub const STREAM_BOUNDS_NS: &[u64] = &[100 * MS, 500 * MS, S, 5 * S, 10 * S, 30 * S, 60 * S, 300 * S, 600 * S, 1_800 * S];

/// Upper bounds for times per unit: 1, 10 and 100 ps (for FLOPs and bytes), then 1, 2.5 and 5 of each decade from 1 ns, up
/// to 10 s.
pub const PER_UNIT_BOUNDS_PS: &[u64] = &per_unit_bounds();

const fn per_unit_bounds() -> [u64; 34] {
    let mut bounds = [0; 34];
    (bounds[0], bounds[1], bounds[2]) = (1, 10, 100);
    let (mut at, mut decade_ps) = (3, 1_000);
    while at < bounds.len() {
        let step = (at % 3) as u64;
        bounds[at] = if step == 0 { decade_ps } else { decade_ps * 5 * step / 2 };
        if step == 2 {
            decade_ps *= 10;
        }
        at += 1;
    }
    bounds
}

impl SeriesSnapshot {
    /// The number of values of `measure` in each bucket, not cumulative. The result has one element more than `bounds`, which
    /// must rise and be in the measure's unit.
    #[must_use]
    pub fn buckets(&self, measure: Measure, bounds: &[u64]) -> Vec<u64> {
        let mut buckets = vec![0; bounds.len() + 1];
        let mut at = 0;
        for (lowest, count) in self.counts(measure) {
            while bounds.get(at).is_some_and(|bound| lowest > *bound) {
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
        assert!(PER_UNIT_BOUNDS_PS.is_sorted_by(|a, b| a < b));
        assert!(REQUEST_BOUNDS_NS.contains(&(600 * S)) && REQUEST_BOUNDS_NS.last() > Some(&(600 * S)));
        assert_eq!(PER_UNIT_BOUNDS_PS[..8], [1, 10, 100, 1_000, 2_500, 5_000, 10_000, 25_000]);
        assert_eq!(PER_UNIT_BOUNDS_PS.last(), Some(&(10 * S * 1_000)));
    }
}
