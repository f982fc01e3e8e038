//! Computational debt in `/stats` and `/exchanges`, against values worked out by hand.

use serde_json::{Value, json};

use super::fixture::{ROUTE, busy, request};
use crate::Surfaces;
use crate::stats;
use lapwing_diagnosis::cost::DebtAssessor;
use lapwing_ledger::{Basis, Outcome, Stamp, Unit};
use lapwing_metrics::views::{self, ExchangeQuery, Names};
use lapwing_metrics::{BatchStatistics, Order, PolledInterval, PolledKey, Window};

fn debt(surfaces: &Surfaces, route: &str) -> Value {
    let all = serde_json::to_value(stats::stats(surfaces, Window::All, &Names::default())).unwrap();
    let found = all["series"].as_array().unwrap().iter().find(|series| series["route"] == route).unwrap();
    found["computational_debt"].clone()
}

/// Keeps an answered request for the model `digits` that spent `total_ns / 2` in forward.
fn record_exchange(surfaces: &Surfaces, route: &str, rows: Option<u64>, total_ns: u64) {
    let mut one = request(surfaces, route, "digits", Outcome::Ok, total_ns);
    one.ledger.work.primary = rows.map(|_| Unit::Row);
    rows.into_iter().for_each(|rows| one.ledger.work.set(Unit::Row, rows, Basis::Counted));
    let mut registry = surfaces.registry.lock();
    let assessor = DebtAssessor::new(surfaces.optima.clone(), registry.labels().clone());
    assessor.assess(&mut one, |_| false);
    registry.record_recent(one, Stamp::now(), 0);
}

#[test]
fn a_debt_stands_beside_its_optimum() {
    let surfaces = busy();
    let mut found = debt(&surfaces, ROUTE);
    let per_hour = found["debt_s_per_hour"].take().as_f64().unwrap();
    assert!(per_hour > 1.2625, "less than an hour has passed: {per_hour}");
    let classes = found["classes"].take();
    let ratio = json!({"count": 100, "mean": 2.0, "p50": 2.0, "p90": 2.0, "p99": 2.0, "p999": 2.0, "max": 2.0});
    let wanted = json!({
        "optimum": "declared: half of \"it\"",
        "ratio": ratio,
        "weighted": 2.0,
        "forward_ns": 2_525_000_000_u64,
        "optimum_ns": 1_262_500_000_u64,
        "debt_ns": 1_262_500_000_u64,
        "debt_s_per_hour": null,
        "below": {"count": 0, "ns": 0},
        // answered by the upstream with an error, and without a known number of rows
        "without": {"work": 2},
        "classes": null,
        "batch": null,
    });
    assert_eq!(found, wanted);
    let classes: Vec<Value> = serde_json::from_value(classes).unwrap();
    assert_eq!(classes.len(), 7);
    let last = json!({"class": 6, "from": 64, "to": 127, "unit": "row", "count": 37, "mean": 2.0, "p50": 2.0, "p90": 2.0,
        "p99": 2.0, "p999": 2.0, "max": 2.0});
    assert_eq!(classes[6], last);
    let others = serde_json::to_value(stats::stats(&surfaces, Window::All, &Names::default())).unwrap();
    let indebted = others["series"].as_array().unwrap().iter().filter(|series| series.get("computational_debt").is_some());
    assert_eq!(indebted.count(), 1, "other models have no optimum");
}

#[test]
fn what_is_below_the_optimum_is_counted_apart() {
    let surfaces = Surfaces { optima: super::fixture::optima(), ..super::fixture::empty() };
    record_exchange(&surfaces, "POST /a", Some(4), 8_000_000); // 4 ms of 1 ms
    record_exchange(&surfaces, "POST /a", Some(4), 1_000_000); // 0.5 ms of 1 ms
    let found = debt(&surfaces, "POST /a");
    assert_eq!((&found["debt_ns"], &found["below"]), (&json!(3_000_000), &json!({"count": 1, "ns": 500_000})));
    assert_eq!((found["ratio"]["mean"].as_f64(), found["ratio"]["max"].as_f64()), (Some(2.25), Some(4.0)));
    assert_eq!(found["weighted"].as_f64(), Some(2.25));
}

#[test]
fn batches_are_held_against_the_optimum_of_a_batch() {
    let surfaces = Surfaces { optima: super::fixture::optima(), ..super::fixture::empty() };
    record_exchange(&surfaces, "POST /a", Some(2), 8_000_000);
    {
        let mut registry = surfaces.registry.lock();
        let labels = registry.labels().clone();
        let key = PolledKey { model: labels.models.intern("digits"), upstream: labels.upstreams.intern("http://127.0.0.1:8000") };
        let batch = Some(BatchStatistics { size: Some(8.0), ..BatchStatistics::default() });
        registry.record_polled(key, &PolledInterval { batch, ..PolledInterval::default() }, Stamp::now());
    }
    // eight rows at 250 µs in 4 ms
    let wanted = json!({"size": 8.0, "efficiency": 0.5, "bandwidth_utilisation": null});
    assert_eq!(debt(&surfaces, "POST /a")["batch"], wanted);
}

#[test]
fn an_exchange_says_what_it_burnt() {
    let surfaces = Surfaces { optima: super::fixture::optima(), ..super::fixture::empty() };
    record_exchange(&surfaces, "POST /a", None, 2_000_000);
    record_exchange(&surfaces, "POST /a", Some(4), 6_000_000);
    let all = serde_json::to_value(views::exchanges(&surfaces.registry, &ExchangeQuery::first(Order::Recent, 2))).unwrap();
    let wanted =
        json!({"ratio": 3.0, "forward_ns": 3_000_000, "optimum_ps": 1_000_000_000, "optimum": "declared: half of \"it\""});
    assert_eq!(all["exchanges"][0]["computational_debt"], wanted);
    assert_eq!(all["exchanges"][1].get("computational_debt"), None, "nobody knows its rows");
}
