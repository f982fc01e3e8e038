//! Several upstreams: late binding beside those who choose at once.

use super::{SERIES, arrivals, at_ms, settings};
use crate::ghost::Ghost;
use crate::learn::{Departure, DepartureEnd};
use crate::service::{RatioQuantiles, ServiceLine, ServiceModels, SlotsOf};

/// A model that knows the truth of servers with one slot and these speeds.
fn truth(speeds: &[f64]) -> ServiceModels {
    let ratios = vec![RatioQuantiles { hedge: 1.0, q99: 1.0 }; 25];
    let line = ServiceLine { fixed_ns: 2e6, per_unit_ns: 1e6, samples: 1_000, unexplained: 0.0, ratios };
    let slots = |(upstream, speed): (usize, &f64)| SlotsOf { upstream, slots: Ok(1), speed: *speed };
    ServiceModels {
        made: at_ms(0.0),
        lines: [(SERIES, line)].into_iter().collect(),
        upstreams: speeds.iter().enumerate().map(slots).collect(),
        ..ServiceModels::default()
    }
}

/// Latencies, in ms, where each request goes at once to the upstream with the fewest, or to the next in turn.
fn at_once(all: &[(f64, u64, f64)], speeds: &[f64], counts: bool) -> Vec<f64> {
    let mut ends: Vec<Vec<f64>> = vec![Vec::new(); speeds.len()];
    let answer = |(at, (arrived, _, takes)): (usize, &(f64, u64, f64))| {
        ends.iter_mut().for_each(|ends| ends.retain(|end| end > arrived));
        let turned = (0..speeds.len()).map(|step| (at + step) % speeds.len());
        let to = if counts { turned.min_by_key(|to| ends[*to].len()).unwrap() } else { at % speeds.len() };
        let began = ends[to].last().copied().unwrap_or(0.0).max(*arrived);
        ends[to].push(began + takes / speeds[to]);
        began + takes / speeds[to] - arrived
    };
    all.iter().enumerate().map(answer).collect()
}

fn p99(mut latencies: Vec<f64>) -> f64 {
    latencies.sort_unstable_by(f64::total_cmp);
    latencies[latencies.len() * 99 / 100]
}

/// The p99 with late binding over that of the fewest requests, over that of turns, and that of the small over that of the fewest requests.
fn ratios(speeds: &[f64]) -> [f64; 3] {
    let mut sums = [0.0; 3];
    for seed in 1..=6 {
        let all = arrivals(seed, 30_000, 0.7 * speeds.iter().sum::<f64>(), 0.1);
        let departure = |(arrived, units, takes): &(f64, u64, f64)| {
            let at = at_ms(*arrived);
            let one = Departure {
                series: SERIES,
                upstream: 0,
                units: *units,
                arrived: at,
                sent: at,
                ended: at,
                deadline: None,
                end: DepartureEnd::Given,
            };
            (one, takes * 1e6)
        };
        let replayed = Ghost::of(all.iter().map(departure).collect(), truth(speeds)).replay(settings());
        #[allow(clippy::cast_precision_loss)]
        let late: Vec<f64> = replayed.iter().map(|one| one.latency_ns.unwrap() as f64 / 1e6).collect();
        let (fewest, turns) = (at_once(&all, speeds, true), at_once(&all, speeds, false));
        let small =
            |latencies: &[f64]| p99(latencies.iter().zip(&all).filter(|(_, one)| one.1 <= 9).map(|(ms, _)| *ms).collect());
        sums[2] += small(&late) / small(&fewest) / 6.0;
        let late = p99(late);
        sums[0] += late / p99(fewest) / 6.0;
        sums[1] += late / p99(turns) / 6.0;
    }
    sums
}

#[test]
fn who_is_bound_when_an_upstream_is_free_waits_less() {
    let equal = ratios(&[1.0, 1.0, 1.0]);
    println!("equal: {equal:?}");
    assert!(equal[0] <= 0.9 && equal[1] <= 0.55 && equal[2] <= 0.55, "{equal:?}");
    let slow = ratios(&[1.0, 1.0, 0.5]);
    println!("one at half speed: {slow:?}");
    assert!(slow[0] <= 0.75 && slow[2] <= 0.55, "{slow:?}");
}
