//! Time per unit, cost classes, phases and token timing, against values worked out by hand; and that windows and classes lose
//! nothing.

use proptest::prelude::*;

use super::super::*;
use crate::measure::Measure;
use crate::snapshot::{HistogramScratch, UnitDistribution, Units};
use lapwing_ledger::{
    Account, Basis, ClippedReports, Generation, Ledger, Outcome, PerUnit, Phase, Report, ReportPlace, Server, Source, Stage,
    Unit, Work,
};

const SECOND: u64 = 1_000_000_000;
const US: u64 = 1_000;
const MS: u64 = 1_000_000;

fn registry() -> Registry {
    Registry::new(Config::default(), Arc::new(Labels::new(10, 10, 10)), Arc::new(Counters::default()))
}

/// An answered request that spent all its time in forward.
fn exchange(primary: Option<Unit>, amounts: &[(Unit, u64)], forward_ns: u64) -> Exchange {
    let mut ledger = Ledger::open(Stamp::default(), 0);
    (ledger.outcome, ledger.total_ns) = (Outcome::Ok, forward_ns);
    ledger.work.primary = primary;
    amounts.iter().for_each(|(unit, amount)| ledger.work.set(*unit, *amount, Basis::Counted));
    let mut account = Account::default();
    account.add(Stage::Forward, Source::Reported, forward_ns);
    Exchange {
        ledger: ledger.into(),
        account,
        traced: Vec::new(),
        claimed_ns: 0,
        clipped: ClippedReports::default(),
        is_incomplete: false,
        optimal_forward: None,
    }
}

fn rows(rows: u64, forward_ns: u64) -> Exchange {
    exchange(Some(Unit::Row), &[(Unit::Row, rows)], forward_ns)
}

fn only(registry: &Registry) -> SeriesSnapshot {
    registry.series(Window::All, 0..registry.places()).remove(0)
}

#[test]
fn two_populations_separate_by_class_and_agree_per_row() {
    let mut registry = registry();
    for _ in 0..300 {
        registry.record(&rows(1, 31 * US)); // 31 µs per row
        registry.record(&rows(256, 2_304 * US)); // 9 µs per row
    }
    let (series, mut scratch) = (only(&registry), HistogramScratch::default());
    let total = series.distribution(Measure::Total, &mut scratch);
    assert!(total.p99_ns > 70 * total.p50_ns, "one quantile tells nothing of the other population: {total:?}");
    let (small, large) = (Measure::Class(0), Measure::Class(8));
    let of = |measure, scratch: &mut HistogramScratch| series.distribution(measure, scratch);
    let (small, large) = (of(small, &mut scratch), of(large, &mut scratch));
    assert_eq!((small.count, small.mean_ns, small.max_ns), (300, 31 * US, 31 * US));
    assert_eq!((large.count, large.mean_ns, large.max_ns), (300, 2_304 * US, 2_304 * US));
    assert_eq!(Measure::all().filter(|m| matches!(m, Measure::Class(_)) && series.figures.values(*m) > 0).count(), 2);
    let per_row = series.per_unit(PerUnit::Forward, &mut scratch).unwrap();
    let UnitDistribution { unit, count, units, mean_ps, p50_ps, p99_ps, max_ps, .. } = per_row;
    assert_eq!((unit, count, units, max_ps), ("row", 600, Units::Whole(300 * 257), 31_000_000));
    assert!((mean_ps - 2_335.0 * 1e6 / 257.0).abs() < 1e-6, "{mean_ps}");
    assert!((9_000_000..9_072_000).contains(&p50_ps) && p99_ps == 31_000_000, "{per_row:?}");
}

#[test]
fn each_slot_is_in_its_own_unit() {
    let mut registry = registry();
    let amounts = [(Unit::InputToken, 100), (Unit::OutputToken, 11), (Unit::Row, 1), (Unit::Flop, 2_000_000)];
    let mut one = exchange(Some(Unit::OutputToken), &amounts, 0);
    one.account = Account::default();
    let stages = [(Stage::Ingress, 64 * US), (Stage::Preprocessing, MS), (Stage::Forward, 170 * MS), (Stage::Egress, 3 * US)];
    stages.into_iter().for_each(|(stage, ns)| one.account.add(stage, Source::Reported, ns));
    one.account.add_phase(Phase::Prefill, Source::Reported, 20 * MS);
    one.account.add_phase(Phase::Decode, Source::Reported, 140 * MS);
    (one.ledger.request_bytes, one.ledger.response_bytes) = (640, 0);
    one.ledger.total_ns = 171 * MS + 67 * US;
    registry.record(&one);
    let (series, mut scratch) = (only(&registry), HistogramScratch::default());
    let slots: Vec<_> = PerUnit::ALL.iter().filter_map(|s| Some((*s, series.per_unit(*s, &mut scratch)?))).collect();
    let seen: Vec<_> = slots.iter().map(|(slot, d)| (*slot, d.unit, d.units, d.max_ps)).collect();
    let expected = [
        (PerUnit::Ingress, "byte", Units::Whole(640), 100_000),
        (PerUnit::Preprocessing, "input_token", Units::Whole(100), 10_000_000),
        (PerUnit::Forward, "output_token", Units::Whole(11), 15_454_545_455),
        (PerUnit::Prefill, "input_token", Units::Whole(100), 200_000_000),
        (PerUnit::Decode, "output_token", Units::Whole(10), 14_000_000_000),
        (PerUnit::ForwardFlop, "gflop", Units::Share(0.002), 85_000_000_000_000),
    ];
    assert_eq!(seen, expected);
    assert_eq!(series.distribution(Measure::Phase(Phase::Decode), &mut scratch).max_ns, 140 * MS);
    assert_eq!(series.distribution(Measure::Class(3), &mut scratch).count, 1, "11 output tokens are of 8..16");
}

#[test]
fn the_pace_of_an_answer_is_measured_at_the_proxy_and_told_by_the_server() {
    let mut registry = registry();
    let mut one = exchange(Some(Unit::OutputToken), &[(Unit::OutputToken, 5)], 10 * MS);
    let mut generation = Generation::default();
    [MS, 3 * MS, 9 * MS].into_iter().for_each(|at_ns| generation.content(at_ns));
    (generation.server_first_token_ns, generation.server_per_output_token_ns) = (Some(700 * US), Some(1_900 * US));
    generation.gaps_us.push(u32::MAX); // 71 minutes, above the bound
    one.ledger.generation = Some(Box::new(generation));
    registry.record(&one);
    registry.rotate(Stamp::now().plus(2 * SECOND));
    one.ledger.outcome = Outcome::Cancelled;
    registry.record(&one); // not answered: in none of these
    let (series, mut scratch) = (only(&registry), HistogramScratch::default());
    let means = Measure::GENERATIVE.map(|m| series.distribution(m, &mut scratch)).map(|d| (d.count, d.mean_ns));
    let mean_gap = (8 * MS + u64::from(u32::MAX) * US) / 3;
    assert_eq!(means, [(1, MS), (1, 2 * MS), (3, mean_gap), (1, 700 * US), (1, 1_900 * US)]);
    let gaps: Vec<_> = series.counts(Measure::InterToken).map(|(ns, n)| (ns / 100 / US, n)).collect();
    assert_eq!(gaps[..2], [(19, 1), (59, 1)], "cells begin a little below 2 and 6 ms");
    assert_eq!(registry.counters.get(Counter::ValuesClipped), 1);
}

#[test]
fn work_in_another_unit_is_left_out_and_counted() {
    let mut registry = registry();
    registry.record(&exchange(None, &[(Unit::Byte, 7)], MS)); // has no amount in the series' unit
    let mut failed = exchange(Some(Unit::Element), &[(Unit::Element, 1)], MS);
    failed.ledger.outcome = Outcome::Broken;
    registry.record(&failed); // neither has this
    registry.record(&rows(4, MS));
    registry.record(&exchange(Some(Unit::InputToken), &[(Unit::InputToken, 9)], MS));
    registry.record(&exchange(Some(Unit::Row), &[(Unit::Row, 0)], MS)); // no class, no division
    let series = only(&registry);
    assert_eq!((series.facts.primary, registry.counters.get(Counter::WorkMixed)), (Some(Unit::Row), 1));
    assert_eq!((series.figures.values(Measure::Class(2)), series.figures.per_unit(PerUnit::Forward).count), (1, 1));
    let work: Vec<_> = series.figures.work().map(|(unit, sum)| (unit, sum.amount, sum.requests(Basis::Counted))).collect();
    assert_eq!(work, [(Unit::Row, 4, 2), (Unit::InputToken, 9, 1), (Unit::Byte, 7, 1)]);
}

#[test]
fn flops_as_primary_unit_are_in_one_slot() {
    let mut registry = registry();
    registry.record(&exchange(Some(Unit::Flop), &[(Unit::Flop, 1_000)], MS));
    let series = only(&registry);
    assert_eq!((series.unit(PerUnit::Forward), series.unit(PerUnit::ForwardFlop)), (Some(Unit::Flop), None));
}

#[test]
fn servers_and_resolutions_are_kept() {
    let mut registry = registry();
    for (server, resolution_ns) in [(Some(Server::Triton), 1_000_000), (None, 1), (None, 1_000)] {
        let mut one = rows(1, MS);
        one.ledger.server = server;
        one.ledger.report(Report { resolution_ns, ..Report::of(Stage::Queue, 0, ReportPlace::Head) });
        registry.record(&one);
    }
    let series = only(&registry);
    assert_eq!(series.facts.server, Some(Server::Triton));
    assert_eq!(
        (series.figures.resolution_ns(Stage::Queue), series.figures.resolution_ns(Stage::Forward)),
        (Some(MS as u32), None)
    );
    assert_eq!(series.figures.values(Measure::Stage(Stage::Queue)), 2, "below 1 ms, and below 1 µs");
}

#[test]
fn what_is_above_an_hour_per_unit_is_clipped_and_counted() {
    let mut registry = registry();
    registry.record(&rows(1, 3_600 * SECOND)); // an hour fits both layouts
    assert_eq!(registry.counters.get(Counter::ValuesClipped), 0);
    registry.record(&rows(1, 3_601 * SECOND));
    assert_eq!(registry.counters.get(Counter::ValuesClipped), 4, "total, stage, class and forward per row");
    let per_row = only(&registry).per_unit(PerUnit::Forward, &mut HistogramScratch::default()).unwrap();
    assert_eq!(per_row.max_ps, 3_601 * SECOND * 1_000);
}

#[derive(Clone, Debug)]
struct Request {
    primary: Option<Unit>,
    amount: u64,
    forward_ns: u64,
    outcome: Outcome,
    rotates: bool,
}

fn any_request() -> impl Strategy<Value = Request> {
    let primary = prop_oneof![1 => Just(None), 6 => Just(Some(Unit::Row)), 1 => Just(Some(Unit::Element))];
    let outcome = prop_oneof![5 => Just(Outcome::Ok), 1 => Just(Outcome::Cancelled), 1 => Just(Outcome::ServerError)];
    let amount = (0..40_u32, any::<u64>()).prop_map(|(bits, n)| n & ((1 << bits) - 1));
    let ns = (8..40_u32, any::<u64>()).prop_map(|(bits, n)| n & ((1 << bits) - 1));
    (primary, amount, ns, outcome, any::<bool>()).prop_map(|(primary, amount, forward_ns, outcome, rotates)| Request {
        primary,
        amount,
        forward_ns,
        outcome,
        rotates,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn classes_and_units_lose_nothing(requests in proptest::collection::vec(any_request(), 1..150)) {
        let (mut registry, mut now) = (registry(), Stamp::now());
        for r in &requests {
            let mut one = exchange(r.primary, &r.primary.map(|unit| (unit, r.amount)).into_iter().collect::<Vec<_>>(), r.forward_ns);
            one.ledger.outcome = r.outcome;
            registry.record(&one);
            if r.rotates {
                now = now.plus(2 * SECOND);
                registry.rotate(now);
            }
        }
        let answered: Vec<&Request> = requests.iter().filter(|r| r.outcome.is_answered()).collect();
        let own = answered.iter().find_map(|r| r.primary);
        let comparable: Vec<_> = answered.iter().filter(|r| own.is_some() && r.primary == own && r.amount > 0).collect();
        let series = only(&registry);
        for measure in Measure::all() {
            let in_cells: u64 = series.counts(measure).map(|(_, n)| n).sum();
            prop_assert_eq!(in_cells, series.figures.values(measure), "{:?}", measure);
        }
        for k in 0..Work::CLASSES {
            let (from, to) = (1_u64 << k, if k + 1 < Work::CLASSES { (1 << (k + 1)) - 1 } else { u64::MAX });
            let inside = comparable.iter().filter(|r| (from..=to).contains(&r.amount)).count() as u64;
            prop_assert_eq!(series.figures.values(Measure::Class(k)), inside, "class {}", k);
        }
        let forward = series.figures.per_unit(PerUnit::Forward);
        let timed: Vec<_> = comparable.iter().filter(|r| r.forward_ns > 0).collect();
        prop_assert_eq!(forward.count, timed.len() as u64);
        prop_assert_eq!(forward.units, timed.iter().map(|r| u128::from(r.amount)).sum::<u128>());
        prop_assert_eq!(forward.time_ns, timed.iter().map(|r| r.forward_ns).sum::<u64>());
        let mixed = answered.iter().filter(|r| r.primary.is_some() && r.primary != own).count() as u64;
        prop_assert_eq!(registry.counters.get(Counter::WorkMixed), mixed);
        // the windows are sums of slots, and all of it came within them
        let five_minutes = registry.series(Window::FiveMinutes, 0..registry.places());
        if now.since(Stamp::now()) < 290 * SECOND {
            prop_assert!(five_minutes[0].figures == series.figures);
        }
    }
}
