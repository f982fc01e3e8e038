//! The thirteen troubles, simulated: the first verdict is the right one.

use super::simulator::{MS, SECOND, Simulation, diagnose};
use crate::{Cause, LatencyBound, RouteDiagnosis, Status};
use lapwing_ledger::Stage;

const SEEDS: u64 = 5;
/// Requests per second.
const LOADS: [f64; 2] = [15.0, 60.0];

fn only(of: &Simulation) -> RouteDiagnosis {
    diagnose(of).routes.remove(0)
}

/// Asserts the first verdict at both loads and all seeds.
fn assert_first(bounds: &[LatencyBound], cause: Cause, trouble: impl Fn(&mut Simulation)) {
    let mut undecided = Vec::new();
    for rate in LOADS {
        for seed in 0..SEEDS {
            let mut of = Simulation::healthy(seed, rate);
            trouble(&mut of);
            let said = only(&of);
            if said.status == Status::NotEnoughEvidence && said.verdicts.is_empty() {
                undecided.push(said.summary);
                continue;
            }
            let first = said.verdicts.first().unwrap_or_else(|| panic!("{rate}/s, seed {seed}: {}", said.summary));
            assert!(first.cause == cause && bounds.contains(&first.bound), "{rate}/s, seed {seed}: {} {said:#?}", said.summary);
            assert!(first.share_interval[0] <= first.share + 1e-9 && first.share <= first.share_interval[1] + 1e-9, "{first:?}");
        }
    }
    assert!(undecided.is_empty(), "undecided {}: {undecided:#?}", undecided.len());
}

#[test]
fn a_cold_cache() {
    assert_first(&[LatencyBound::Feature], Cause::ColdCache, |of| {
        (of.miss_rate, of.per_miss_ns, of.threads) = (0.9, 8 * MS, 64);
    });
}

#[test]
fn a_cache_that_is_emptied_at_times() {
    assert_first(&[LatencyBound::Feature], Cause::ColdCache, |of| {
        (of.emptied, of.per_miss_ns, of.threads) = (Some((8 * SECOND, SECOND / 2)), 12 * MS, 64);
    });
}

#[test]
fn a_slow_store() {
    assert_first(&[LatencyBound::Feature], Cause::SlowStore, |of| (of.per_fetch_ns, of.threads) = (120 * MS, 64));
}

#[test]
fn a_store_that_is_slow_at_times() {
    assert_first(&[LatencyBound::Feature], Cause::SlowStore, |of| {
        (of.slowed, of.threads, of.miss_rate) = ((0.06, Stage::Hydration, 150 * MS), 64, 0.6);
    });
}

#[test]
fn pauses() {
    let bounds = [LatencyBound::Pauses];
    assert_first(&bounds, Cause::Pauses, |of| of.pauses = Some((300 * MS, 4 * SECOND)));
    assert_first(&bounds, Cause::Pauses, |of| (of.pauses, of.threads) = (Some((500 * MS, 10 * SECOND)), 64));
}

#[test]
fn bursts() {
    assert_first(&[LatencyBound::Queue], Cause::Bursts, |of| of.bursts = Some((120, 5 * SECOND)));
}

#[test]
fn saturation() {
    assert_first(&[LatencyBound::Queue], Cause::Saturated, |of| {
        (of.threads, of.slowed) = (1, (1.0, Stage::Forward, ((1e9 / of.rate) - 4.7e6) as u64));
    });
}

#[test]
fn long_inputs() {
    assert_first(&[LatencyBound::Compute], Cause::LongInputs, |of| (of.long, of.threads) = ((0.04, 1_500), 64));
}

#[test]
fn a_slow_model() {
    assert_first(&[LatencyBound::Compute], Cause::SlowModel, |of| {
        (of.slowed, of.threads) = ((1.0, Stage::Forward, 100 * MS), 64)
    });
}

#[test]
fn slow_clients() {
    assert_first(&[LatencyBound::Network], Cause::SlowClient, |of| of.slow_client = (0.1, 150 * MS));
    assert_first(&[LatencyBound::Network], Cause::SlowClient, |of| of.slow_client = (1.0, 150 * MS));
    assert_first(&[LatencyBound::Network], Cause::SlowClient, |of| (of.bytes_per_second, of.request_bytes) = (1e6, 200_000));
}

#[test]
fn a_far_region() {
    assert_first(&[LatencyBound::Network], Cause::FarRegion, |of| of.round_trip_ns = 90 * MS);
}

#[test]
fn a_cold_start() {
    assert_first(&[LatencyBound::ColdStart], Cause::ColdStart, |of| {
        (of.idle, of.cold_ns) = (Some((8 * SECOND, 7 * SECOND)), 600 * MS)
    });
}

#[test]
fn oversized_bodies() {
    assert_first(&[LatencyBound::Network], Cause::OversizedBodies, |of| {
        (of.request_bytes, of.bytes_per_second) = (8_000_000, 100e6);
    });
}

#[test]
fn heavy_postprocessing() {
    assert_first(&[LatencyBound::Postprocessing], Cause::HeavyPostprocessing, |of| {
        (of.slowed, of.threads) = ((1.0, Stage::Postprocessing, 90 * MS), 64);
    });
    assert_first(&[LatencyBound::Postprocessing], Cause::HeavyPostprocessing, |of| {
        (of.slowed, of.threads) = ((0.1, Stage::Postprocessing, 90 * MS), 64);
    });
}

#[test]
fn split_writes() {
    for p99 in [Some("60ms"), Some("20ms"), None] {
        assert_first(&[LatencyBound::Network], Cause::SplitWrites, |of| (of.split, of.p99) = (Some(32), p99));
    }
}

#[test]
fn health() {
    for rate in LOADS {
        for seed in 0..20 {
            for p99 in [Some("60ms"), None] {
                let said = only(&Simulation { p99, ..Simulation::healthy(100 + seed, rate) });
                assert!(said.status == Status::Healthy && said.verdicts.is_empty(), "{rate}/s, seed {seed}: {said:#?}");
            }
        }
    }
}

#[test]
fn troubles_show_without_a_budget_too() {
    let without = |trouble: fn(&mut Simulation)| {
        let mut of = Simulation { p99: None, ..Simulation::healthy(3, 60.0) };
        trouble(&mut of);
        let said = only(&of);
        assert!(said.missing.iter().any(|missing| missing.how.contains("budgets")), "{said:#?}");
        said.verdicts.first().map(|first| first.cause)
    };
    assert_eq!(without(|of| of.pauses = Some((300 * MS, 4 * SECOND))), Some(Cause::Pauses));
    assert_eq!(without(|of| of.bursts = Some((120, 5 * SECOND))), Some(Cause::Bursts));
    assert_eq!(without(|of| of.slow_client = (0.1, 150 * MS)), Some(Cause::SlowClient));
}
