//! The arrivals of a series: whether they come in bursts, and after how much idle time.

use super::timeline::{ARRIVAL_BIN_NS, Timeline};
use lapwing_ledger::Stamp;

/// Over how many bins arrivals are summed to look for bursts: a tenth of a second, a half, and one, two and five seconds.
const SCALES: [usize; 5] = [1, 5, 10, 20, 50];
/// How many sums a scale needs before its dispersion counts.
const MIN_SUMS: usize = 12;
/// The bins of a sum when single bursts are looked for: half a second.
const BURST_BINS: usize = 5;
/// The least time without arrivals that counts as idle, in nanoseconds; it is at least ten times the mean gap between two arrivals.
const MIN_IDLE_NS: f64 = 1e9;

/// The arrivals of a window.
#[derive(Debug, Default)]
pub(crate) struct ArrivalPattern {
    /// Arrivals per second; zero without any.
    pub(crate) rate: f64,
    /// The variance of the number of arrivals over its mean, from one interval to the next, at the scale where it is largest; 1 for
    /// arrivals at random. NaN if there are too few.
    pub(crate) dispersion: f64,
    /// How many bursts there were.
    pub(crate) bursts: usize,
    /// How many requests more than otherwise come with a burst, in the mean.
    pub(crate) burst_size: f64,
    /// The median time from one burst to the next, in nanoseconds; NaN with fewer than two.
    pub(crate) burst_period_ns: f64,
    /// When the first request came after idle time, in order, and how long that was; infinite for the first request ever.
    pub(crate) after_idle: Vec<(Stamp, f64)>,
}

impl ArrivalPattern {
    /// Of the arrivals since `from`.
    pub(crate) fn of(timeline: &Timeline, from: Stamp) -> Self {
        let (start, counts) = timeline.arrivals(from);
        let total: f64 = counts.iter().map(|count| f64::from(*count)).sum();
        if total <= 0.0 {
            return Self { dispersion: f64::NAN, burst_period_ns: f64::NAN, ..Self::default() };
        }
        let seconds = counts.len() as f64 * ARRIVAL_BIN_NS as f64 / 1e9;
        let rate = total / seconds;
        let dispersion = SCALES.into_iter().filter_map(|scale| dispersion(&sums(&counts, scale))).reduce(f64::max);
        let (bursts, burst_size, burst_period_ns) = bursts(&sums(&counts, BURST_BINS));
        let after_idle = after_idle(&counts, start, rate, timeline.first() >= from);
        Self { rate, dispersion: dispersion.unwrap_or(f64::NAN), bursts, burst_size, burst_period_ns, after_idle }
    }
}

fn sums(counts: &[u16], scale: usize) -> Vec<f64> {
    counts.chunks_exact(scale).map(|bins| bins.iter().map(|bin| f64::from(*bin)).sum()).collect()
}

/// The index of dispersion from differences of neighbours, without the two largest, so that neither a change of the rate nor its end
/// moves it.
fn dispersion(sums: &[f64]) -> Option<f64> {
    let total: f64 = sums.iter().sum();
    if sums.len() < MIN_SUMS || total < MIN_SUMS as f64 {
        return None;
    }
    let mut squares: Vec<f64> = sums.windows(2).map(|pair| (pair[1] - pair[0]).powi(2)).collect();
    squares.sort_by(f64::total_cmp);
    squares.truncate(squares.len() - 2);
    let mean = total / sums.len() as f64;
    Some(squares.iter().sum::<f64>() / squares.len() as f64 / (2.0 * mean))
}

/// The number of bursts, their size and their period in nanoseconds. A burst is a run of sums that exceed the mean by three standard
/// deviations of arrivals at random, and are twice the mean.
fn bursts(sums: &[f64]) -> (usize, f64, f64) {
    let mean = sums.iter().sum::<f64>() / sums.len().max(1) as f64;
    let limit = (mean + 3.0 * mean.sqrt() + 1.0).max(2.0 * mean);
    let mut sorted = sums.to_vec();
    sorted.sort_by(f64::total_cmp);
    let usual = sorted.get(sorted.len() / 2).copied().unwrap_or(0.0);
    let (mut starts, mut extra, mut is_in) = (Vec::new(), 0.0, false);
    for (at, sum) in sums.iter().enumerate() {
        if *sum > limit {
            if !is_in {
                starts.push(at);
            }
            extra += sum - usual;
        }
        is_in = *sum > limit;
    }
    let mut gaps: Vec<f64> = starts.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
    gaps.sort_by(f64::total_cmp);
    let period = gaps.get(gaps.len() / 2).map_or(f64::NAN, |bins| bins * (BURST_BINS as u64 * ARRIVAL_BIN_NS) as f64);
    (starts.len(), extra / starts.len().max(1) as f64, period)
}

fn after_idle(counts: &[u16], start: Stamp, rate: f64, began_here: bool) -> Vec<(Stamp, f64)> {
    let least_ns = (10e9 / rate).max(MIN_IDLE_NS);
    let at = |bin: usize| start.plus(bin as u64 * ARRIVAL_BIN_NS);
    let mut found = Vec::new();
    let mut idle = if began_here { f64::INFINITY } else { 0.0 };
    for (bin, count) in counts.iter().enumerate() {
        if *count == 0 {
            idle += ARRIVAL_BIN_NS as f64;
            continue;
        }
        if idle >= least_ns {
            found.push((at(bin), idle));
        }
        idle = 0.0;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SeededRandom;

    const SECOND_NS: u64 = 1_000_000_000;

    fn at(ns: u64) -> Stamp {
        Stamp::default().plus(SECOND_NS + ns)
    }

    fn pattern(arrivals: &[u64]) -> ArrivalPattern {
        let mut timeline = Timeline::new(at(arrivals[0]));
        for ns in arrivals {
            timeline.record(at(*ns), at(*ns + 1));
        }
        ArrivalPattern::of(&timeline, Stamp::default())
    }

    /// Arrivals at random, `rate` a second for 60 s.
    fn at_random(random: &mut SeededRandom, rate: u64) -> Vec<u64> {
        let mut arrivals: Vec<u64> = (0..60 * rate).map(|_| random.below(60 * SECOND_NS)).collect();
        arrivals.sort_unstable();
        arrivals
    }

    #[test]
    fn arrivals_at_random_are_no_bursts_and_bursts_are() {
        let mut random = SeededRandom::new(3);
        for rate in [2, 20, 200] {
            for _ in 0..20 {
                let found = pattern(&at_random(&mut random, rate));
                assert!((0.3..1.9).contains(&found.dispersion), "{found:?}");
                assert!((found.rate / rate as f64 - 1.0).abs() < 0.1, "{found:?}");
                assert_eq!(found.after_idle.len(), 1, "{found:?}");
            }
        }
        let mut arrivals = at_random(&mut random, 10);
        for burst in 0..6 {
            arrivals.extend((0..40).map(|n| (burst * 10 + 5) * SECOND_NS + n * 5_000_000));
        }
        arrivals.sort_unstable();
        let found = pattern(&arrivals);
        assert!(found.dispersion > 3.0 && found.bursts == 6, "{found:?}");
        assert!((35.0..45.0).contains(&found.burst_size) && found.burst_period_ns == 10e9, "{found:?}");
    }

    #[test]
    fn a_change_of_the_rate_is_no_burst_and_idle_time_is_found() {
        let mut random = SeededRandom::new(5);
        let mut arrivals = at_random(&mut random, 20);
        arrivals.extend(at_random(&mut random, 60).into_iter().map(|ns| ns + 60 * SECOND_NS));
        assert!(pattern(&arrivals).dispersion < 1.9);
        arrivals.extend(at_random(&mut random, 40).into_iter().map(|ns| ns + 130 * SECOND_NS));
        let found = pattern(&arrivals).after_idle;
        assert_eq!(found.len(), 2, "{found:?}");
        assert!((9.5e9..10.5e9).contains(&found[1].1), "{found:?}");
    }
}
