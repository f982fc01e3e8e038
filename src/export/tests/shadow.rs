//! `/shadow` with one pair, as words, as JSON and in `/metrics`.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use http::HeaderMap;
use parking_lot::Mutex;

use super::fixture::{ROUTE, empty, request};
use crate::export::shadow::{report, text};
use crate::export::surfaces::{ShadowSurface, Surfaces};
use crate::ledger::{Outcome, PairId, Stamp, TraceId};
use crate::metrics::{Config, Registry};
use crate::protocol::OutputKind;
use crate::shadow::compare::{self, Comparer, FinishedAnswer};
use crate::shadow::{CopyOrder, OutputAccounts, PairTable, ShadowCounters, ShadowDrop, TargetInfo};

/// One request of 8 ms at the upstream, whose copy took half of that and whose output differs; another copy was dropped.
pub(in crate::export) fn one_pair(surfaces: &Surfaces) -> ShadowSurface {
    const LABEL: &str = "shadow:int8";
    let labels = surfaces.registry.lock().labels().clone();
    let label = labels.upstreams.intern(LABEL);
    let mut primary = request(surfaces, ROUTE, "digits", Outcome::Ok, 10_000_000);
    (primary.ledger.pair, primary.ledger.has_copies) = (PairId::new(1), true);
    let mut copy = request(surfaces, ROUTE, "digits", Outcome::Ok, 5_000_000);
    (copy.ledger.pair, copy.ledger.is_copy, copy.ledger.series.upstream) = (PairId::new(1), true, label);
    let mut pairs = PairTable::new(vec![label], 1, Stamp::now());
    let now = Stamp::now();
    pairs.primary(&primary, now);
    pairs.copy(&copy, now);
    pairs.outputs(PairId::new(1).unwrap(), 0, true, now);
    let mut registry = Registry::new(Config::default(), labels.clone(), surfaces.counters.clone());
    registry.keep(copy, now, 0);

    let comparer = Comparer::new(&compare::Config::default());
    let headers = HeaderMap::from_iter([(http::header::CONTENT_TYPE, "application/json".parse().unwrap())]);
    let bodies = [Bytes::from_static(br#"{"score": 1.0}"#), Bytes::from_static(br#"{"score": 1.5}"#)];
    let [one, other] = bodies.each_ref().map(|body| FinishedAnswer {
        status: 200,
        headers: &headers,
        grpc_status: None,
        body: std::slice::from_ref(body),
        is_complete: true,
    });
    let comparison = comparer.compare(ROUTE, OutputKind::Other, &one, &other);
    let mut outputs = OutputAccounts::new(comparer);
    outputs.record(0, ROUTE, &comparison, TraceId([7; 16]));

    let counters = ShadowCounters::new(1);
    counters.sampled.store(2, Relaxed);
    counters.drop_sampled(ShadowDrop::TooLarge);
    counters.target(0).unwrap().sent.store(1, Relaxed);
    counters.target(0).unwrap().answered.store(1, Relaxed);
    let info =
        TargetInfo { name: "int8".into(), address: "http://127.0.0.1:9000".into(), label: LABEL.into(), is_upstream: false };
    ShadowSurface {
        registry: Arc::new(Mutex::new(registry)),
        pairs: Arc::new(Mutex::new(pairs)),
        outputs: Arc::new(Mutex::new(outputs)),
        counters: Arc::new(counters),
        budget: Arc::new(|| (3, 64)),
        targets: [info].into(),
        order: CopyOrder::After,
        labels,
    }
}

#[test]
fn the_report_has_both_sides_and_says_what_differs() {
    let shadow = one_pair(&empty());
    let view = serde_json::to_value(report(&shadow)).unwrap();
    let target = &view["targets"][0];
    assert_eq!((&view["sampled"], &view["dropped"]["too_large"], &view["budget"]["used"]), (&2.into(), &1.into(), &3.into()));
    assert_eq!((&target["name"], &target["paired"], &target["sent"]), (&"int8".into(), &1.into(), &1.into()));
    let comparison = &target["comparisons"][0];
    assert_eq!((&comparison["route"], &comparison["model"]), (&ROUTE.into(), &"digits".into()));
    for figure in ["total", "forward"] {
        assert_eq!(comparison["figures"][figure]["wins"], 1, "{figure}");
        assert_eq!(comparison["figures"][figure]["is_too_early"], true, "{figure}: one pair says nothing");
    }
    assert_eq!(target["outputs"][ROUTE]["mismatches"]["answers"], 1);
    assert_eq!(target["series"][0]["stages"]["forward"]["count"], 1);

    let words = text(&shadow);
    assert!(words.starts_with("int8 (http://127.0.0.1:9000): 1 copies sent, 1 answered, 0 failed, 1 paired\n"), "{words}");
    assert!(words.contains("candidate `int8`: forward too early to say after 1 pairs"), "{words}");
    assert!(words.contains("2 requests sampled, dropped: 1 too_large\n"), "{words}");
}
