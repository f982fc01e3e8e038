//! Memory is bounded, no value breaks anything, and what is old is forgotten.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::simulator::Server;
use super::{TWO_SLOTS, statistics};
use crate::fit::FitStatistics;

#[test]
fn memory_is_bounded_whatever_comes() {
    let mut random = StdRng::seed_from_u64(11);
    let mut statistics = FitStatistics::default();
    for at in 0..6_000_u64 {
        let work = random.random::<u64>() >> random.random_range(0..64);
        let in_flight = random.random::<u32>() >> random.random_range(0..32);
        let window = random.random::<u64>() >> random.random_range(0..64);
        statistics.record(work, in_flight, window, at * 1_000_000);
        assert!(statistics.bytes() <= FitStatistics::MAX_BYTES, "{} after {at}", statistics.bytes());
    }
    let _ = statistics.fit();
    println!("{} of {} bytes", statistics.bytes(), FitStatistics::MAX_BYTES);
    let mut usual = super::statistics(&TWO_SLOTS.serve(1, 10_000));
    println!("{} bytes of a usual series", usual.bytes());
    usual.merge(&statistics);
    assert!(usual.bytes() <= FitStatistics::MAX_BYTES);
}

#[test]
fn extreme_values_break_nothing() {
    let extremes = [0, 1, u64::MAX / 2, u64::MAX];
    let mut statistics = FitStatistics::default();
    for round in 0..40 {
        for work in extremes {
            for in_flight in [0, 1, 9, u32::MAX] {
                for window in extremes {
                    statistics.record(work, in_flight, window, extremes[round % 4]);
                }
            }
        }
        if let Ok(fit) = statistics.fit() {
            let parts = fit.infer(u64::MAX, u32::MAX, 1);
            assert!(parts.forward_ns.value.is_finite() && parts.queue_ns.value.is_finite());
        }
        statistics.expire(u64::MAX);
    }
}

#[test]
fn one_and_the_same_window_breaks_nothing() {
    let mut statistics = FitStatistics::default();
    for at in 0..2_000 {
        statistics.record(1 + at % 7, 1 + (at % 5) as u32, 1_000, at);
    }
    let fit = statistics.fit().unwrap();
    assert!(fit.fixed_ns.is_within(0.01, 1_000.0) && fit.per_unit_ns.value.abs() < 1.0, "{fit:?}");
}

#[test]
fn what_is_old_is_forgotten() {
    let served = TWO_SLOTS.serve(4, 3_000);
    let mut statistics = statistics(&served);
    let before = served[1_500].at_ns;
    statistics.expire(before);
    assert!((1_400..2_000).contains(&statistics.samples()), "{}", statistics.samples());
    statistics.expire(served[2_999].at_ns + 1);
    assert_eq!(statistics.samples(), 0);
}

#[test]
fn halves_that_are_merged_fit_like_the_whole() {
    let served = TWO_SLOTS.serve(6, 4_000);
    let whole = statistics(&served).fit().unwrap();
    let mut first = statistics(&served[..2_000]);
    first.merge(&statistics(&served[2_000..]));
    let merged = first.fit().unwrap();
    assert_eq!(merged.samples, whole.samples);
    assert!(merged.fixed_ns.is_within(0.03, whole.fixed_ns.value), "{:?} {:?}", merged.fixed_ns, whole.fixed_ns);
    assert!(merged.per_unit_ns.is_within(0.03, whole.per_unit_ns.value), "{:?} {:?}", merged.per_unit_ns, whole.per_unit_ns);
}

#[test]
fn a_server_that_changes_is_fitted_anew() {
    let mut statistics = statistics(&TWO_SLOTS.serve(7, 2_000));
    let slower = Server { fixed_ns: 40e6, per_unit_ns: 5e6, ..TWO_SLOTS };
    let later = TWO_SLOTS.serve(7, 2_000).last().map_or(0, |request| request.at_ns) + 1_000_000_000;
    for request in slower.serve(8, 2_000) {
        statistics.record(request.work, request.in_flight, request.window_ns, later + request.at_ns);
    }
    let fit = statistics.fit().unwrap();
    assert!(fit.fixed_ns.is_within(0.1, 40e6) && fit.per_unit_ns.is_within(0.1, 5e6), "{fit:?}");
}
