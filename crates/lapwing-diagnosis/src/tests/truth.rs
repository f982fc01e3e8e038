//! Attribution against the simulator, which knows which stage it slowed for which request.

use super::simulator::{MS, Simulation, diagnose, diagnostician, record, simulate};
use crate::{LatencyBound, MAX_WINDOW_NS};
use lapwing_ledger::Stage;

const LIMIT_NS: u64 = 60 * MS;

/// The true share of the slowed stage in the time above the budget: what was added to it, as far as the request would have kept the
/// budget without.
fn truth(of: &Simulation) -> f64 {
    let simulated = simulate(of);
    let (mut slowed, mut excess) = (0, 0);
    for (exchange, added) in simulated.exchanges.iter().zip(simulated.slowed_ns) {
        let above = exchange.ledger.total_ns.saturating_sub(LIMIT_NS);
        excess += above;
        slowed += above.min(added);
    }
    assert!(excess > 0);
    slowed as f64 / excess as f64
}

#[test]
fn the_slowed_stage_has_its_true_share_of_the_time_above_budget() {
    let stages = [Stage::Hydration, Stage::Preprocessing, Stage::Forward, Stage::Postprocessing];
    for (n, stage) in stages.into_iter().enumerate() {
        for (share, added) in [(0.02, 120 * MS), (0.1, 70 * MS), (0.2, 200 * MS)] {
            for seed in 0..3 {
                let of =
                    Simulation { slowed: (share, stage, added), threads: 64, ..Simulation::healthy(seed + 10 * n as u64, 40.0) };
                let said = diagnose(&of).routes.remove(0);
                let found = said.tail.iter().find(|of_stage| of_stage.stage == stage.name()).unwrap();
                let (found_share, truth) = (found.share_of_excess, truth(&of));
                assert!((found_share - truth).abs() < 0.05, "{stage:?} {share} {added}, seed {seed}: {found_share} for {truth}");
                assert!(found.tail_ns > found.body_ns + 30e6, "{found:?}");
            }
        }
    }
}

#[test]
fn two_slowed_stages_share_the_blame_as_they_were_slowed() {
    // slow clients and a slow stage, each for its own requests
    let of = Simulation {
        slowed: (0.1, Stage::Forward, 100 * MS),
        slow_client: (0.1, 200 * MS),
        threads: 64,
        seconds: 120,
        ..Simulation::healthy(1, 40.0)
    };
    let simulated = simulate(&of);
    let mut by_client = 0;
    let mut excess = 0;
    for exchange in &simulated.exchanges {
        let above = exchange.ledger.total_ns.saturating_sub(LIMIT_NS);
        let (client, forward) = (exchange.account.stage_ns(Stage::Egress), exchange.account.stage_ns(Stage::Forward));
        excess += above;
        // the means without trouble are 30 µs and 3.7 ms
        by_client += (above as f64 * client as f64 / (client as f64 + (forward as f64 - 3.7e6).max(0.0))) as u64;
    }
    let said = diagnose(&of).routes.remove(0);
    let found = said.tail.iter().find(|of_stage| of_stage.stage == "egress").unwrap();
    let truth = by_client as f64 / excess as f64;
    assert!((found.share_of_excess - truth).abs() < 0.05, "{} for {truth}", found.share_of_excess);
    assert!(found.excess_interval[0] < truth && truth < found.excess_interval[1], "{found:?}");
    let bounds: Vec<_> = said.verdicts.iter().map(|verdict| verdict.bound).collect();
    assert_eq!(bounds, [LatencyBound::Network, LatencyBound::Compute], "{said:#?}");
}

#[test]
fn a_stage_that_is_large_everywhere_is_not_to_blame() {
    // forward takes 4 of 5 ms in all requests; the tail is hydration
    let of = Simulation { slowed: (0.03, Stage::Hydration, 100 * MS), threads: 64, ..Simulation::healthy(4, 40.0) };
    let said = diagnose(&of).routes.remove(0);
    let forward = said.tail.iter().find(|of_stage| of_stage.stage == "forward").unwrap();
    assert!(forward.share_of_p50 > 0.5 && forward.share_of_excess < 0.05, "{forward:?}");
}

#[test]
fn totals_count_all_time_above_the_budget_by_bound() {
    let of = Simulation { slowed: (0.1, Stage::Forward, 100 * MS), threads: 64, ..Simulation::healthy(2, 40.0) };
    let exchanges = simulate(&of).exchanges;
    let excess: u64 = exchanges.iter().map(|exchange| exchange.ledger.total_ns.saturating_sub(LIMIT_NS)).sum();
    let (mut diagnostician, key) = diagnostician(&of);
    assert!(diagnostician.totals().is_empty());
    let now = record(&mut diagnostician, key, exchanges);
    let totals = diagnostician.totals().remove(0);
    assert_eq!(totals.series, key);
    assert!((totals.excess_seconds / (excess as f64 / 1e9) - 1.0).abs() < 1e-9, "{totals:?} for {excess}");
    let sum: f64 = totals.bound_seconds.iter().sum();
    assert!((sum / totals.excess_seconds - 1.0).abs() < 1e-9, "{totals:?}");
    let compute = totals.bound_seconds[LatencyBound::Compute as usize] / totals.excess_seconds;
    assert!(compute > 0.9, "{totals:?}");
    let said = diagnostician.diagnose(MAX_WINDOW_NS, now).routes.remove(0);
    let measured = said.budget.unwrap().excess_ns as f64;
    assert!((measured / excess as f64 - 1.0).abs() < 0.01, "{measured} for {excess}");
}
