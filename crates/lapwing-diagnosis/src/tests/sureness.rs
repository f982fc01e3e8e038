//! How sure a verdict is: no surer than single blocks of time make it, and less where the machine's other load may be the cause. And what a
//! verdict is called, on every surface.

use super::simulator::{MS, SECOND, Simulation, diagnose, diagnostician, record, simulate};
use crate::{Cause, Diagnosis, HostReading, LatencyBound, MAX_WINDOW_NS, RouteDiagnosis, Status};
use lapwing_ledger::{Stage, Stamp};

/// The load of the machine in a block of two seconds: the share of steal, and of time in which some process waited.
type Load = (f64, Option<f64>);

/// The diagnosis of a simulation on a machine with this load at each second.
fn diagnose_on(of: &Simulation, load: impl Fn(u64) -> Load) -> Diagnosis {
    let (mut diagnostician, key) = diagnostician(of);
    let mut exchanges = simulate(of).exchanges;
    exchanges.sort_by_key(|exchange| exchange.ledger.started.plus(exchange.ledger.total_ns));
    let epoch = 1_000 * SECOND;
    let (mut reading, mut now) = (HostReading { pressure_us: Some(0), ..HostReading::default() }, Stamp::default());
    let mut second = 0;
    for mut exchange in exchanges {
        exchange.ledger.series = key;
        now = now.max(exchange.ledger.started.plus(exchange.ledger.total_ns));
        while epoch + second * SECOND <= now.as_ns() {
            let (steal, pressure) = load(second);
            reading.total += 200;
            reading.steal += (200.0 * steal) as u64;
            reading.idle += 100;
            reading.pressure_us = pressure.map(|share| reading.pressure_us.unwrap_or_default() + (1e6 * share) as u64);
            second += 1;
            let at = Stamp::default().plus(epoch + second * SECOND);
            if diagnostician.wants_host(at) {
                diagnostician.take_host(reading, at);
            }
        }
        diagnostician.record(&exchange, now);
    }
    // the block that is over at the end is read at its end
    now = Stamp::default().plus(epoch + (second + 2) * SECOND);
    diagnostician.take_host(reading, now);
    diagnostician.diagnose(MAX_WINDOW_NS, now)
}

fn slow_model() -> Simulation {
    Simulation { slowed: (0.1, Stage::Forward, 200 * MS), threads: 64, ..Simulation::healthy(1, 40.0) }
}

/// Everything waits in the queue from the 20th to the 28th second and never else, as when a neighbour takes the processors for eight seconds.
fn neighbour() -> Simulation {
    Simulation { pauses: Some((8 * SECOND, 60 * SECOND)), ..Simulation::healthy(1, 40.0) }
}

fn only(said: Diagnosis) -> RouteDiagnosis {
    said.routes.into_iter().next().unwrap()
}

#[test]
fn a_quiet_machine_leaves_a_verdict_as_sure_as_its_blocks() {
    let said = only(diagnose_on(&slow_model(), |_| (0.0, Some(0.02))));
    let first = &said.verdicts[0];
    assert_eq!((said.status, first.cause), (Status::OverBudget, Cause::SlowModel), "{}", said.summary);
    // 30 blocks of two seconds, each of which says the same: 31 of 32
    assert!((0.95..0.98).contains(&first.confidence), "{}", first.confidence);
    assert!(!said.missing.iter().any(|missing| missing.what.contains("machine")), "{:?}", said.missing);
}

#[test]
fn few_moments_make_nobody_sure() {
    let sure = |seconds| only(diagnose_on(&Simulation { seconds, ..slow_model() }, |_| (0.0, Some(0.0)))).verdicts[0].confidence;
    let [short, long] = [8, 60].map(sure);
    assert!((0.8..0.88).contains(&short) && long > 0.95, "{short} {long}");
}

#[test]
fn crowded_processors_make_a_verdict_less_sure_and_are_said_first() {
    for load in [|_| (0.0, Some(0.6)), |_| (0.2, Some(0.0))] as [fn(u64) -> Load; 2] {
        let said = only(diagnose_on(&slow_model(), load));
        assert_eq!((said.status, said.verdicts[0].cause), (Status::OverBudget, Cause::SlowModel), "{}", said.summary);
        assert!(said.verdicts[0].confidence <= 0.8, "{}", said.verdicts[0].confidence);
        assert!(said.missing[0].what.starts_with("whether it is "), "{:?}", said.missing);
        assert!(said.summary.contains(" sure, because the "), "{}", said.summary);
    }
    // bytes of a slow client are slow whatever this machine does
    let slow_client = Simulation { slow_client: (0.1, 150 * MS), ..Simulation::healthy(1, 40.0) };
    let said = only(diagnose_on(&slow_client, |_| (0.2, Some(0.9))));
    assert!(said.verdicts[0].confidence > 0.9 && !said.missing.iter().any(|missing| missing.what.starts_with("whether it is")));
}

#[test]
fn a_neighbour_on_the_processors_makes_no_sure_verdict() {
    let busy = |second: u64| (28..44).contains(&second);
    let said = only(diagnose_on(&neighbour(), |second| if busy(second) { (0.4, Some(0.9)) } else { (0.0, Some(0.05)) }));
    assert_eq!(said.status, Status::NotEnoughEvidence, "{}", said.summary);
    assert!(said.missing[0].what.contains("hypervisor") && said.summary.contains("hypervisor"), "{said:#?}");
    // without steal it may be this server's own load, so the verdict stays and says so
    let said = only(diagnose_on(&neighbour(), |second| (0.0, Some(if busy(second) { 0.9 } else { 0.05 }))));
    assert!(!said.verdicts.is_empty() && said.verdicts.iter().all(|verdict| verdict.confidence <= 0.8), "{said:#?}");
}

#[test]
fn what_the_kernel_does_not_say_is_said() {
    let said = only(diagnose(&slow_model()));
    assert!((0.8..=0.9).contains(&said.verdicts[0].confidence), "{}", said.verdicts[0].confidence);
    assert!(said.missing[0].what.starts_with("how busy the machine's processors were"), "{:?}", said.missing);
    // without PSI, the processors' own time says whether they were all used
    let said = only(diagnose_on(&slow_model(), |_| (0.0, None)));
    assert!(said.verdicts[0].confidence > 0.9, "{}", said.verdicts[0].confidence);
}

#[test]
fn a_healthy_route_stays_healthy_on_a_crowded_machine() {
    for seed in 0..5 {
        let said = only(diagnose_on(&Simulation::healthy(seed, 40.0), |_| (0.3, Some(0.9))));
        assert_eq!(said.status, Status::Healthy, "{}", said.summary);
    }
}

#[test]
fn pauses_are_called_so_in_words_and_in_the_totals() {
    let of = Simulation { pauses: Some((700 * MS, 5 * SECOND)), threads: 64, ..Simulation::healthy(3, 60.0) };
    let (mut diagnostician, key) = diagnostician(&of);
    let now = record(&mut diagnostician, key, simulate(&of).exchanges);
    let said = only(diagnostician.diagnose(MAX_WINDOW_NS, now));
    assert_eq!((said.verdicts[0].bound, said.verdicts[0].cause), (LatencyBound::Pauses, Cause::Pauses));
    assert!(said.summary.contains(". Pauses-bound (") && !said.summary.contains("etwork-bound"), "{}", said.summary);
    let totals = diagnostician.totals().remove(0);
    let share = |bound: LatencyBound| totals.bound_seconds[bound as usize] / totals.excess_seconds;
    assert!(share(LatencyBound::Pauses) > 0.9, "{totals:?}");
    assert!(share(LatencyBound::Network) < 0.05, "{totals:?}");
}

#[test]
fn without_a_budget_a_tail_is_slow_and_says_what_it_is_held_against() {
    let said = only(diagnose(&Simulation { p99: None, ..slow_model() }));
    assert_eq!((said.status, said.budget), (Status::SlowTail, None));
    assert!(
        said.summary
            .contains("It has no budget; its slowest take more than three times what requests of their work usually take.")
    );
    assert!(!said.summary.contains("udget is") && !said.summary.contains("over budget"), "{}", said.summary);
}
