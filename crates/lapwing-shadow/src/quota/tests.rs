//! Quotas: what each class gets, what is bounded, and which configurations are refused.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::{Config, CopyOrder};
use lapwing_settings::Section;

const INFER: &str = "POST /v2/models/{model}/infer";
const SECOND: u64 = 1_000_000_000;

fn quota(route: &str, per_minute: u32) -> RouteQuota {
    RouteQuota { route: route.to_owned(), per_minute }
}

fn at(ns: u64) -> Stamp {
    Stamp::default().plus(ns)
}

/// A table of one route, its index, and two models.
fn table(per_minute: u32) -> (QuotaTable, QuotaIndex, [LabelId; 2]) {
    let (routes, models) = (LabelTable::new(8), LabelTable::new(8));
    let table = QuotaTable::new(&[quota(INFER, per_minute)], &routes);
    let index = table.find(routes.find(INFER).unwrap()).unwrap();
    (table, index, ["a", "b"].map(|model| models.intern(model)))
}

#[test]
fn each_model_and_class_has_its_own_copies() {
    let (table, index, [a, b]) = table(3);
    let taken = |model, class, ns| (0..10).filter(|_| table.take(index, model, class, at(ns))).count();
    assert_eq!(taken(a, Some(0), SECOND), 3, "a minute's worth at once");
    assert_eq!([taken(a, Some(6), SECOND), taken(b, Some(0), SECOND), taken(a, None, SECOND)], [3; 3]);
    assert_eq!(taken(a, Some(0), 20 * SECOND), 0, "a third of a minute has not passed yet");
    assert_eq!(taken(a, Some(0), 21 * SECOND), 1);
    assert_eq!(taken(a, Some(0), 500 * SECOND), 3, "what was not used does not add up");
}

proptest! {
    /// Of any arrivals, a quota of N takes every request while there are at most N in the last minute, and never more than 2 N in a minute.
    #[test]
    fn the_rate_is_kept(per_minute in 1u32..40, gaps in prop::collection::vec(0u64..8 * SECOND, 1..200)) {
        let (table, index, [model, _]) = table(per_minute);
        let (mut now, mut taken, mut arrived) = (SECOND, Vec::new(), Vec::new());
        for gap in gaps {
            now += gap;
            let last_minute = |times: &[u64]| times.iter().filter(|time| now - **time < MINUTE_NS).count() as u32;
            let is_taken = table.take(index, model, Some(1), at(now));
            prop_assert!(is_taken || last_minute(&arrived) >= per_minute);
            arrived.push(now);
            if is_taken {
                taken.push(now);
                prop_assert!(last_minute(&taken) <= 2 * per_minute);
            }
        }
    }
}

#[test]
fn buckets_are_bounded_and_full_ones_make_room() {
    let routes = LabelTable::new(8);
    let table = QuotaTable::new(&[quota(INFER, 60)], &routes);
    let index = table.find(routes.find(INFER).unwrap()).unwrap();
    let models = LabelTable::new(2 * MAX_BUCKETS);
    let models: Vec<LabelId> = (0..=MAX_BUCKETS).map(|n| models.intern(&n.to_string())).collect();
    let (last, others) = models.split_last().unwrap();
    assert!(others.iter().all(|model| table.take(index, *model, None, at(2 * SECOND))));
    assert!(!table.take(index, *last, None, at(2 * SECOND)), "no room for another bucket");
    assert!(table.take(index, others[0], None, at(2 * SECOND)), "the others go on");
    assert!(table.take(index, *last, None, at(5 * SECOND)), "those that are full again make room");
    assert_eq!(table.buckets.lock().full_at.len(), 1, "only the last");
}

#[test]
fn only_routes_of_the_configuration_have_a_quota() {
    let routes = LabelTable::new(2);
    let other = routes.intern("POST /v1/embeddings");
    let table = QuotaTable::new(&[quota(INFER, 1), quota("POST /v1/rerank", 1)], &routes);
    assert!(!table.is_empty() && QuotaTable::default().is_empty());
    assert!(table.find(routes.find(INFER).unwrap()).is_some() && table.find(other).is_none());
    assert_eq!(table.find(LabelId::OTHER), None, "the second found no room among the labels and must not take all others");
}

fn faults(config: &Config) -> Vec<(String, String)> {
    let mut checks = Checks::new(BTreeSet::new());
    config.check(&mut checks);
    checks.into_faults().iter().map(|fault| (fault.path.clone(), fault.reason.clone())).collect()
}

#[test]
fn a_quota_that_would_take_nothing_is_refused() {
    let config = |quotas: &[RouteQuota]| Config { quotas: quotas.to_vec(), ..Config::default() };
    for route in [INFER, "POST /v1/chat/completions", "POST /inference.GRPCInferenceService/ModelInfer"] {
        assert_eq!(faults(&config(&[quota(route, 30)])), [], "{route}");
    }
    let reason = |route: &str, reason: &str| {
        let [(path, why)] = &faults(&config(&[quota(route, 30)]))[..] else { panic!("{route}") };
        assert_eq!(path, "quotas[0].route");
        assert!(why.contains(reason), "{route}: {why}");
    };
    reason("/v2/models/{model}/infer", "must be a method and a path");
    reason("POST /v2/models/ranker/infer", "/stats calls it POST /v2/models/{model}/infer");
    reason("POST /grade", "shadow.routes");
    reason("GET /v1/embeddings", "shadow.routes");
    reason("POST /inference.GRPCInferenceService/ModelStreamInfer", "shadow.routes");
    let listed = Config { routes: vec!["POST /grade".to_owned()], ..config(&[quota("POST /grade", 30)]) };
    assert_eq!(faults(&listed), []);

    let paths = |config: &Config| faults(config).into_iter().map(|(path, _)| path).collect::<Vec<_>>();
    assert_eq!(
        paths(&config(&[quota(INFER, 0), quota(INFER, 60_001)])),
        ["quotas[0].per_minute", "quotas[1].per_minute", "quotas[1].route"]
    );
    let many: Vec<_> = (0..=MAX_ROUTES).map(|n| quota(&format!("POST /x{}", "y".repeat(n)), 1)).collect();
    let routes = many.iter().map(|quota| quota.route.clone()).collect();
    assert_eq!(paths(&Config { routes, ..config(&many) }), ["quotas"]);
    let concurrent = Config { order: CopyOrder::Concurrent, ..config(&[quota(INFER, 1)]) };
    assert_eq!(paths(&concurrent), ["quotas"], "the class is known once the request is answered");
}
