//! `/cache` of a model that was asked the same ten questions over and over: in words, as JSON by its schema, in `/metrics`, in the diagnosis, purged,
//! and while it is off.

use std::net::SocketAddr;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Request, StatusCode};
use bytes::Bytes;
use http_body_util::BodyExt;
use serde_json::Value;
use tower::ServiceExt;

use super::fixture::empty;
use crate::router;
use crate::surfaces::Surfaces;
use lapwing_cache::{AnswerParts, Asking, CacheSeries, Caching, Config, Looked, QuestionContext};
use lapwing_ledger::Stamp;
use lapwing_metrics::Labels;
use lapwing_net::Peer;
use lapwing_protocol::request_match::KnownRequest;
use lapwing_settings::{ConfigHandle, LeverSwitch};

const MS: u64 = 1_000_000;
const ROUTE: &str = "POST /v2/models/{model}/infer";
const REQUESTS: u64 = 600;

/// A cache with this configuration that was asked ten questions in turn, one each 10 ms, each of which takes the upstream 50 ms. With `varies` it
/// answers differently each time. A streamed chat came too.
pub(crate) fn one_cache(config: Value, varies: bool, labels: &Labels) -> Caching {
    let caching = Caching::new([7; 32], || 0, ConfigHandle::fixed(serde_json::from_value::<Config>(config).unwrap()));
    let cache = caching.in_force(&LeverSwitch::default()).load();
    let series = CacheSeries { route: labels.routes.intern(ROUTE), model: labels.models.intern("digits") };
    let start = Stamp::now();
    let of = |asked| QuestionContext {
        known: KnownRequest { model: Some("digits"), ..KnownRequest::default() },
        pool: "",
        series,
        identity: None,
        asked,
    };
    let answered = |asking: Asking, at: u64, now: Stamp| {
        let body = [Bytes::from(format!(r#"{{"outputs": [{}]}}"#, if varies { at } else { at % 10 }))];
        let headers: HeaderMap =
            [(http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"))].into_iter().collect();
        let parts = AnswerParts { status: StatusCode::OK, headers: &headers, body: &body, trailers: None, is_complete: true };
        asking.answered(parts, now.plus(50 * MS));
    };
    for at in 0..REQUESTS {
        let now = start.plus(at * 10 * MS);
        let head = Request::post("/v2/models/digits/infer").header("content-type", "application/json").body(()).unwrap();
        let tensor = serde_json::json!({"name": "x", "shape": [1], "datatype": "FP32", "data": [at % 10]});
        let body = [Bytes::from(serde_json::json!({"inputs": [tensor]}).to_string())];
        let Some(question) = cache.question(&head, &body, of(now)) else { continue };
        if let Looked::Asked(asking) = cache.look(question, now) {
            answered(asking, at, now);
        }
    }
    let head = Request::post("/v1/chat/completions").header("content-type", "application/json").body(()).unwrap();
    let chat = serde_json::json!({"model": "m", "messages": [{"role": "user", "content": "Hello"}], "stream": true});
    assert!(cache.question(&head, &[Bytes::from(chat.to_string())], of(start)).is_none());
    caching
}

fn with(config: Value, varies: bool) -> Surfaces {
    let surfaces = empty();
    let labels = surfaces.registry.lock().labels().clone();
    Surfaces { cache: Some(one_cache(config, varies, &labels)), ..surfaces }
}

fn observing() -> Value {
    serde_json::json!({"mode": "observe", "proof": 4})
}

pub(crate) fn on() -> Value {
    serde_json::json!({"mode": "on", "proof": 4, "verify": "0%"})
}

async fn ask(surfaces: &Surfaces, method: &str, path: &str, peer: &str) -> (StatusCode, String) {
    let mut request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
    request.extensions_mut().insert(Peer(peer.parse::<SocketAddr>().unwrap()));
    let (head, body) = router(surfaces.clone()).oneshot(request).await.unwrap().into_parts();
    (head.status, String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap())
}

async fn get(surfaces: &Surfaces, path: &str) -> (StatusCode, String) {
    ask(surfaces, "GET", path, "127.0.0.1:1").await
}

async fn json(surfaces: &Surfaces, path: &str) -> Value {
    serde_json::from_str(&get(surfaces, path).await.1).unwrap()
}

fn has_parts(words: &str, parts: &[&str]) {
    for part in parts {
        assert!(words.contains(part), "{part}\nis not in\n{words}");
    }
}

#[tokio::test]
async fn what_it_answers_is_shown_in_words_and_figures() {
    let surfaces = with(on(), false);
    let (status, words) = get(&surfaces, "/cache").await;
    assert_eq!(status, StatusCode::OK);
    // each question is asked once, four again for the proof, and all but that fourth again to be kept
    has_parts(
        &words,
        &[
            "the cache is on: it answered 96 % of 600 requests that it might answer, and saved 28.9 s of the upstream's time\n",
            " l1: an answer in memory\n",
            " unproven: its route and model have not yet been shown to give the same answer\n",
            "it keeps 10 answers, ",
            " of 64 MiB; 0 lead now, 0 wait for them\n",
            "{model}/infer, model digits: proven, the same answer to the same question in 13 of 13 tries (0 % to 23 % differ)\n",
            " stream: its answer comes as a stream\n",
        ],
    );
    let json = json(&surfaces, "/cache?format=json").await;
    assert_eq!((&json["mode"], &json["requests"], &json["results"]["l1"]), (&"on".into(), &600.into(), &577.into()));
    assert_eq!((&json["entries"], &json["stored"], &json["saved_ns"]), (&10.into(), &10.into(), &(577 * 50 * MS).into()));
    assert_eq!((&json["series"][0]["state"], &json["series"][0]["needed"]), (&"proven".into(), &0.into()));
    assert_eq!((&json["refused"]["stream"], &json["ghost"]), (&1.into(), &Value::Null));
    let document: Value = serde_json::from_str(&get(&surfaces, "/openapi.json").await.1).unwrap();
    let described = document["components"]["schemas"]["CacheView"]["properties"].as_object().unwrap();
    assert_eq!(json.as_object().unwrap().keys().collect::<Vec<_>>(), described.keys().collect::<Vec<_>>());
}

#[tokio::test]
async fn while_it_observes_the_worth_of_each_size_and_time_is_shown() {
    let surfaces = with(observing(), false);
    let sentence = "would answer 90 % of 600 requests and save 16227 s of the upstream's time an hour; the upstream gave the same answer to the \
                    same question in 590 of 590 tries";
    let words = get(&surfaces, "/cache").await.1;
    has_parts(
        &words,
        &["the cache observes: the upstream is asked in all cases\n", "\n    16 GiB ", &format!("1 s and 1 MiB {sentence}\n")],
    );
    let json = json(&surfaces, "/cache?format=json").await;
    let ghost = &json["ghost"];
    assert_eq!((&ghost["requests"], &ghost["observed_ns"]), (&600.into(), &(5_990 * MS).into()));
    assert_eq!((&ghost["enough"]["ttl_s"], &ghost["enough"]["max_bytes"]), (&1.into(), &(1_u64 << 20).into()));
    assert_eq!((ghost["cells"].as_array().unwrap().len(), &json["hit_rate"], &json["compared"]), (64, &Value::Null, &590.into()));
}

#[tokio::test]
async fn the_cache_is_in_the_metrics() {
    let metrics = get(&with(on(), false), "/metrics").await.1;
    for line in [
        "lapwing_cache_requests_total{result=\"l1\"} 577",
        "lapwing_cache_requests_total{result=\"unproven\"} 14",
        "lapwing_cache_requests_total{result=\"l2\"} 0",
        "lapwing_cache_refused_total{reason=\"stream\"} 1",
        "lapwing_cache_refused_total{reason=\"unread\"} 0",
        "lapwing_cache_compared_total{result=\"same\"} 13",
        "lapwing_cache_compared_total{result=\"different\"} 0",
        "lapwing_cache_series{state=\"proven\"} 1",
        "lapwing_cache_entries 10",
        "lapwing_cache_stored_total 10",
        "lapwing_cache_saved_seconds_total 28.85",
        "lapwing_cache_waiting{role=\"following\"} 0",
    ] {
        assert!(metrics.lines().any(|of| of.starts_with(line)), "{line} is not in\n{metrics}");
    }
}

#[tokio::test]
async fn the_diagnosis_names_it_while_it_observes_and_the_upstream_says_the_same() {
    let advised = async |config: Value, varies: bool| {
        let json = json(&with(config, varies), "/diagnosis?format=json&model=digits").await;
        json["levers"].as_array().unwrap().clone()
    };
    let levers = advised(observing(), false).await;
    let sentence = levers[0]["sentence"].as_str().unwrap();
    assert!(levers.len() == 1 && levers[0]["lever"] == "cache" && levers[0]["requests"] == REQUESTS, "{levers:?}");
    assert!(sentence.starts_with("cache: 1 s and 1 MiB would answer 90 % of 600 requests"), "{sentence}");
    // the upstream has two answers; the cache is on already; it is off
    for (config, varies) in [(observing(), true), (on(), false), (serde_json::json!({}), false)] {
        assert_eq!(advised(config.clone(), varies).await, Vec::<Value>::new(), "{config} {varies}");
    }
}

#[tokio::test]
async fn who_gives_other_answers_is_refused_and_named() {
    let surfaces = with(on(), true);
    let words = get(&surfaces, "/cache").await.1;
    has_parts(
        &words,
        &["it answered 0 % of 600 requests", "model digits: refused, ", "it is asked in all cases; leave it out by cache.routes"],
    );
    let series = &json(&surfaces, "/cache?format=json").await["series"][0];
    assert_eq!((&series["state"], &series["same"]), (&"refused".into(), &0.into()));
    assert!(series["different_share"]["low"].as_f64().unwrap() > 0.9, "{series}");
}

#[tokio::test]
async fn a_purge_forgets_answers_and_trust_for_who_may_ask() {
    let surfaces = with(on(), false);
    let (status, denied) = ask(&surfaces, "POST", "/cache/purge", "10.0.0.9:1").await;
    assert!(status == StatusCode::FORBIDDEN && denied.contains("may tell Lapwing to forget answers"), "{denied}");
    assert_eq!(json(&surfaces, "/cache?format=json").await["entries"], 10);
    let (status, forgotten) = ask(&surfaces, "POST", "/cache/purge", "127.0.0.1:1").await;
    let forgotten: Value = serde_json::from_str(&forgotten).unwrap();
    assert_eq!((status, &forgotten["entries"], &forgotten["series"]), (StatusCode::OK, &10.into(), &1.into()));
    let after = json(&surfaces, "/cache?format=json").await;
    assert_eq!((&after["entries"], after["series"].as_array().unwrap().len()), (&0.into(), 0));
    assert_eq!(ask(&empty(), "POST", "/cache/purge", "127.0.0.1:1").await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn while_it_is_off_the_answer_says_so() {
    for surfaces in [empty(), with(serde_json::json!({}), false)] {
        let (status, words) = get(&surfaces, "/cache").await;
        assert!(status == StatusCode::OK && words.contains("cache.mode is off"), "{words}");
        assert_eq!(get(&surfaces, "/cache?format=json").await.1.trim(), "null");
        assert!(!get(&surfaces, "/metrics").await.1.contains("lapwing_cache_"));
    }
    let some = serde_json::json!({"routes": [{"match": {"model": "digits"}, "mode": "observe"}]});
    assert_eq!(json(&with(some, false), "/cache?format=json").await["mode"], "observe", "by a route");
    assert_eq!(get(&empty(), "/cache?format=xml").await.0, StatusCode::BAD_REQUEST);
}
