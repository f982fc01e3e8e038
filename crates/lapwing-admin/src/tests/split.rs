//! `/split` with one pair: in words, as JSON by its schema, in `/metrics`, and without a split.

use std::num::NonZeroU32;
use std::sync::Arc;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::fixture::{ROUTE, empty, request};
use crate::router;
use crate::surfaces::Surfaces;
use lapwing_ledger::{Outcome, Stamp};
use lapwing_proxy::TrafficSplit;
use lapwing_settings::ConfigHandle;
use lapwing_shadow::OutputResult;
use lapwing_shadow::split::{Config, LiveSplit};

/// A split of which each side had one request, of 8 and 16 ms; a third was left by its client.
pub(crate) fn one_split(surfaces: &Surfaces) -> Arc<Mutex<LiveSplit>> {
    let labels = surfaces.registry.lock().labels().clone();
    let config: Config =
        serde_json::from_value(json!({"candidate": "int8", "key": "header:x-user", "ramp": ["5%", "25%"], "compare": true,
            "stop_on": {"p50_ratio": 1.1, "errors": "1%", "mismatch": "2%"}}))
        .unwrap();
    let traffic = Arc::new(TrafficSplit::new("int8", config.key.clone()));
    let (candidate, start) = (labels.upstreams.intern("int8"), Stamp::now());
    let mut split = LiveSplit::new(traffic, ConfigHandle::fixed(config), candidate, labels, start);
    for (key, total_ns, outcome) in [(1, 10_000_000, Outcome::Ok), (2, 20_000_000, Outcome::Ok), (3, 5, Outcome::Cancelled)] {
        let mut exchange = request(surfaces, ROUTE, "digits", outcome, total_ns);
        exchange.ledger.split_key = NonZeroU32::new(key);
        if key == 2 {
            exchange.ledger.series.upstream = candidate;
        }
        split.take(&exchange, exchange.ledger.started);
    }
    let key = NonZeroU32::MIN;
    split.take_outputs(key, OutputResult::Same, start);
    split.take_outputs(key, OutputResult::Unjudged, start);
    split.tick(start.plus(60_000_000_000));
    Arc::new(Mutex::new(split))
}

fn one_pair() -> Surfaces {
    let surfaces = empty();
    Surfaces { split: Some(one_split(&surfaces)), ..surfaces }
}

async fn ask(surfaces: &Surfaces, path: &str) -> (StatusCode, String) {
    let request = Request::get(path).body(Body::empty()).unwrap();
    let (head, body) = router(surfaces.clone()).oneshot(request).await.unwrap().into_parts();
    (head.status, String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap())
}

#[tokio::test]
async fn a_split_is_shown_in_words_and_figures() {
    let surfaces = one_pair();
    let (status, words) = ask(&surfaces, "/split").await;
    assert_eq!(status, StatusCode::OK);
    assert!(words.starts_with("candidate `int8` gets 5 % of keys (header:x-user), step 1 of 2; 25 % in "), "{words}");
    for part in [
        "1 keys of the candidate and 1 of the baseline were judged; it takes 20 of each",
        "\n  candidate: 1 judged of 1 keys, 0 failed [0 %, 100 %]; 0 left by clients\n",
        "\n  baseline: 1 judged of 1 keys, 0 failed [0 %, 100 %]; 1 left by clients\n",
        "\n  outputs: 1 compared, 0 differ [0 %, 100 %]; not judged: 1, 0 of the same keys\n",
        "candidate `int8`: total too early to say after 1 pairs",
    ] {
        assert!(words.contains(part), "{part}\nis not in\n{words}");
    }
    let json: Value = serde_json::from_str(&ask(&surfaces, "/split?format=json").await.1).unwrap();
    assert_eq!((&json["share"], &json["state"], &json["step"]), (&0.05.into(), &"rising".into(), &json!([1, 2])));
    assert_eq!(
        (&json["next_share"], &json["limits"]),
        (&0.25.into(), &json!({"p50_ratio": 1.1, "p99_ratio": null, "errors": 0.01, "mismatch": 0.02}))
    );
    assert_eq!(json["requests"], json!({"candidate": 0, "baseline": 0, "without_key": 0, "away": 0}));
    assert_eq!((&json["figures"]["total"]["pairs"], &json["figures"]["total"]["losses"]), (&1.into(), &1.into()));
    assert_eq!(json["comparisons"][0]["route"], ROUTE);
    let document: Value = serde_json::from_str(&ask(&surfaces, "/openapi.json").await.1).unwrap();
    let described = document["components"]["schemas"]["SplitView"]["properties"].as_object().unwrap();
    let shown = json.as_object().unwrap();
    assert_eq!(shown.keys().collect::<Vec<_>>(), described.keys().collect::<Vec<_>>());
}

#[tokio::test]
async fn a_split_is_in_the_metrics() {
    let (_, metrics) = ask(&one_pair(), "/metrics").await;
    for line in [
        "lapwing_split_share{candidate=\"int8\"} 0.05",
        "lapwing_split_stopped{candidate=\"int8\"} 0",
        "lapwing_split_requests_total{candidate=\"int8\",side=\"away\"} 0",
        "lapwing_split_judged_total{candidate=\"int8\"} 2",
    ] {
        assert!(metrics.lines().any(|of| of.starts_with(line)), "{line}");
    }
    assert!(!ask(&empty(), "/metrics").await.1.contains("lapwing_split"));
}

#[tokio::test]
async fn without_a_split_the_answer_says_so() {
    let (status, words) = ask(&empty(), "/split").await;
    assert_eq!(status, StatusCode::OK);
    assert!(words.contains("nothing is split"), "{words}");
    assert_eq!(ask(&empty(), "/split?format=xml").await.0, StatusCode::BAD_REQUEST);
}
