//! Runs for the ratio of the sides' p99: requests that differ by half from each other, 3 % of them slow.

use std::time::Duration;

use super::noise::Random;
use crate::ab::report::log_ratio_interval;
use crate::ab::{PairCounts, Tracking};

/// The index of p99.
const P99: usize = 2;
/// Reports on p99 are this many pairs apart: each takes some microseconds.
const LOOK_EVERY: u64 = 50;
const PAIRS_PER_S: u64 = 100;

/// How the first look with a bound on p99 that decides ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TailVerdict {
    /// The interval lies on one side of 1, and outside the margin of 10 % in part.
    Different,
    /// It lies within the margin.
    Same,
}

/// After how many pairs there was a verdict on p99, which, and whether the true ratio lay outside the interval.
///
/// Slow requests take 20 times as long, and on the candidate `ratio` times that. So p99 is among them on both sides, and the true
/// ratio of the sides' p99 is `ratio`.
pub(crate) fn stop_at_tail_verdict(ratio: f64, pairs: u64, seed: u64) -> Option<(u64, TailVerdict, bool)> {
    let mut random = Random::new(seed);
    let (mut counts, mut tracking) = (PairCounts::default(), Tracking::new());
    for i in 0..pairs {
        tracking.tick(&counts, Duration::from_nanos(i * 1_000_000_000 / PAIRS_PER_S));
        let request = 0.5 * random.normal();
        let slow = random.uniform() < 0.03;
        let mut side = |factor: f64| {
            let ns = 1e6 * (request + 0.05 * random.normal()).exp() * if slow { 20.0 * factor } else { 1.0 };
            ns.round() as u64
        };
        counts.record(side(1.0), side(ratio));
        if (i + 1).is_multiple_of(LOOK_EVERY) {
            let (low, high) = log_ratio_interval(&counts, &tracking, P99);
            let has_missed = ratio.ln() < low || ratio.ln() > high;
            let margin = 1.1_f64.ln();
            if low >= -margin && high <= margin {
                return Some((i + 1, TailVerdict::Same, has_missed));
            }
            if low > 0.0 || high < 0.0 {
                return Some((i + 1, TailVerdict::Different, has_missed));
            }
        }
    }
    None
}
