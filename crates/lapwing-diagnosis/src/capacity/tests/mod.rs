//! Predicted capacities against a queue of events that shares no code with them.

use crate::capacity::{CapacityEstimate, CapacityQuestion};
use crate::fit::tests::simulator::{Served, Server};
use crate::fit::{FitRefusal, FitStatistics};

const CLEAN: Server = Server { outliers: 0.0, ..Server::PLAIN };

/// The 99th percentile of a long run, in nanoseconds.
fn measured_p99(server: &Server, requests: usize) -> u64 {
    let served = server.serve(977, requests);
    let mut windows: Vec<u64> = served[requests / 10..].iter().map(|request| request.window_ns).collect();
    windows.sort_unstable();
    windows[windows.len() * 99 / 100]
}

fn statistics(served: &[Served]) -> FitStatistics {
    let mut statistics = FitStatistics::default();
    for request in served {
        statistics.record(request.work, request.in_flight, request.window_ns, request.at_ns);
    }
    statistics
}

fn estimate(server: &Server, seed: u64, budget_ns: u64) -> CapacityEstimate {
    try_estimate(server, seed, budget_ns).unwrap()
}

fn try_estimate(server: &Server, seed: u64, budget_ns: u64) -> Result<CapacityEstimate, FitRefusal> {
    let fit = statistics(&server.serve(seed, 4_000)).fit()?;
    Ok(CapacityEstimate::of(&fit, &CapacityQuestion { quantile: 0.99, budget_ns, outside_ns: 0 }))
}

/// How far the predicted rate at the budget is from the true one: a server is watched at 70 % of its capacity, and the budget is the
/// 99th percentile that a long run at 80 % shows.
/// Returns how many were refused.
fn check(name: &str, server: &Server, seeds: u64) -> u64 {
    const LONG: usize = 100_000;
    let busier = Server { utilisation: 0.8, ..*server };
    let budget_ns = measured_p99(&busier, LONG);
    let mut refused = 0;
    for seed in 0..seeds {
        let estimate = match try_estimate(server, seed, budget_ns) {
            Ok(estimate) => estimate,
            Err(refusal) => {
                println!("{name:28} refused: {refusal}");
                refused += 1;
                continue;
            }
        };
        let Some(rate) = estimate.rate_at_budget else {
            println!("{name:28} refused: {:?}", estimate.refused);
            refused += 1;
            continue;
        };
        let error = rate.value / busier.rate() - 1.0;
        println!(
            "{name:28} {:12} rate at budget {:6.1}/s ({:.1} to {:.1}), true {:6.1}/s, error {:+.1} %; utilisation {:.3}",
            estimate.model.split(',').next().unwrap(),
            rate.value,
            rate.low,
            rate.high,
            busier.rate(),
            error * 100.0,
            estimate.utilisation.value,
        );
        assert!(error.abs() < 0.15, "{name}: {estimate:?}");
        assert!((estimate.utilisation.value / server.utilisation - 1.0).abs() < 0.15, "{name}: {estimate:?}");
        assert!(rate.low < rate.value && rate.value < rate.high, "{name}: {estimate:?}");
    }
    refused
}

#[test]
fn the_rate_at_the_budget_is_predicted_within_15_percent() {
    for (name, server) in [
        ("one slot", CLEAN),
        ("two slots", Server { slots: 2, ..CLEAN }),
        ("four slots, constant service", Server { slots: 4, fixed_ns: 60e6, ..CLEAN }),
        ("one slot, a sixth without it", Server { aside_ns: 2_200_000, ..CLEAN }),
        ("one slot, noise of 40 %", Server { noise: 0.4, ..CLEAN }),
    ] {
        assert_eq!(check(name, &server, 1), 0, "{name}");
    }
}

#[test]
#[ignore = "takes minutes in a debug build"]
fn the_rate_at_the_budget_over_many_servers_and_seeds() {
    let mut refused = 0;
    for slots in [1, 2, 4] {
        for (name, server) in [
            ("mixed work", CLEAN),
            ("half as busy", Server { utilisation: 0.5, ..CLEAN }),
            ("nearly constant service", Server { fixed_ns: 60e6, ..CLEAN }),
            ("hardly a fixed time", Server { fixed_ns: 0.5e6, ..CLEAN }),
            ("noise of 60 %", Server { noise: 0.6, ..CLEAN }),
            ("a sixth without a slot", Server { aside_ns: 2_200_000, ..CLEAN }),
            ("2 % late", Server { outliers: 0.02, ..CLEAN }),
        ] {
            refused += check(&format!("{slots} slots, {name}"), &Server { slots, ..server }, 5);
        }
    }
    println!("{refused} of 105 refused");
    assert!(refused <= 20, "{refused}");
}

#[test]
fn the_quantile_at_the_present_rate_and_with_a_replica_is_like_the_measured_one() {
    let server = Server { slots: 2, utilisation: 0.6, ..CLEAN };
    let estimate = estimate(&server, 3, 1_000_000_000);
    let now = measured_p99(&server, 100_000) as f64;
    let halved = measured_p99(&Server { utilisation: 0.3, ..server }, 100_000) as f64;
    println!("now {} of {now}, with one more {} of {halved}", estimate.predicted_now_ns, estimate.with_one_more_replica_ns);
    assert!((estimate.predicted_now_ns / now - 1.0).abs() < 0.15, "{estimate:?} {now}");
    assert!((estimate.with_one_more_replica_ns / halved - 1.0).abs() < 0.15, "{estimate:?} {halved}");
    assert_eq!(estimate.model, "M/G/2, simulated with measured service times");
}

#[test]
fn a_budget_that_is_never_kept_has_rate_zero() {
    let estimate = estimate(&CLEAN, 1, 1_000_000);
    assert_eq!(estimate.rate_at_budget.map(|rate| rate.value), Some(0.0));
}

#[test]
fn outliers_that_hold_a_slot_are_told_from_those_that_do_not() {
    let says = |server: Server, what: &str| {
        let estimate = estimate(&server, 2, 500_000_000);
        assert!(estimate.assumptions.iter().any(|said| said.contains(what)), "{:?}", estimate.assumptions);
    };
    says(Server { outliers: 0.02, ..CLEAN }, "hold no slot");
    says(Server { stuck: 0.02, ..CLEAN }, "hold their slot");
}

#[test]
fn a_server_that_no_queue_explains_is_refused() {
    let question = CapacityQuestion { quantile: 0.99, budget_ns: 100_000_000, outside_ns: 0 };
    let roomy = Server { slots: 64, utilisation: 0.1, ..CLEAN };
    let estimate = CapacityEstimate::of(&statistics(&roomy.serve(1, 2_000)).fit().unwrap(), &question);
    assert_eq!(estimate.refused.map(|refused| refused.reason), Some("no_waiting_seen".to_owned()));
    // a server that batches: the wait for each one ahead is a fifth of what it takes alone
    let mut batching = FitStatistics::default();
    for request in CLEAN.serve(1, 4_000) {
        batching.record(request.work, request.in_flight, request.service_ns + request.wait_ns / 5, request.at_ns);
    }
    let estimate = CapacityEstimate::of(&batching.fit().unwrap(), &question);
    assert_eq!(estimate.refused.map(|refused| refused.reason), Some("not_one_by_one".to_owned()));
}
