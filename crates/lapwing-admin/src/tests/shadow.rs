//! `/shadow` with one pair, as words, as JSON and in `/metrics`.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use http::HeaderMap;
use parking_lot::Mutex;

use super::fixture::{ROUTE, busy, empty, request};
use crate::shadow::{report, text};
use crate::surfaces::Surfaces;
use lapwing_compare::outputs::{Asked, Comparer, FinishedAnswer};
use lapwing_ledger::{CopyCause, Outcome, PairId, Stamp, TraceId};
use lapwing_metrics::{Config, Registry};
use lapwing_protocol::OutputKind;
use lapwing_shadow::{
    OutputAccounts, OutputResult, PairHalf, PairOrder, PairTable, QuotaResult, QuotaTable, RouteQuota, RouteStanding,
    ShadowCounters, ShadowDrop, ShadowSurface, SideAccount, TargetInfo,
};

/// One request of 8 ms at the upstream, whose copy took half of that and whose output differs; another copy was dropped.
pub(crate) fn one_pair(surfaces: &Surfaces) -> ShadowSurface {
    const LABEL: &str = "shadow:int8";
    let labels = surfaces.registry.lock().labels().clone();
    let label = labels.upstreams.intern(LABEL);
    let mut primary = request(surfaces, ROUTE, "digits", Outcome::Ok, 10_000_000);
    (primary.ledger.pair, primary.ledger.copied) = (PairId::new(1), Some(CopyCause::Share));
    let mut copy = request(surfaces, ROUTE, "digits", Outcome::Ok, 5_000_000);
    (copy.ledger.pair, copy.ledger.is_copy, copy.ledger.series.upstream) = (PairId::new(1), true, label);
    let now = Stamp::now();
    let mut pairs = PairTable::new(vec![label], 60_000_000_000, now);
    pairs.primary(&primary, now);
    pairs.copy(&copy, now);
    pairs.outputs(PairId::new(1).unwrap(), 0, OutputResult::Mismatch, now);
    pairs.difference(PairId::new(1).unwrap(), 0, 0.5);
    let mut registry = Registry::new(Config::default(), labels.clone(), surfaces.counters.clone());
    registry.record_recent(copy, now, 0);

    let comparer =
        Comparer::new(&lapwing_compare::outputs::Config { keep_samples: 4, ..lapwing_compare::outputs::Config::default() });
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
    let mut outputs = OutputAccounts::new(comparer.clone(), false);
    outputs.record(0, ROUTE, CopyCause::Share, &comparison, TraceId([7; 16]), Asked::default());
    let cut = FinishedAnswer { is_complete: false, ..other };
    let comparison = comparer.compare(ROUTE, OutputKind::Other, &one, &cut);
    outputs.record(0, ROUTE, CopyCause::Share, &comparison, TraceId([8; 16]), Asked::default());

    let counters = ShadowCounters::new(1);
    counters.sampled.store(2, Relaxed);
    counters.drop_sampled(ShadowDrop::TooLarge);
    counters.target(0).unwrap().sent.store(1, Relaxed);
    counters.target(0).unwrap().answered.store(1, Relaxed);
    let quotas = QuotaTable::new(&[RouteQuota { route: ROUTE.to_owned(), per_minute: 30 }], &labels.routes);
    let quota = quotas.find(labels.routes.intern(ROUTE)).unwrap();
    for result in [QuotaResult::Taken, QuotaResult::LetGo, QuotaResult::LetGo] {
        quotas.record(quota, result);
    }
    let info =
        TargetInfo { name: "int8".into(), address: "http://127.0.0.1:9000".into(), label: LABEL.into(), is_upstream: false };
    ShadowSurface {
        registry: Arc::new(Mutex::new(registry)),
        pairs: Arc::new(Mutex::new(pairs)),
        outputs: Arc::new(Mutex::new(outputs)),
        counters: Arc::new(counters),
        quotas: Arc::new(quotas),
        routes: Arc::new(Vec::new),
        budget: Arc::new(|| (3, 64)),
        targets: [info].into(),
        order: PairOrder::PrimaryFirst,
        labels,
    }
}

#[test]
fn the_report_has_both_sides_and_says_what_differs() {
    let surfaces = empty();
    let shadow = one_pair(&surfaces);
    let view = serde_json::to_value(report(&surfaces, &shadow, Ok(()))).unwrap();
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
    assert!(target.get("outputs_by_quota").is_none());
    let quota = serde_json::json!({"route": ROUTE, "per_minute": 30, "taken": 1, "let_go": 2, "skipped": 0});
    assert_eq!(view["quotas"], serde_json::json!([quota]));
    assert_eq!(target["series"][0]["stages"]["forward"]["count"], 1);

    assert_eq!(view["debts"], serde_json::json!([]), "no model has an optimum");

    let words = text(&surfaces, &shadow);
    assert!(words.starts_with("int8 (http://127.0.0.1:9000): 1 copies sent, 1 answered, 0 failed, 1 paired\n"), "{words}");
    assert!(words.contains("candidate `int8`: forward too early to say after 1 pairs"), "{words}");
    assert!(words.contains("2 requests sampled, dropped: 1 too_large\n"), "{words}");
    assert!(
        words.contains(&format!("1 of them by quota: {ROUTE}, 30 a minute of each class; 2 captured and let go\n")),
        "{words}"
    );
    assert!(!words.contains("shadow.routes"), "nothing was refused: {words}");
    assert!(words.contains("\n  every figure: primary first, the copy after the upstream's answer\n"), "{words}");
    assert_eq!(target["order"], "after");
}

#[test]
fn pairs_that_differ_have_both_waterfalls_side_by_side() {
    let surfaces = empty();
    let shadow = one_pair(&surfaces);
    let view = serde_json::to_value(report(&surfaces, &shadow, Ok(()))).unwrap();
    let pair = &view["targets"][0]["differing"][0];
    assert_eq!((&pair["route"], &pair["model"], &pair["greatest_error"]), (&ROUTE.into(), &"digits".into(), &0.5.into()));
    assert_eq!(pair["primary_trace_id"], "07070707070707070707070707070707");
    assert_eq!((&pair["primary"]["total"], &pair["copy"]["total"]), (&8_000_000.into(), &4_000_000.into()));
    let rows: Vec<_> = pair["waterfall"].as_array().unwrap().iter().filter(|row| row["stage"] == "forward").collect();
    let [forward] = rows[..] else { panic!("one row for both sides: {pair}") };
    for (side, ms) in [("primary", 5), ("copy", 2)] {
        let bar = &forward[side];
        // of a report without a place in time: the end of the window
        assert_eq!(
            bar["start_ns"].as_u64().unwrap() + bar["duration_ns"].as_u64().unwrap(),
            pair[side]["total"].as_u64().unwrap()
        );
        assert_eq!(bar["duration_ns"].as_u64().unwrap() / 1_000_000, ms, "{forward}");
    }
    let words = text(&surfaces, &shadow);
    assert!(words.contains("outputs that differ most"), "{words}");
    let row = words.lines().find(|line| line.trim_start().starts_with("· forward")).unwrap();
    assert_eq!(row.matches('+').count(), 2, "an offset and a duration of each side: {row}");
    assert!(
        words
            .lines()
            .skip_while(|line| !line.contains("outputs that differ most"))
            .take(8)
            .all(|line| line.chars().count() <= 80),
        "{words}"
    );
}

#[test]
fn the_report_has_the_upstreams_debts() {
    let surfaces = busy();
    let shadow = surfaces.shadow.as_ref().unwrap();
    let view = serde_json::to_value(report(&surfaces, shadow, Ok(()))).unwrap();
    let debts = view["debts"].as_array().unwrap();
    assert_eq!(debts.len(), 1);
    assert_eq!((&debts[0]["model"], &debts[0]["computational_debt"]["ratio"]["p50"]), (&"digits".into(), &2.0.into()));
    let wanted = format!(
        "computational debt of the upstream, {ROUTE}, model digits:\n    \
         2.00× at p50, 2.00× at p99, of 100 requests, relative to: declared: half of \"it\"\n"
    );
    assert!(text(&surfaces, shadow).contains(&wanted), "{}", text(&surfaces, shadow));
}

#[test]
fn samples_are_withheld_from_those_who_may_not_read_payloads() {
    let surfaces = empty();
    let shadow = one_pair(&surfaces);
    let shown = serde_json::to_value(report(&surfaces, &shadow, Ok(()))).unwrap();
    assert_eq!(shown["targets"][0]["outputs"][ROUTE]["samples"].as_array().unwrap().len(), 1);
    assert_eq!(shown["targets"][0].get("samples_withheld"), None);
    let withheld = serde_json::to_value(report(&surfaces, &shadow, Err("not for you"))).unwrap();
    assert_eq!(withheld["targets"][0]["outputs"][ROUTE].get("samples"), None);
    let told = serde_json::json!({"count": 1, "reason": "not for you"});
    assert_eq!(
        (&withheld["targets"][0]["samples_withheld"], withheld["targets"][0]["outputs"][ROUTE]["compared"].as_u64()),
        (&told, Some(1))
    );
}

#[test]
fn routes_that_changed_are_named_strongest_first() {
    let surfaces = empty();
    let mut shadow = one_pair(&surfaces);
    let label = shadow.labels.upstreams.intern("shadow:int8");
    let began = Stamp::now();
    let mut pairs = PairTable::new(vec![label], 60_000_000_000, began);
    let half = |route: &str, ns: u64| {
        let figures_ns = [("total".to_owned(), ns)].into();
        let side = SideAccount { route: route.to_owned(), model: "m".to_owned(), class: None, is_answered: true, figures_ns };
        PairHalf::of_account(&side, &shadow.labels)
    };
    for n in 0..3_000_u64 {
        let now = began.plus(n * 20_000_000);
        pairs.tick(now);
        // slower, faster in most, and by turns
        let sides = [
            ("POST /a", 10, 20),
            ("POST /b", 20, if n % 10 == 0 { 30 } else { 10 }),
            ("POST /c", 10, if n % 2 == 0 { 9 } else { 11 }),
        ];
        for (at, (route, primary, copy)) in sides.into_iter().enumerate() {
            let pair = PairId::new(n * 3 + at as u64 + 1).unwrap();
            pairs.primary_half(pair, half(route, primary * 1_000_000), now);
            pairs.copy_half(pair, 0, &half(route, copy * 1_000_000), now);
        }
    }
    shadow.pairs = Arc::new(Mutex::new(pairs));
    let view = serde_json::to_value(report(&surfaces, &shadow, Ok(()))).unwrap();
    let changed = &view["targets"][0]["changed"];
    let named: Vec<_> = changed["named"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["route"].as_str().unwrap(), one["direction"].as_str().unwrap()))
        .collect();
    assert_eq!(named, [("POST /a", "slower"), ("POST /b", "faster")], "{changed}");
    assert_eq!(
        (&changed["of"], changed["claim"].as_str()),
        (&3.into(), Some("at most 5 % of those named are expected to be false"))
    );
    let words = text(&surfaces, &shadow);
    assert!(words.contains("2 of 3 routes, models and classes; at most 5 % of those named are expected to be false"), "{words}");
    assert!(words.contains("    POST /a, model m: slower, 0 pairs faster, 3000 slower\n"), "{words}");
}

#[test]
fn what_is_not_copied_is_said_with_the_setting_that_changes_it() {
    let surfaces = empty();
    let standing = |route: &str, is_repeatable, recognised, not_recognised| RouteStanding {
        route: route.to_owned(),
        is_repeatable,
        recognised,
        not_recognised,
    };
    let routes = move || vec![standing("POST /", false, 0, 120), standing("POST /v1/embeddings", true, 7, 0)];
    let shadow = ShadowSurface { routes: Arc::new(routes), ..one_pair(&surfaces) };
    for (reason, n) in [(ShadowDrop::UnknownRoute, 3), (ShadowDrop::Session, 1), (ShadowDrop::Secret, 2)] {
        (0..n).for_each(|_| shadow.counters.drop_sampled(reason));
    }
    let view = serde_json::to_value(report(&surfaces, &shadow, Ok(()))).unwrap();
    assert_eq!((&view["routes"][0]["not_recognised"], &view["routes"][1]["is_repeatable"]), (&120.into(), &true.into()));
    let words = text(&surfaces, &shadow);
    for said in [
        "POST / is not copied: 0 exchanges in the form of a known protocol, 120 not; if it is safe to repeat, name it in shadow.routes\n",
        "3 sampled requests are not copied, because they are of no known inference protocol by their path",
        "1 sampled requests are not copied, because they have a cookie or a CSRF token",
        "2 sampled requests are not copied, because they have a secret in their body; shadow.fields says",
    ] {
        assert!(words.contains(said), "{said}: {words}");
    }
    assert!(!words.contains("POST /v1/embeddings is"), "{words}");
}
