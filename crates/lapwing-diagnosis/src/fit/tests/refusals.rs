//! What carries no fit is refused, with the reason.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::simulator::Server;
use super::{TWO_SLOTS, statistics};
use crate::fit::{FitRefusal, FitStatistics, FittedWaiting, InferredStages};

#[test]
fn few_requests_are_refused() {
    let refusal = statistics(&TWO_SLOTS.serve(1, 300)).fit().unwrap_err();
    assert!(matches!(refusal, FitRefusal::TooFewSamples { samples: 300, .. }), "{refusal:?}");
    assert!(matches!(FitStatistics::default().fit(), Err(FitRefusal::TooFewSamples { samples: 0, .. })));
}

#[test]
fn constant_work_is_refused() {
    for seed in 0..10 {
        let refusal = statistics(&Server { works: &[8], ..TWO_SLOTS }.serve(seed, 2_000)).fit().unwrap_err();
        assert!(matches!(refusal, FitRefusal::WorkDoesNotVary { variation } if variation < 0.01), "{refusal:?}");
    }
}

#[test]
fn one_odd_request_does_not_make_work_vary() {
    let mut served = Server { works: &[8], ..TWO_SLOTS }.serve(3, 2_000);
    served[700].work = 4_000;
    served[701].work = 4_000;
    let refusal = statistics(&served).fit().unwrap_err();
    assert!(matches!(refusal, FitRefusal::WorkDoesNotVary { .. }), "{refusal:?}");
}

#[test]
fn windows_that_follow_nothing_are_refused() {
    for seed in 0..10 {
        let mut random = StdRng::seed_from_u64(seed);
        let mut statistics = FitStatistics::default();
        for at in 0..2_000 {
            // Pareto, whose variance is infinite
            let window = 5e6 / (1.0 - random.random::<f64>()).powf(1.0 / 1.5);
            statistics.record(random.random_range(1..64), random.random_range(1..9), window as u64, at * 10_000_000);
        }
        let refusal = statistics.fit().unwrap_err();
        assert!(
            matches!(refusal, FitRefusal::Unexplained { .. } | FitRefusal::TooManyOutliers { .. }),
            "seed {seed}: {refusal:?}"
        );
    }
}

#[test]
fn a_constant_number_in_flight_is_refused_unless_requests_are_alone() {
    // eight clients that ask again at once: each waits for seven others, and that looks like a fixed time
    let mut random = StdRng::seed_from_u64(5);
    let mut crowd = FitStatistics::default();
    let mut alone = FitStatistics::default();
    for at in 0..2_000 {
        let work = random.random_range(1..64);
        let service = (5_000_000 + work * 1_000_000) as f64 * (0.9 + 0.2 * random.random::<f64>());
        crowd.record(work, 8, (service + 7.0 * 37e6) as u64, at * 40_000_000);
        alone.record(work, 1, service as u64, at * 400_000_000);
    }
    let refusal = crowd.fit().unwrap_err();
    assert!(matches!(refusal, FitRefusal::ConcurrencyDoesNotVary { in_flight } if (in_flight - 8.0).abs() < 0.01), "{refusal:?}");
    let fit = alone.fit().unwrap();
    assert!(fit.fixed_ns.is_within(0.1, 5e6) && fit.per_unit_ns.is_within(0.1, 1e6), "{fit:?}");
    assert_eq!(fit.waiting, FittedWaiting::Unseen { most_in_flight: 1.0 });
}

#[test]
fn a_server_with_slots_for_all_shows_no_waiting() {
    let fit = statistics(&Server { slots: 64, utilisation: 0.1, ..Server::PLAIN }.serve(2, 2_000)).fit().unwrap();
    assert!(matches!(fit.waiting, FittedWaiting::Unseen { most_in_flight } if most_in_flight > 9.0), "{:?}", fit.waiting);
    assert!(fit.fixed_ns.holds(5e6) && fit.per_unit_ns.holds(1e6), "{fit:?}");
    assert!(InferredStages::of(&Ok(fit), "row").fitted.unwrap().queue.is_none());
}

#[test]
fn a_refusal_says_why_and_what_would_help() {
    let said = InferredStages::of(&statistics(&Server { works: &[8], ..TWO_SLOTS }.serve(1, 1_000)).fit(), "row");
    let refused = said.refused.unwrap();
    assert_eq!((said.source.as_str(), said.fitted, refused.reason.as_str()), ("inferred", None, "work_does_not_vary"));
    assert!(refused.sentence.contains("same work") && refused.help.contains("different sizes"), "{refused:?}");
}
