//! `/dispatch` of one upstream that works on one request at a time and another that has answered nothing: in words, as JSON by its schema, in
//! `/metrics`, and while it is off.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use serde_json::Value;
use tower::ServiceExt;

use super::fixture::empty;
use crate::router;
use crate::surfaces::Surfaces;
use lapwing_dispatch::{Config, DispatchLearning};
use lapwing_ledger::{Basis, Ledger, Outcome, SeriesKey, Stamp, Unit, UpstreamWindow};
use lapwing_metrics::Labels;
use lapwing_net::Target;
use lapwing_proxy::Upstreams;
use lapwing_settings::ConfigHandle;

const MS: u64 = 1_000_000;
const ROUTE: &str = "POST /v2/models/{model}/infer";
/// As many as an upstream's latest that are kept.
const REQUESTS: u64 = 1_000;

/// What is learnt of requests for 1 to 64 rows that take 2 ms and 1 ms for each row, and come so that they wait for each other now and then. With
/// `together`, all that are there at once end at once, as in a batch.
fn queue_before(upstreams: usize, mode: &str, together: bool, labels: &Labels) -> Arc<Mutex<DispatchLearning>> {
    let classes = serde_json::json!([{"name": "gold", "match": {"header": "x-tier: gold"}, "weight": 4}]);
    let config: Config =
        serde_json::from_value(serde_json::json!({"mode": mode, "classes": classes, "hedge": {"mode": mode}})).unwrap();
    let dispatching = Upstreams::at(Target::Tcp("127.0.0.1:8000".into())).dispatched_by(ConfigHandle::fixed(config));
    let places: Vec<_> = ["8000", "8001"].map(|port| labels.upstreams.intern(&format!("http://127.0.0.1:{port}"))).into();
    let series = SeriesKey { route: labels.routes.intern(ROUTE), model: labels.models.intern("digits"), upstream: places[0] };
    let start = Stamp::now();
    let mut learning = DispatchLearning::new(dispatching, places.into_iter().take(upstreams), Default::default(), start);
    let (mut free, mut arrived) = (start, start);
    for n in 0..REQUESTS {
        let random = (n + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29) >> 32;
        let (rows, gap) = (1_u64 << (random % 7), (random >> 8) % 60);
        arrived = arrived.plus(gap * MS);
        let takes = (2 + rows) * MS;
        free = if together { arrived.plus(100 * MS - arrived.since(start) % (100 * MS)) } else { free.max(arrived).plus(takes) };
        let mut ledger = Ledger::open(arrived, 0);
        ledger.series = series;
        ledger.outcome = Outcome::Ok;
        ledger.total_ns = free.since(arrived);
        ledger.window = Some(UpstreamWindow { start_ns: 0, head_ns: ledger.total_ns, end_ns: ledger.total_ns });
        ledger.work.primary = Some(Unit::Row);
        ledger.work.set(Unit::Row, rows, Basis::Counted);
        learning.take(&ledger);
    }
    learning.tick(free.plus(20_000 * MS), |_, _| false);
    Arc::new(Mutex::new(learning))
}

/// The same of two upstreams, of which the second has answered nothing.
pub(crate) fn one_queue(mode: &str, together: bool, labels: &Labels) -> Arc<Mutex<DispatchLearning>> {
    queue_before(2, mode, together, labels)
}

fn with(mode: &str, together: bool) -> Surfaces {
    let surfaces = empty();
    let labels = surfaces.registry.lock().labels().clone();
    Surfaces { dispatch: Some(one_queue(mode, together, &labels)), ..surfaces }
}

async fn ask(surfaces: &Surfaces, path: &str) -> (StatusCode, String) {
    let request = Request::get(path).body(Body::empty()).unwrap();
    let (head, body) = router(surfaces.clone()).oneshot(request).await.unwrap().into_parts();
    (head.status, String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap())
}

#[tokio::test]
async fn the_queue_is_shown_in_words_and_figures() {
    let surfaces = with("observe", false);
    let (status, words) = ask(&surfaces, "/dispatch").await;
    assert_eq!(status, StatusCode::OK);
    for part in [
        "nothing waits in front of http://127.0.0.1:8001: it has answered 0 requests, and it takes ",
        "\ndispatch observes: requests pass as they come\n",
        "\nhttp://127.0.0.1:8000: works on 1 at once; 0 there; speed 1.00\n",
        "second requests for those that take long are not sent: 0 would have been, 0 not\n",
        "{model}/infer, model digits: takes 2 ms, and 1 ms for each unit of work (1000 requests, off by 0 % in the mean)\n",
        "the latest 1000 requests (",
        "  p99 of the small ",
        "none of them had a deadline\n",
    ] {
        assert!(words.contains(part), "{part}\nis not in\n{words}");
    }
    let json: Value = serde_json::from_str(&ask(&surfaces, "/dispatch?format=json").await.1).unwrap();
    assert_eq!((&json["mode"], &json["is_on"], &json["waiting"]), (&"observe".into(), &false.into(), &0.into()));
    assert_eq!((&json["classes"][0]["name"], &json["classes"][1]["name"]), (&"gold".into(), &"other".into()));
    let replayed = |side: &str| json["replayed"][side]["small_p99_ns"].as_u64().unwrap();
    assert!(replayed("with") < replayed("without"), "{json}");
    let document: Value = serde_json::from_str(&ask(&surfaces, "/openapi.json").await.1).unwrap();
    let described = document["components"]["schemas"]["DispatchView"]["properties"].as_object().unwrap();
    assert_eq!(json.as_object().unwrap().keys().collect::<Vec<_>>(), described.keys().collect::<Vec<_>>());
}

#[tokio::test]
async fn the_queue_is_in_the_metrics() {
    let metrics = ask(&with("on", false), "/metrics").await.1;
    for line in [
        "lapwing_dispatch_on 1",
        "lapwing_dispatch_waiting{class=\"gold\"} 0",
        "lapwing_dispatch_waiting_work_seconds{class=\"other\"} 0",
        "lapwing_dispatch_class_requests_total{class=\"gold\",result=\"expired\"} 0",
        "lapwing_dispatch_wait_seconds_count{class=\"other\"} 0",
        "lapwing_dispatch_slots{upstream=\"http://127.0.0.1:8000\"} 1",
        "lapwing_dispatch_window_refused{upstream=\"http://127.0.0.1:8001\",reason=\"too_few_requests\"} 1",
        "lapwing_dispatch_speed_ratio{upstream=\"http://127.0.0.1:8001\"} 1",
        "lapwing_dispatch_service_seconds_total 0",
        "lapwing_hedge_service_seconds_total 0",
        "lapwing_hedges_total{result=\"won\"} 0",
    ] {
        assert!(metrics.lines().any(|of| of.starts_with(line)), "{line} is not in\n{metrics}");
    }
    assert!(!metrics.contains("lapwing_dispatch_slots{upstream=\"http://127.0.0.1:8001\"}"));
    let batching = ask(&with("on", true), "/metrics").await.1;
    assert!(batching.contains("{upstream=\"http://127.0.0.1:8000\",reason=\"not_one_by_one\"} 1"), "{batching}");
    assert!(!batching.contains("lapwing_dispatch_slots{"));
}

#[tokio::test]
async fn the_diagnosis_names_it_while_it_observes_and_would_help() {
    let advised = async |mode: &str, together: bool, upstreams: usize| {
        let surfaces = empty();
        let labels = surfaces.registry.lock().labels().clone();
        let surfaces = Surfaces { dispatch: Some(queue_before(upstreams, mode, together, &labels)), ..surfaces };
        let json: Value = serde_json::from_str(&ask(&surfaces, "/diagnosis?format=json&model=digits").await.1).unwrap();
        json["levers"].as_array().unwrap().clone()
    };
    let levers = advised("observe", false, 1).await;
    let sentence = levers[0]["sentence"].as_str().unwrap();
    assert!(levers.len() == 1 && levers[0]["lever"] == "dispatch" && levers[0]["requests"] == REQUESTS, "{levers:?}");
    assert!(sentence.starts_with("dispatch would take ") && sentence.contains(" by 1,000 requests of the last "), "{sentence}");
    // one that batches; it is on already; it is off; and requests for the other upstream would not wait
    for (mode, together, upstreams) in [("observe", true, 1), ("on", false, 1), ("off", false, 1), ("observe", false, 2)] {
        assert_eq!(advised(mode, together, upstreams).await, Vec::<Value>::new(), "{mode} {together} {upstreams}");
    }
}

#[tokio::test]
async fn while_it_is_off_the_answer_says_so() {
    for surfaces in [empty(), with("off", false)] {
        let (status, words) = ask(&surfaces, "/dispatch").await;
        assert!(status == StatusCode::OK && words.contains("dispatch.mode is off"), "{words}");
        assert_eq!(ask(&surfaces, "/dispatch?format=json").await.1.trim(), "null");
        assert!(!ask(&surfaces, "/metrics").await.1.contains("lapwing_dispatch_on"));
    }
    assert_eq!(ask(&empty(), "/dispatch?format=xml").await.0, StatusCode::BAD_REQUEST);
}
