//! `/trials` after some blocks: in words, as JSON by its schema, in `/metrics`, and without a trial.

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
use lapwing_ledger::{Ledger, Outcome, Stamp};
use lapwing_proxy::Levers;
use lapwing_settings::ConfigHandle;
use lapwing_shadow::switchback::{Config, LeverTrials};

const SECOND: u64 = 1_000_000_000;

/// A trial that began `blocks` blocks of 10 s ago, with 20 requests in each; those with the lever on are slower.
pub(crate) fn one_trial(blocks: u64) -> Arc<Mutex<LeverTrials>> {
    let config: Config = serde_json::from_str(r#"{"lever": "quick_ack", "block": "10s", "max_time": "1h"}"#).unwrap();
    let (levers, begin) = (Levers::default(), Stamp::now());
    let mut trials = LeverTrials::new(ConfigHandle::fixed(config), levers.clone(), 1, begin);
    for block in 0..blocks {
        let is_on = levers.quick_ack.is_on(false);
        for n in 0..20 {
            let mut ledger = Ledger::open(begin.plus(block * 10 * SECOND + 3 * SECOND), 0);
            ledger.outcome = if n == 0 { Outcome::ServerError } else { Outcome::Ok };
            ledger.total_ns = (if is_on { 12_000_000 } else { 10_000_000 }) + n * 10_000;
            trials.take(&ledger);
        }
        trials.tick(begin.plus((block + 1) * 10 * SECOND));
        trials.tick(begin.plus((block + 1) * 10 * SECOND + SECOND));
    }
    Arc::new(Mutex::new(trials))
}

fn with(blocks: u64) -> Surfaces {
    Surfaces { trials: Some(one_trial(blocks)), ..empty() }
}

async fn ask(surfaces: &Surfaces, path: &str) -> (StatusCode, String) {
    let request = Request::get(path).body(Body::empty()).unwrap();
    let (head, body) = router(surfaces.clone()).oneshot(request).await.unwrap().into_parts();
    (head.status, String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap())
}

#[tokio::test]
async fn a_trial_is_shown_in_words_and_figures() {
    let (status, words) = ask(&with(4), "/trials").await;
    assert_eq!(status, StatusCode::OK);
    assert!(words.starts_with("lever `quick_ack`, for 0 s: o"), "{words}");
    for part in [
        "\n  p50: too early: coins have decided ",
        "\n  p99: 4 of 4 blocks have too few requests; longer ones have more\n",
        " blocks, ",
        " requests, ",
        "not counted: 0 dropped, 0 outlasting, 0 left\n",
        "  p99 is ?× [?, ?] while it is on: undecided\n",
        "95 % confidence",
    ] {
        assert!(words.contains(part), "{part}\nis not in\n{words}");
    }
    let json: Value = serde_json::from_str(&ask(&with(4), "/trials?format=json").await.1).unwrap();
    assert_eq!(
        (&json["lever"], &json["state"], &json["block_ns"]),
        (&"quick_ack".into(), &"running".into(), &(10 * SECOND).into())
    );
    assert_eq!(json["on"]["requests"].as_u64().unwrap() + json["off"]["requests"].as_u64().unwrap(), 80);
    assert_eq!((&json["latest"][0]["side"]["failed"], &json["limits"]["errors"]), (&1.into(), &0.0.into()));
    assert_eq!(json["effects"]["errors"]["verdict"], "undecided");
    let document: Value = serde_json::from_str(&ask(&with(0), "/openapi.json").await.1).unwrap();
    let described = document["components"]["schemas"]["TrialView"]["properties"].as_object().unwrap();
    let shown = json.as_object().unwrap();
    assert_eq!(shown.keys().collect::<Vec<_>>(), described.keys().collect::<Vec<_>>());
}

#[tokio::test]
async fn harm_is_said_first() {
    let words = ask(&with(60), "/trials").await.1;
    let start = "lever `quick_ack`, for 0 s: stopped, and off until a setting of the trial changes: p50 is 1.";
    assert!(words.starts_with(start) && words.contains("the limit is 1×"), "{words}");
    assert!(words.contains("while it is on: worse\n"), "{words}");
    let json: Value = serde_json::from_str(&ask(&with(60), "/trials?format=json").await.1).unwrap();
    assert_eq!(
        (&json["state"], &json["is_on"], &json["effects"]["p50"]["verdict"]),
        (&"stopped".into(), &false.into(), &"worse".into())
    );
}

#[tokio::test]
async fn a_trial_is_in_the_metrics() {
    let (_, metrics) = ask(&with(4), "/metrics").await;
    for line in [
        "lapwing_trial_on{lever=\"quick_ack\"} ",
        "lapwing_trial_stopped{lever=\"quick_ack\"} 0",
        "lapwing_trial_blocks_total{lever=\"quick_ack\",side=\"failed\"} 0",
        "lapwing_trial_requests_total{lever=\"quick_ack\",side=\"outlasting\"} 0",
    ] {
        assert!(metrics.lines().any(|of| of.starts_with(line)), "{line}");
    }
    assert!(!ask(&empty(), "/metrics").await.1.contains("lapwing_trial"));
}

#[tokio::test]
async fn without_a_trial_the_answer_says_so() {
    let nothing = LeverTrials::new(ConfigHandle::fixed(Config::default()), Levers::default(), 1, Stamp::now());
    for surfaces in [empty(), Surfaces { trials: Some(Arc::new(Mutex::new(nothing))), ..empty() }] {
        let (status, words) = ask(&surfaces, "/trials").await;
        assert!(status == StatusCode::OK && words.contains("nothing is tried"), "{words}");
        assert_eq!(ask(&surfaces, "/trials?format=json").await.1.trim(), "null");
        assert!(!ask(&surfaces, "/metrics").await.1.contains("lapwing_trial"));
    }
    assert_eq!(ask(&empty(), "/trials?format=xml").await.0, StatusCode::BAD_REQUEST);
}
