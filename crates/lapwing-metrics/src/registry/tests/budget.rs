//! That budgets are those of the route, per window, and that exemplars are of the series and hold what its histograms hold.

use super::*;
use lapwing_ledger::{ExchangeKind, TraceId};

const MS: u64 = 1_000_000;

fn with_budgets(budgets: serde_json::Value) -> Registry {
    registry(Config { budgets: serde_json::from_value(budgets).unwrap(), ..Config::default() })
}

#[test]
fn requests_over_the_budget_of_their_route_are_counted_in_each_window() {
    let mut registry = with_budgets(serde_json::json!({"POST /a": {"p50": "10ms", "p99": "20ms"}, "*": {"p99": "1s"}}));
    let (own, other, mut now) = (key(&registry, "POST /a"), key(&registry, "GET /b"), Stamp::now());
    for (ms, outcome) in [(5, Outcome::Ok), (10, Outcome::Ok), (15, Outcome::Broken), (25, Outcome::Cancelled)] {
        let mut one = exchange(own, ms * MS);
        one.ledger.outcome = outcome;
        registry.record(&one);
    }
    let mut stream = exchange(own, 9_000 * MS);
    stream.ledger.kind = ExchangeKind::Stream;
    registry.record(&stream);
    registry.record(&exchange(other, 900 * MS));
    registry.record(&exchange(other, 1_001 * MS));
    let over = |registry: &Registry, window| snapshot(registry, window).iter().map(|s| s.figures.over_budget).collect::<Vec<_>>();
    assert_eq!(over(&registry, Window::All), [[0, 0, 1, 0], [2, 0, 1, 0]]);
    let limits: Vec<_> = snapshot(&registry, Window::All)[1].budget.limits().collect();
    assert_eq!((limits, snapshot(&registry, Window::All)[1].figures.requests()), (vec![(0, 10 * MS), (2, 20 * MS)], 4));
    for _ in 0..7 {
        now = now.plus(2 * SECOND);
        registry.rotate(now);
    }
    registry.record(&exchange(own, 12 * MS));
    assert_eq!(over(&registry, Window::TenSeconds), [[1, 0, 0, 0]]);
    assert_eq!(over(&registry, Window::All), [[0, 0, 1, 0], [3, 0, 1, 0]]);
}

#[test]
fn goodput_is_of_requests_with_a_budget_in_each_window_and_is_the_registrys_load() {
    let mut registry = with_budgets(serde_json::json!({"POST /a": {"p50": "10ms", "total": "20ms"}}));
    let (own, other, mut now) = (key(&registry, "POST /a"), key(&registry, "GET /b"), Stamp::now());
    let totals = |registry: &Registry, window| {
        let of = |s: &SeriesSnapshot| s.figures.goodput().map(|goodput| (goodput.requests, goodput.within, goodput.missed));
        snapshot(registry, window).iter().map(of).collect::<Vec<_>>()
    };
    for (key, ms, outcome) in [(own, 20, Outcome::Ok), (own, 21, Outcome::Ok), (own, 5, Outcome::Shed), (other, 900, Outcome::Ok)]
    {
        let mut one = exchange(key, ms * MS);
        one.ledger.outcome = outcome;
        registry.note_deadline(&mut one);
        assert_eq!(one.ledger.deadline.map(|deadline| deadline.source.name()), (key == own).then_some("route"));
        registry.record(&one);
    }
    let mut stream = exchange(own, 9_000 * MS);
    stream.ledger.kind = ExchangeKind::Stream;
    registry.record(&stream);
    assert_eq!(totals(&registry, Window::All), [None, Some((3, 1, [1, 0, 0, 1, 0]))]);
    assert_eq!(registry.load(), None);
    for _ in 0..7 {
        now = now.plus(2 * SECOND);
        registry.rotate(now);
    }
    assert_eq!(registry.load().map(|load| load.requests_per_s), Some(0.0));
    registry.record(&exchange(own, 12 * MS));
    assert_eq!(totals(&registry, Window::TenSeconds), [Some((1, 1, [0; 5]))]);
    assert_eq!(totals(&registry, Window::All), [None, Some((4, 2, [1, 0, 0, 1, 0]))]);
    registry.rotate(now.plus(2 * SECOND));
    assert!(registry.load().is_some_and(|load| (load.requests_per_s - 0.1).abs() < 1e-9));
}

#[test]
fn an_exemplar_holds_what_its_request_added_to_histograms() {
    let mut registry = with_budgets(serde_json::json!({}));
    let series = key(&registry, "POST /a");
    for (trace, ms) in [(1, 4), (2, 40), (3, 41)] {
        let mut one = exchange(series, ms * MS);
        one.ledger.trace = TraceId([trace; 16]);
        registry.record(&one);
    }
    let shown = snapshot(&registry, Window::All);
    let exemplars = &shown[0].exemplars;
    assert_eq!(exemplars.iter().map(|one| one.trace.0[0]).collect::<Vec<_>>(), [1, 2], "40 and 41 ms are in one power of two");
    let values = [Measure::Total, Measure::Stage(Stage::Forward), Measure::Cancelled].map(|of| exemplars[1].value(of));
    assert_eq!(values, [Some(40 * MS), Some(10 * MS), None]);
    assert!(shown[0].exponential(Measure::Total, 5, 1e9).buckets.iter().map(|(_, count)| count).sum::<u64>() == 3);
}

#[test]
fn a_series_began_when_it_was_opened() {
    let mut registry = with_budgets(serde_json::json!({}));
    let now = Stamp::now().plus(50 * SECOND);
    registry.rotate(now);
    registry.record(&exchange(key(&registry, "POST /late"), MS));
    assert_eq!(snapshot(&registry, Window::All)[0].opened, now);
}
