//! The admin paths as clients see them, and docs/STATS.md against what they really send.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, StatusCode, header};
use base64::Engine as _;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use http_body_util::BodyExt;
use serde_json::Value;
use tower::ServiceExt;

use super::fixture::{AWKWARD, CHAT, ROUTE, busy, empty, hosted};
use crate::endpoints::ENDPOINTS;
use crate::*;
use lapwing_ledger::clock;
use lapwing_metrics::Measure;
use lapwing_metrics::exposition::ExpositionFormat;
use lapwing_metrics::views::DEFAULT_LIMIT;

async fn ask(surfaces: &Surfaces, method: Method, path: &str, accept: &str) -> (StatusCode, HeaderMap, String) {
    let request = Request::builder().method(method).uri(path).header(header::ACCEPT, accept).body(Body::empty()).unwrap();
    let (head, body) = router(surfaces.clone()).oneshot(request).await.unwrap().into_parts();
    let body = body.collect().await.unwrap().to_bytes().to_vec();
    (head.status, head.headers, String::from_utf8(body).unwrap())
}

async fn get(surfaces: &Surfaces, path: &str) -> (StatusCode, String) {
    let (status, _, body) = ask(surfaces, Method::GET, path, "*/*").await;
    (status, body)
}

async fn json(surfaces: &Surfaces, path: &str) -> Value {
    let (status, head, body) = ask(surfaces, Method::GET, path, "*/*").await;
    assert_eq!((status, head[header::CONTENT_TYPE].as_bytes()), (StatusCode::OK, &b"application/json"[..]), "{path}: {body}");
    serde_json::from_str(&body).unwrap()
}

#[tokio::test]
async fn stats_say_where_the_time_goes() {
    let stats = json(&busy(), "/stats").await;
    assert_eq!(stats["window"], "1m");
    assert!(stats["covered_ns"].as_u64().unwrap() < 60_000_000_000);
    let series = stats["series"].as_array().unwrap();
    let routes: Vec<_> = series.iter().map(|s| s["route"].as_str().unwrap()).collect();
    assert_eq!(routes, [AWKWARD, CHAT, ROUTE]);
    assert_eq!(series[0]["model"], Value::Null);
    let one = &series[2];
    assert_eq!((&one["model"], &one["upstream"]), (&"digits".into(), &"http://127.0.0.1:8000".into()));
    assert_eq!((one["count"].as_u64(), one["errors"].as_u64()), (Some(110), Some(8)));
    assert_eq!((one["outcomes"]["ok"].as_u64(), one["outcomes"]["cancelled"].as_u64()), (Some(101), Some(1)));
    let total = &one["total"];
    assert_eq!((total["count"].as_u64(), total["max_ns"].as_u64()), (Some(102), Some(100_000_000)));
    assert_eq!(total["mean_ns"].as_u64(), Some(5_060_000_000 / 102));
    let p90 = total["p90_ns"].as_u64().unwrap();
    assert!((90_000_000..90_100_000).contains(&p90), "{p90}");
    let forward = &one["stages"]["forward"];
    assert_eq!((forward["count"].as_u64(), forward["share"].as_f64()), (Some(102), Some(0.5)));
    assert_eq!(forward["sources"], serde_json::json!({"reported": 102}));
    assert_eq!(one["stages"].get("queue"), None);
    let shares: f64 = one["stages"].as_object().unwrap().values().map(|s| s["share"].as_f64().unwrap()).sum();
    assert!((shares - 1.0).abs() < 1e-9, "{shares}");
    assert_eq!((one["cancelled"]["count"].as_u64(), one["failed"]["count"].as_u64()), (Some(1), Some(6)));
    assert_eq!((one["streams"]["count"].as_u64(), one["streams"]["response_bytes"].as_u64()), (Some(1), Some(128)));
    assert!((one["coverage"].as_f64().unwrap() - 0.625).abs() < 1e-9);
    let burn = 50.0 / 109.0 / 0.01;
    assert_eq!(one["budget"]["p99"], serde_json::json!({"limit_ns": 50_000_000, "requests": 109, "over": 50, "burn_rate": burn}));
    assert_eq!(series[0]["budget"]["p999"]["over"].as_u64(), Some(0));
    let profiler = &stats["profiler"];
    assert_eq!((profiler["dropped"].as_u64(), profiler["series"].as_u64()), (Some(1), Some(3)));
    assert_eq!((profiler["spans"]["joined"].as_u64(), profiler["queue_max"].as_u64()), (Some(3), Some(4096)));
}

#[tokio::test]
async fn stats_say_where_the_engines_models_run() {
    let surfaces = empty();
    assert_eq!(json(&surfaces, "/stats").await.get("engine"), None, "there is no engine");
    let stats = json(&Surfaces { engine: hosted(), ..surfaces }, "/stats").await;
    let expected = serde_json::json!({"models": [
        {"name": "embed", "version": "2", "executor": "plan", "device": "cuda:1", "device_name": "NVIDIA H200",
            "precision": "fp16", "ready": false, "fallback": null, "fault": "cuda:1: is lost"},
        {"name": "fraud", "version": "2", "executor": "rten", "device": "cpu", "device_name": null, "precision": "fp32",
            "ready": true, "fallback": {"reason": "no_driver", "told": "libcuda.so.1: is not there"}, "fault": null},
    ]});
    assert_eq!(stats["engine"], expected);
}

#[tokio::test]
async fn durations_are_whole_nanoseconds() {
    fn check(name: &str, value: &Value) {
        match value {
            Value::Object(map) => map.iter().for_each(|(name, value)| check(name, value)),
            Value::Array(list) => list.iter().for_each(|value| check(name, value)),
            value => assert!(!(name == "ns" || name.ends_with("_ns")) || value.is_u64(), "{name} is {value}"),
        }
    }
    let surfaces = busy();
    check("", &json(&surfaces, "/stats?window=all").await);
    check("", &json(&surfaces, "/exchanges?limit=200").await);
}

#[tokio::test]
async fn exchanges_are_waterfalls_that_sum_up() {
    let surfaces = busy();
    let all = json(&surfaces, "/exchanges?limit=200").await;
    let all = all["exchanges"].as_array().unwrap();
    assert_eq!(all.len(), 112);
    for one in all {
        let stages = one["stages"].as_array().unwrap();
        assert_eq!(stages.iter().map(|s| s["ns"].as_u64().unwrap()).sum::<u64>(), one["total_ns"].as_u64().unwrap());
    }
    let latest = &all[0];
    assert_eq!((&latest["route"], &latest["model"], &latest["status"]), (&AWKWARD.into(), &Value::Null, &Value::Null));
    assert_eq!((&latest["trace_id"], &latest["span_id"]), (&"07".repeat(16).into(), &"08".repeat(8).into()));
    assert_eq!(latest["started_at"], "2026-11-21T07:39:55.000000042Z");
    assert_eq!(latest["spans"][1]["name"], "lookup");
    assert_eq!((latest["spans"][1]["start_ns"].as_u64(), latest["clipped"].as_u64()), (Some(200_000), Some(0)));
    let hydration = serde_json::json!({"stage": "hydration", "ns": 500_000, "source": "traced"});
    assert!(latest["stages"].as_array().unwrap().contains(&hydration));
    assert_eq!((&all[1]["kind"], &all[1]["status"]), (&"stream".into(), &101.into()));
    let slowest = json(&surfaces, "/exchanges?order=slowest&limit=2").await;
    let totals: Vec<_> = slowest["exchanges"].as_array().unwrap().iter().map(|e| e["total_ns"].as_u64()).collect();
    assert_eq!(totals, [Some(100_000_000), Some(99_000_000)]);
    assert_eq!(json(&surfaces, "/exchanges").await["exchanges"].as_array().unwrap().len(), DEFAULT_LIMIT);
}

#[tokio::test]
async fn metrics_come_in_the_format_asked_for() {
    let surfaces = busy();
    let prometheus = "application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
    for (accept, format, ends_in_eof) in [
        ("*/*", ExpositionFormat::OpenMetrics, true),
        (prometheus, ExpositionFormat::OpenMetrics, true),
        ("text/plain", ExpositionFormat::Plain, false),
    ] {
        let (status, head, body) = ask(&surfaces, Method::GET, "/metrics?x=y", accept).await;
        assert_eq!((status, head[header::CONTENT_TYPE].as_bytes()), (StatusCode::OK, format.content_type().as_bytes()));
        assert_eq!(body.ends_with("# EOF\n"), ends_in_eof);
    }
    let protobuf = ExpositionFormat::Protobuf.content_type();
    let request = Request::get("/metrics").header(header::ACCEPT, protobuf).body(Body::empty()).unwrap();
    let response = router(surfaces.clone()).oneshot(request).await.unwrap();
    assert_eq!((response.status(), response.headers()[header::CONTENT_TYPE].as_bytes()), (StatusCode::OK, protobuf.as_bytes()));
}

#[tokio::test]
async fn the_hdr_log_reads_back_with_every_count() {
    let surfaces = busy();
    let (status, text) = get(&surfaces, "/hdr").await;
    assert_eq!(status, StatusCode::OK);
    let mut counts = BTreeMap::new();
    for entry in IntervalLogIterator::new(text.as_bytes()) {
        let LogEntry::Interval(line) = entry.unwrap() else { continue };
        let encoded = base64::engine::general_purpose::STANDARD.decode(line.encoded_histogram()).unwrap();
        let histogram: Histogram<u64> = Deserializer::new().deserialize(&mut &encoded[..]).unwrap();
        assert!(line.duration().as_nanos() < 60_000_000_000);
        counts.insert(line.tag().unwrap().as_str().to_owned(), histogram);
    }
    let (mut wanted, mut scratch) = (0, lapwing_metrics::HistogramScratch::default());
    for series in surfaces.registry.lock().series(lapwing_metrics::Window::All, 0..usize::MAX) {
        for measure in Measure::all().filter(|m| series.figures.values(*m) > 0) {
            let model = &*series.model;
            let route = match &*series.route {
                ROUTE => "POST%20/v2/models/{model}/infer",
                CHAT => "POST%20/v1/chat/completions",
                _ => "GET%20/a%20%22b%22%20%5Cc%2Cd%0Ae%3D%C3%A9",
            };
            let primary = if &*series.route == ROUTE { "row" } else { "output_token" };
            let of = match measure {
                Measure::Class(class) => format!(";from={};unit={primary}", 1 << class),
                Measure::Debt(class) => {
                    format!(";from={};unit={primary};optimum=declared:%20half%20of%20%22it%22", 1 << class)
                }
                Measure::PerUnit(slot) => format!(";unit={}", series.unit(slot).unwrap().per_name()),
                _ => String::new(),
            };
            let tag = format!("{}{of};route={route};model={model};upstream=http://127.0.0.1:8000", measure.name());
            assert!(counts[&tag].iter_recorded().eq(series.fill(measure, &mut scratch).iter_recorded()), "{tag}");
            wanted += 1;
        }
    }
    assert_eq!(counts.len(), wanted);
    let fields = (text.contains("#[StartTime: "), text.contains("#[BaseTime: "), text.starts_with("#[Histogram log"));
    assert_eq!(fields, (true, true, true));
}

#[tokio::test]
async fn readiness_follows_the_upstream_and_shutdown() {
    let mut surfaces = empty();
    assert_eq!(get(&surfaces, "/readyz").await, (StatusCode::OK, "ready\n".to_owned()));
    surfaces.ready = Arc::new(|| Box::pin(async { Err("127.0.0.1:8000: connection refused".to_owned()) }));
    let refused = (StatusCode::SERVICE_UNAVAILABLE, "127.0.0.1:8000: connection refused\n".to_owned());
    assert_eq!(get(&surfaces, "/readyz").await, refused);
    surfaces.ready = Arc::new(|| Box::pin(async { Ok(()) }));
    surfaces.draining.cancel();
    let (status, reason) = get(&surfaces, "/readyz").await;
    assert!(status == StatusCode::SERVICE_UNAVAILABLE && reason.starts_with("draining"), "{reason}");
    assert_eq!(get(&surfaces, "/livez").await, (StatusCode::OK, "alive\n".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_hangs_is_given_up() {
    let surfaces = Surfaces { ready: Arc::new(|| Box::pin(std::future::pending())), ..empty() };
    let (status, reason) = get(&surfaces, "/readyz").await;
    assert_eq!((status, &*reason), (StatusCode::SERVICE_UNAVAILABLE, "the upstream did not answer a probe within 2s\n"));
}

#[tokio::test]
async fn every_path_answers_get_and_head_and_nothing_else() {
    let surfaces = busy();
    let (_, list) = get(&surfaces, "/").await;
    assert!(ENDPOINTS.iter().all(|of| list.contains(of.path)));
    for path in ENDPOINTS.iter().map(|of| of.path).filter(|path| !["/record", "/leave", "/cache/purge"].contains(path)) {
        let (status, head, body) = ask(&surfaces, Method::HEAD, path, "*/*").await;
        assert_eq!((status, &*body), (StatusCode::OK, ""), "{path}");
        assert_eq!(head[header::CACHE_CONTROL], "no-store");
        assert!(head.contains_key(header::CONTENT_TYPE));
        let (status, head, body) = ask(&surfaces, Method::POST, path, "*/*").await;
        assert_eq!(
            (status, &*body),
            (StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are answered, and POST at /record, /leave and /cache/purge\n"),
            "{path}"
        );
        assert_eq!(
            (&head[header::ALLOW], &head[header::CACHE_CONTROL]),
            (&"GET,HEAD".parse().unwrap(), &"no-store".parse().unwrap())
        );
    }
    let (status, body) = get(&surfaces, "/nothing").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(body.starts_with("no such path: /nothing") && ENDPOINTS.iter().all(|of| body.contains(of.path)), "{body}");
}

#[tokio::test]
async fn who_asks_to_record_from_nowhere_gets_nothing() {
    let (status, head, _) = ask(&busy(), Method::GET, "/record", "*/*").await;
    assert_eq!((status, &head[header::ALLOW]), (StatusCode::METHOD_NOT_ALLOWED, &"POST".parse().unwrap()));
    let (status, _, body) = ask(&busy(), Method::POST, "/record", "*/*").await;
    assert!(status == StatusCode::FORBIDDEN && body.contains("the same machine"), "{body}");
}

#[tokio::test]
async fn a_bad_query_is_refused_in_words() {
    for (path, reason) in [
        ("/stats?window=1h", "window=\"1h\": must be one of 10s, 1m, 5m, all\n"),
        ("/hdr?window=", "window=\"\": must be one of 10s, 1m, 5m, all\n"),
        ("/exchanges?limit=many", "limit=\"many\": must be a whole number from 0 to 65536\n"),
    ] {
        assert_eq!(get(&empty(), path).await, (StatusCode::BAD_REQUEST, reason.to_owned()));
    }
}

#[tokio::test]
async fn the_configuration_is_shown_as_given() {
    let surfaces = empty();
    assert_eq!(json(&surfaces, "/config").await, *surfaces.config.load());
}

#[tokio::test]
async fn it_serves_a_socket_until_it_is_stopped() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let stop = tokio_util::sync::CancellationToken::new();
    let client = async {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        let mut answer = vec![0; 15];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer, b"HTTP/1.1 200 OK");
        stop.cancel();
    };
    let (served, ()) = tokio::join!(serve(listener, empty(), stop.clone()), client);
    served.unwrap();
}

#[tokio::test]
async fn docs_name_every_key() {
    fn keys(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(map) => map.iter().for_each(|(key, value)| {
                found.insert(key.clone());
                keys(value, found);
            }),
            Value::Array(list) => list.iter().for_each(|value| keys(value, found)),
            _ => {}
        }
    }
    let surfaces = Surfaces { engine: hosted(), ..busy() };
    let mut found = BTreeSet::new();
    keys(&json(&surfaces, "/stats").await, &mut found);
    keys(&json(&surfaces, "/exchanges?limit=200").await, &mut found);
    let read = |name: &str| std::fs::read_to_string(format!("{}/../../docs/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let docs = read("STATS.md") + &read("DEBT.md") + &read("INFERENCE.md");
    let paths = ENDPOINTS.iter().map(|of| of.path.to_owned()).filter(|path| path != "/");
    let missing: Vec<_> = found.into_iter().chain(paths).filter(|key| !docs.contains(&format!("`{key}`"))).collect();
    assert!(missing.is_empty(), "docs/STATS.md, docs/DEBT.md and docs/INFERENCE.md do not name {missing:?}");
    assert!(clock::unix_ns() > surfaces.started_unix_ns);
}
