//! That sums of polls are conserved, in every window, whatever the order.

use proptest::prelude::*;

use super::*;
use crate::{Config, Counters, Labels, Registry, Window};
use lapwing_ledger::{Exchange, Stamp};
use std::sync::Arc;

const SECOND: u64 = 1_000_000_000;

fn time(stage: Stage, phase: Option<Phase>, requests: u64, ns: u64) -> PolledStage {
    PolledStage { stage, phase, sum: PolledSum { requests, ns } }
}

fn interval(stages: Vec<PolledStage>) -> PolledInterval {
    PolledInterval { covered_ns: 5 * SECOND, stages, batch: None }
}

fn registry() -> Registry {
    Registry::new(Config::default(), Arc::new(Labels::new(9, 9, 9)), Arc::new(Counters::default()))
}

#[test]
fn phases_are_part_of_forward_and_requests_count_once() {
    let mut totals = PolledTotals::default();
    totals.add(&interval(vec![
        time(Stage::Queue, None, 4, 40),
        time(Stage::Forward, Some(Phase::Prefill), 4, 100),
        time(Stage::Forward, Some(Phase::Decode), 3, 900),
    ]));
    totals.add(&interval(vec![time(Stage::Forward, None, 2, 50)]));
    assert_eq!(totals.stage(Stage::Forward), PolledSum { requests: 6, ns: 1_050 });
    assert_eq!((totals.phase(Phase::Decode).mean_ns(), totals.stage(Stage::Queue).mean_ns()), (300, 10));
    let parts: Vec<_> = totals.parts().map(|(stage, phase, sum)| (stage.name(), phase.map(Phase::name), sum.ns)).collect();
    assert_eq!(
        parts,
        [("queue", None, 40), ("forward", None, 50), ("forward", Some("prefill"), 100), ("forward", Some("decode"), 900)]
    );
    assert_eq!(PolledSum::default().mean_ns(), 0);
}

#[test]
fn batches_weigh_by_requests_and_the_latest_go_out_of_date() {
    let (mut registry, opened, key) = (registry(), Stamp::now(), PolledKey::default());
    for (requests, size) in [(1, 2.0), (3, 6.0)] {
        let batch = Some(BatchStatistics { size: Some(size), running: Some(size), ..BatchStatistics::default() });
        let found = PolledInterval { batch, ..interval(vec![time(Stage::Queue, None, requests, 1)]) };
        registry.record_polled(key, &found, opened.plus(15 * SECOND));
    }
    let of = |registry: &Registry| registry.polled(Window::All).pop().map(|of| (of.totals.batch_size.value(), of.batch)).unwrap();
    let (size, latest) = of(&registry);
    assert_eq!((size, latest.and_then(|latest| latest.running)), (Some(5.0), Some(6.0)));
    registry.rotate(opened.plus(16 * SECOND));
    assert_eq!(of(&registry), (Some(5.0), None));
}

#[test]
fn the_statistics_of_a_model_stand_beside_series_that_ask_it_for_something() {
    use lapwing_ledger::{LabelId, Ledger, Outcome, SeriesKey, Unit};
    let mut registry = registry();
    let labels = registry.labels().clone();
    let upstream = labels.upstreams.intern("u");
    let key =
        |route: &str, model: &str| SeriesKey { route: labels.routes.intern(route), model: labels.models.intern(model), upstream };
    let exchange = |series: SeriesKey, primary: Option<Unit>| {
        let mut ledger = Ledger::open(Stamp::default(), 0);
        (ledger.series, ledger.outcome, ledger.work.primary) = (series, Outcome::Ok, primary);
        Exchange {
            ledger: ledger.into(),
            account: Default::default(),
            traced: Vec::new(),
            claimed_ns: 0,
            clipped: lapwing_ledger::ClippedReports::default(),
            is_incomplete: false,
            optimal_forward: None,
        }
    };
    for (series, primary) in
        [(key("infer", "m"), Some(Unit::Row)), (key("other", "unknown"), Some(Unit::Row)), (key("health", "m"), None)]
    {
        registry.record(&exchange(series, primary));
    }
    let polled = |model: LabelId| PolledKey { model, upstream };
    registry.record_polled(
        polled(labels.models.intern("m")),
        &interval(vec![time(Stage::Forward, None, 2, 20)]),
        Stamp::default(),
    );
    registry.record_polled(polled(labels.models.intern("")), &interval(vec![time(Stage::Queue, None, 2, 6)]), Stamp::default());
    let beside: Vec<_> = registry.polled(Window::All).into_iter().map(|of| (of.model.to_string(), of.routes)).collect();
    assert_eq!(beside, [(String::new(), vec![Arc::from("other")]), ("m".to_owned(), vec![Arc::from("infer")])]);
    let series = registry.series(Window::All, 0..registry.places());
    let sums =
        |route: &str| series.iter().find(|s| &*s.route == route).and_then(|s| s.polled).map(|of| of.stage(Stage::Queue).ns);
    assert_eq!((sums("infer"), sums("other"), sums("health")), (Some(0), Some(6), None));
}

proptest! {
    #[test]
    fn whatever_is_polled_adds_up(polls in proptest::collection::vec((0..3_usize, 0..4_u64, 0..1_000_u64, any::<bool>()), 0..60)) {
        let (mut registry, mut now) = (registry(), Stamp::now());
        let (mut requests, mut ns) = (0, 0);
        for (model, n, time_ns, rotates) in polls {
            let model = registry.labels().models.intern(["a", "b", ""][model]);
            let key = PolledKey { model, ..PolledKey::default() };
            registry.record_polled(key, &interval(vec![time(Stage::Queue, None, n, time_ns)]), now);
            (requests, ns) = (requests + n, ns + time_ns);
            if rotates {
                now = now.plus(2 * SECOND);
                registry.rotate(now);
            }
            let sum = |window| registry.polled(window).iter().fold((0, 0), |(requests, ns), of| {
                let sum = of.totals.stage(Stage::Queue);
                (requests + sum.requests, ns + sum.ns)
            });
            prop_assert_eq!(sum(Window::All), (requests, ns));
            // a minute and a bit: no slot has left the five minutes
            prop_assert_eq!(sum(Window::FiveMinutes), (requests, ns));
        }
    }
}
