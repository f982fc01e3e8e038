//! What is not enough evidence, what is bounded, and what must not panic.

use std::sync::Arc;

use proptest::prelude::*;

use super::simulator::{MS, SECOND, Simulation, diagnose, diagnostician, record, simulate};
use crate::block::{BLOCK_NS, BLOCKS};
use crate::observation::Observation;
use crate::{Cause, Diagnostician, MAX_RECORDS, MAX_SERIES, MAX_SERIES_RECORDS, MAX_WINDOW_NS, Status};
use lapwing_ledger::{
    Annotation, Basis, Exchange, ExchangeKind, Ledger, Outcome, SeriesKey, Source, Stage, Stamp, Unit, UpstreamWindow,
};
use lapwing_metrics::Labels;

fn exchange(started: Stamp, total_ns: u64) -> Exchange {
    let mut ledger = Ledger::open(started, 0);
    (ledger.outcome, ledger.total_ns) = (Outcome::Ok, total_ns);
    let mut exchange = Exchange::of(ledger);
    exchange.account.add(Stage::Forward, Source::Traced, total_ns);
    exchange
}

#[test]
fn a_silent_server_is_not_judged_and_the_way_out_is_named() {
    let of = Simulation { is_silent: true, slowed: (0.1, Stage::Forward, 200 * MS), threads: 64, ..Simulation::healthy(1, 40.0) };
    let said = diagnose(&of).routes.remove(0);
    assert_eq!((said.status, said.verdicts.len()), (Status::NotEnoughEvidence, 0), "{said:#?}");
    assert!(said.missing.iter().any(|missing| missing.how.contains("lapwing upstream-flags")), "{:?}", said.missing);
    // when everything stands still, one need not know the stage
    let of = Simulation { is_silent: true, pauses: Some((300 * MS, 4 * SECOND)), ..Simulation::healthy(1, 40.0) };
    assert_eq!(diagnose(&of).routes[0].verdicts[0].cause, Cause::Pauses);
}

#[test]
fn a_handful_of_requests_is_not_judged() {
    let said = diagnose(&Simulation { seconds: 5, ..Simulation::healthy(1, 10.0) }).routes.remove(0);
    assert_eq!(said.status, Status::NotEnoughEvidence);
    assert!(said.missing[0].what.contains("requests") && said.missing[0].what.contains("100 are needed"), "{said:#?}");
    let said = diagnose(&Simulation { seconds: 3, ..Simulation::healthy(1, 100.0) }).routes.remove(0);
    assert!(said.status == Status::NotEnoughEvidence && said.missing[0].what.contains("six seconds"), "{said:#?}");
}

#[test]
fn only_answered_requests_of_clients_count_and_windows_end() {
    let (mut diagnostician, key) = diagnostician(&Simulation::healthy(0, 1.0));
    let now = Stamp::default().plus(1_000 * SECOND);
    let mut all = [exchange(now, MS), exchange(now, MS), exchange(now, MS), exchange(now, MS)];
    all.iter_mut().for_each(|exchange| exchange.ledger.series = key);
    all[1].ledger.is_copy = true;
    all[2].ledger.kind = ExchangeKind::Stream;
    all[3].ledger.outcome = Outcome::Cancelled;
    all.iter().for_each(|exchange| diagnostician.record(exchange, now.plus(MS)));
    assert_eq!(diagnostician.diagnose(MAX_WINDOW_NS, now.plus(MS)).routes[0].requests, 1);
    assert_eq!(diagnostician.diagnose(u64::MAX, now.plus(MS)).window_seconds, 300.0);
    assert!(diagnostician.diagnose(MAX_WINDOW_NS, now.plus(400 * SECOND)).routes.is_empty());
}

#[test]
fn quantiles_are_right_far_beyond_what_is_kept() {
    let (mut diagnostician, key) = diagnostician(&Simulation::healthy(0, 1.0));
    let start = Stamp::default().plus(1_000 * SECOND);
    let mut random = crate::random::SeededRandom::new(9);
    let (mut totals, mut now) = (Vec::new(), start);
    for _ in 0..120_000 {
        now = now.plus(500_000);
        let total = MS + random.below(99 * MS);
        totals.push(total);
        let mut exchange = exchange(now, total);
        exchange.ledger.series = key;
        diagnostician.record(&exchange, now.plus(total));
    }
    totals.sort_unstable();
    let said = diagnostician.diagnose(MAX_WINDOW_NS, now.plus(SECOND)).routes.remove(0);
    assert_eq!(said.requests, 120_000);
    let (p50, p99) = (totals[60_000] as f64, totals[118_800] as f64);
    assert!((said.p50_ns as f64 / p50 - 1.0).abs() < 0.03, "{} for {p50}", said.p50_ns);
    assert!((said.p99_ns as f64 / p99 - 1.0).abs() < 0.001, "{} for {p99}", said.p99_ns);
    assert!(said.missing.iter().any(|missing| missing.what.contains("by a sample only")), "{:?}", said.missing);
    assert!(diagnostician.capacity() <= MAX_SERIES_RECORDS);
}

#[test]
fn series_without_end_take_no_more_than_the_bound() {
    let labels = Arc::new(Labels::new(1_000, 10, 10));
    let mut diagnostician = Diagnostician::new(std::collections::BTreeMap::new(), labels.clone());
    let mut random = crate::random::SeededRandom::new(1);
    let keys: Vec<_> =
        (0..400).map(|n| SeriesKey { route: labels.routes.intern(&format!("GET /{n}")), ..SeriesKey::default() }).collect();
    let (mut now, mut ends) = (Stamp::default().plus(1_000 * SECOND), Vec::new());
    // one series has all the room first, and gives it up when others come
    for n in 0..220_000_u64 {
        now = now.plus(2 * MS);
        let place = if n < 20_000 { 0 } else { random.below(keys.len() as u64) };
        let mut exchange = exchange(now, random.below(50 * MS));
        exchange.ledger.series = keys[place as usize];
        ends.push(now.as_ns() + exchange.ledger.total_ns);
        diagnostician.record(&exchange, now.plus(50 * MS));
    }
    let most = (MAX_SERIES + 1) * BLOCKS * 3;
    assert!(most <= MAX_RECORDS && diagnostician.capacity() <= most, "{} of {most}", diagnostician.capacity());
    assert!(MAX_RECORDS * size_of::<Observation>() <= 10_300_000);
    let said = diagnostician.diagnose(MAX_WINDOW_NS, now);
    assert_eq!(said.routes.len(), MAX_SERIES + 1);
    let first_block = (now.as_ns() - MAX_WINDOW_NS) / BLOCK_NS;
    let in_window = ends.iter().filter(|end| **end / BLOCK_NS >= first_block).count() as u64;
    assert!(in_window < ends.len() as u64);
    assert_eq!(said.routes.iter().map(|route| route.requests).sum::<u64>(), in_window);
    let other = said.routes.iter().find(|route| route.route == "other").unwrap();
    assert!(other.status == Status::NotEnoughEvidence && other.missing[0].what.contains("counted as one"), "{other:?}");
}

#[test]
fn a_changed_verdict_is_logged_once_and_at_most_once_a_minute() {
    let slow = Simulation { slowed: (0.1, Stage::Forward, 200 * MS), threads: 64, seconds: 240, ..Simulation::healthy(1, 40.0) };
    let (mut diagnostician, key) = diagnostician(&slow);
    let mut lines: Vec<(u64, String)> = Vec::new();
    for mut exchange in simulate(&slow).exchanges {
        exchange.ledger.series = key;
        let ended = exchange.ledger.started.plus(exchange.ledger.total_ns);
        diagnostician.record(&exchange, ended.plus(200 * MS));
        lines.extend(diagnostician.tick(ended.plus(200 * MS)).into_iter().map(|line| (ended.as_ns(), line)));
    }
    assert_eq!(lines.len(), 1, "{lines:#?}");
    assert!(lines[0].1.contains("over budget, compute-bound (slow model), 90 % sure"), "{lines:?}");
    let after = Simulation { seconds: 120, ..Simulation::healthy(2, 40.0) };
    for mut exchange in simulate(&after).exchanges {
        exchange.ledger.series = key;
        exchange.ledger.started = exchange.ledger.started.plus(240 * SECOND);
        let ended = exchange.ledger.started.plus(exchange.ledger.total_ns);
        diagnostician.record(&exchange, ended);
        lines.extend(diagnostician.tick(ended).into_iter().map(|line| (ended.as_ns(), line)));
    }
    assert!(lines.len() == 2 && lines[1].1.ends_with("within budget again"), "{lines:#?}");
    assert!(lines[1].0 - lines[0].0 >= 60 * SECOND);
}

#[test]
fn totals_of_names_that_gave_way_go_on_as_other() {
    let labels = Arc::new(Labels::bounded_by(&serde_json::from_str(r#"{"max_routes": 1, "idle_after": "1s"}"#).unwrap(), 1));
    let budgets = [("*".to_owned(), serde_json::from_str(r#"{"p99": "1ms"}"#).unwrap())];
    let mut diagnostician = Diagnostician::new(budgets.into_iter().collect(), labels.clone());
    let now = Stamp::default().plus(1_000 * SECOND);
    let mut slow = exchange(now, 3 * MS);
    slow.ledger.series.route = labels.routes.learn("GET /a", now).unwrap();
    diagnostician.record(&slow, now.plus(3 * MS));
    labels.routes.learn("GET /b", now.plus(10 * SECOND)).unwrap();
    diagnostician.tick(now.plus(10 * SECOND));
    let totals = diagnostician.totals();
    assert_eq!((totals.len(), totals[0].series), (1, SeriesKey::default()));
    assert!((totals[0].excess_seconds - 0.002).abs() < 1e-12, "{totals:?}");
}

#[derive(Clone, Debug)]
struct Anything {
    started: u64,
    stages: [u64; Stage::COUNT],
    work: u64,
    window: [u64; 3],
    claimed: u64,
    seen: (u32, u32, u32, u64, u16),
}

fn anything() -> impl Strategy<Value = Anything> {
    let number = prop_oneof![Just(0), 0..2_000_000_000_u64, Just(u64::MAX / 32)];
    let extreme = prop_oneof![0..10_000_000_u64, Just(0), Just(u64::MAX)];
    let seen = (any::<u32>(), any::<u32>(), any::<u32>(), extreme.clone(), any::<u16>());
    (
        0..40_000_000_000_u64,
        prop::array::uniform12(number),
        extreme.clone(),
        prop::array::uniform3(extreme.clone()),
        extreme,
        seen,
    )
        .prop_map(|(started, stages, work, window, claimed, seen)| Anything { started, stages, work, window, claimed, seen })
}

impl Anything {
    fn exchange(&self) -> Exchange {
        let mut exchange = exchange(Stamp::default().plus(1_000 * SECOND + self.started), 0);
        exchange.account = lapwing_ledger::Account::default();
        for (stage, ns) in Stage::ALL.into_iter().zip(self.stages) {
            exchange.account.add(stage, Source::Observed, ns);
        }
        exchange.claimed_ns = self.claimed;
        let ledger = &mut exchange.ledger;
        ledger.total_ns = exchange.account.total_ns();
        ledger.work.primary = Some(Unit::Row);
        ledger.work.set(Unit::Row, self.work, Basis::Counted);
        let [start_ns, head_ns, end_ns] = self.window;
        ledger.window = Some(UpstreamWindow { start_ns, head_ns, end_ns });
        (ledger.request_bytes, ledger.response_bytes) = (self.work, self.claimed);
        let seen = &mut ledger.circumstances;
        (seen.in_flight, seen.cache_hits, seen.cache_misses, seen.body_gap_ns, _) = self.seen;
        for annotation in Annotation::ALL {
            if self.seen.4 & (1 << annotation as u16) != 0 {
                seen.annotations.add(annotation);
            }
        }
        exchange
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn whatever_comes_is_diagnosed(all in prop::collection::vec(anything(), 0..300), has_budget: bool, jump: u32) {
        let p99 = has_budget.then_some("100ms");
        let (mut diagnostician, key) = diagnostician(&Simulation { p99, ..Simulation::healthy(0, 1.0) });
        let now = record(&mut diagnostician, key, all.iter().map(Anything::exchange).collect());
        let now = Stamp::default().plus(now.as_ns().min(u64::MAX / 4)).plus(u64::from(jump));
        for said in diagnostician.diagnose(MAX_WINDOW_NS, now).routes {
            for place in 0..3 {
                let shares = said.tail.iter().map(|of| [of.share_of_p50, of.share_of_p99, of.share_of_excess][place]);
                let sum: f64 = shares.sum();
                prop_assert!((sum - 1.0).abs() < 1e-6 || sum.abs() < 1e-9, "{sum}: {said:#?}");
            }
            let shares: f64 = said.verdicts.iter().map(|verdict| verdict.share).sum();
            prop_assert!((0.0..=1.0 + 1e-9).contains(&shares));
            let text = serde_json::to_string(&said).unwrap();
            prop_assert!(!text.contains("null,\"unit\""), "{text}");
            prop_assert!(said.verdicts.iter().all(|v| (0.0..=1.0).contains(&v.confidence) && v.evidence.iter().all(|e| e.value.is_finite())));
        }
        for totals in diagnostician.totals() {
            let sum: f64 = totals.bound_seconds.iter().sum();
            prop_assert!(sum <= totals.excess_seconds * (1.0 + 1e-9) && totals.bound_seconds.iter().all(|seconds| *seconds >= 0.0));
        }
    }
}
