//! The examples' servers on loopback, asked by hyper's client and by tonic's: stages against clock readings of the same process, and the
//! pages.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test")]

#[path = "../examples/axum_server.rs"]
#[allow(dead_code, unreachable_pub, reason = "its main is not called, and it is no module there")]
mod axum_server;
#[path = "../examples/tonic_server.rs"]
#[allow(dead_code, unreachable_pub, reason = "its main is not called, and it is no module there")]
mod tonic_server;

use std::sync::Arc;

use axum::Router;
use axum::extract::Extension;
use axum::routing::{get, post};
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use lapwing_ledger::Stamp;
use lapwing_tower::{LedgerLayer, Outcome, RequestStages, ServerRecorder, Stage, Unit};
use parking_lot::Mutex;
use serde_json::Value;

/// Serves `router`; returns its address.
async fn serve(router: Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    at
}

async fn ask(is_http2: bool, method: Method, uri: String, body: &'static str) -> (StatusCode, http::HeaderMap, Bytes) {
    send(is_http2, Request::builder().method(method).uri(uri).body(Full::from(body)).unwrap()).await
}

async fn send(is_http2: bool, request: Request<Full<Bytes>>) -> (StatusCode, http::HeaderMap, Bytes) {
    let client = Client::builder(TokioExecutor::new()).http2_only(is_http2).build_http::<Full<Bytes>>();
    let (head, body) = client.request(request).await.unwrap().into_parts();
    (head.status, head.headers, body.collect().await.unwrap().to_bytes())
}

async fn page(at: &str, path: &str) -> Value {
    let (status, _, body) = ask(false, Method::GET, format!("{at}{path}"), "").await;
    assert_eq!(status, StatusCode::OK, "{}", String::from_utf8_lossy(&body));
    serde_json::from_slice(&body).unwrap()
}

#[tokio::test]
async fn the_stages_of_axum_are_those_of_its_own_clock() {
    let recorder = ServerRecorder::start("digits").unwrap();
    let readings: Arc<Mutex<Vec<[Stamp; 4]>>> = Arc::default();
    let shared = readings.clone();
    let handler = move |Extension(stages): Extension<RequestStages>, body: Bytes| async move {
        let (mut read, mut outer) = ([Stamp::default(); 4], 0);
        for stage in [Stage::Hydration, Stage::Forward] {
            read[0] = Stamp::now();
            let guard = stages.enter(stage);
            read[1] = Stamp::now();
            tokio::time::sleep(std::time::Duration::from_millis(3)).await;
            read[2] = Stamp::now();
            drop(guard);
            read[3] = Stamp::now();
            shared.lock().push(read);
            outer += 1;
        }
        assert_eq!(outer, 2);
        body
    };
    let at = serve(Router::new().route("/echo", post(handler)).layer(LedgerLayer::new(&recorder))).await;
    for is_http2 in [false, true] {
        let (status, _, body) = ask(is_http2, Method::POST, format!("{at}/echo"), "four").await;
        assert_eq!((status, &body[..]), (StatusCode::OK, &b"four"[..]));
    }
    while recorder.recent(9).len() < 2 {
        tokio::task::yield_now().await; // the server ends a body when the client has it already
        recorder.flush();
    }
    let mut exchanges = recorder.recent(9);
    exchanges.reverse();
    let readings = readings.lock();
    for (exchange, readings) in exchanges.iter().zip(readings.chunks(2)) {
        assert_eq!(exchange.account.total_ns(), exchange.ledger.total_ns);
        assert_eq!((exchange.ledger.outcome, exchange.ledger.status), (Outcome::Ok, 200));
        assert_eq!((exchange.ledger.request_bytes, exchange.ledger.response_bytes), (4, 4));
        for (stage, [outside, inside, inside_end, outside_end]) in [Stage::Hydration, Stage::Forward].into_iter().zip(readings) {
            let ns = exchange.account.stage_ns(stage);
            assert!((inside_end.since(*inside)..=outside_end.since(*outside)).contains(&ns), "{stage:?} {ns}");
        }
    }
}

#[tokio::test]
async fn the_axum_example_answers_with_server_timing_and_pages() {
    let recorder = ServerRecorder::start("digits").unwrap();
    let at = serve(axum_server::app(&recorder)).await;
    let (status, head, body) = ask(false, Method::POST, format!("{at}/predict"), "[1,2,3]").await;
    assert_eq!((status, &body[..]), (StatusCode::OK, &b"6"[..]));
    let timing = head["server-timing"].to_str().unwrap();
    assert!(timing.starts_with("preprocessing;dur=") && timing.contains(", forward;dur="), "{timing}");
    let exchange = loop {
        let all = page(&at, "/lapwing/exchanges").await;
        match all["exchanges"].get(0) {
            Some(exchange) => break exchange.clone(),
            None => tokio::task::yield_now().await,
        }
    };
    let stages = exchange["stages"].as_array().unwrap();
    let sum: u64 = stages.iter().map(|stage| stage["ns"].as_u64().unwrap()).sum();
    assert_eq!(Some(sum), exchange["total_ns"].as_u64());
    assert_eq!((&exchange["route"], &exchange["model"]), (&"POST /predict".into(), &"digits".into()));
    let forward = stages.iter().find(|stage| stage["stage"] == "forward").unwrap();
    assert_eq!(forward["source"], "observed");
    assert!(timing.ends_with(&format!(
        "forward;dur={}.{:06}",
        forward["ns"].as_u64().unwrap() / 1_000_000,
        forward["ns"].as_u64().unwrap() % 1_000_000
    )));
    let stats = page(&at, "/lapwing/stats?window=all&model=digits").await;
    let series = &stats["series"][0];
    assert_eq!((&series["upstream"], &series["count"], &series["units"]["row"]), (&"digits".into(), &1.into(), &3.into()));
    let (_, head, text) = ask(false, Method::GET, format!("{at}/lapwing/metrics"), "").await;
    assert!(head["content-type"].to_str().unwrap().starts_with("application/openmetrics-text"));
    let text = String::from_utf8(text.to_vec()).unwrap();
    let line = r#"lapwing_requests_total{route="POST /predict",model="digits",upstream="digits",outcome="ok"} 1"#;
    assert!(text.contains(line) && text.ends_with("# EOF\n"), "{text}");
    protobuf_has_the_families_of_the_text(&at, &text).await;
    let (status, _, body) = ask(false, Method::GET, format!("{at}/lapwing/stats?windows=1m"), "").await;
    assert_eq!(
        (status, &body[..]),
        (StatusCode::BAD_REQUEST, &b"windows=\"1m\": no such field; there is window, route, model\n"[..])
    );
    assert_eq!(ask(false, Method::POST, format!("{at}/lapwing/stats"), "").await.0, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(ask(false, Method::GET, format!("{at}/lapwing/x"), "").await.0, StatusCode::NOT_FOUND);
}

/// As Prometheus asks when it scrapes native histograms.
const PROTOBUF: &str = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";

async fn protobuf_has_the_families_of_the_text(at: &str, text: &str) {
    let request = Request::get(format!("{at}/lapwing/metrics")).header("accept", format!("{PROTOBUF};q=0.6,text/plain;q=0.2"));
    let (status, head, body) = send(false, request.body(Full::default()).unwrap()).await;
    assert_eq!((status, head["content-type"].as_bytes()), (StatusCode::OK, PROTOBUF.as_bytes()));
    let mut names = std::collections::BTreeSet::new();
    let mut rest = &body[..];
    while !rest.is_empty() {
        let length = varint(&mut rest);
        let (mut family, others) = rest.split_at(usize::try_from(length).unwrap());
        assert_eq!(varint(&mut family), 1 << 3 | 2, "a family begins with its name");
        let name = varint(&mut family);
        names.insert(String::from_utf8(family[..usize::try_from(name).unwrap()].to_vec()).unwrap());
        rest = others;
    }
    assert!(names.contains("lapwing_requests_total") && names.contains("lapwing_request_duration_seconds"), "{names:?}");
    for name in &names {
        let base = name.strip_suffix("_total").unwrap_or(name);
        assert!(text.contains(&format!("# TYPE {base} ")), "{name} is not in the text");
    }
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first().unwrap();
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    value
}

#[tokio::test]
async fn calls_of_the_tonic_example_end_with_their_grpc_status() {
    let recorder = ServerRecorder::start("digits").unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = format!("http://{}", listener.local_addr().unwrap());
    let served = recorder.clone();
    tokio::spawn(async move { tonic_server::serve(listener, &served).await });
    let channel = tonic::transport::Endpoint::new(at).unwrap().connect().await.unwrap();
    let mut client = tonic::client::Grpc::new(channel);
    for rows in ["abc", ""] {
        client.ready().await.unwrap();
        let path = http::uri::PathAndQuery::from_static("/digits.Digits/Predict");
        let answer = client.unary(tonic::Request::new(Bytes::from(rows)), path, tonic_server::BytesCodec).await;
        assert_eq!(
            answer.map(|answer| answer.into_inner()).map_err(|status| status.code()).ok(),
            (!rows.is_empty()).then(|| Bytes::from(rows))
        );
    }
    while recorder.recent(9).len() < 2 {
        tokio::task::yield_now().await;
        recorder.flush();
    }
    let [refused, answered] = &recorder.recent(9)[..] else { unreachable!() };
    assert_eq!([answered.ledger.outcome, refused.ledger.outcome], [Outcome::Ok, Outcome::ClientError]);
    assert_eq!(answered.ledger.work.get(Unit::Row).map(|(rows, _)| rows), Some(3));
    assert!(answered.account.stage_ns(Stage::Forward) >= 5_000_000);
    assert_eq!(answered.account.total_ns(), answered.ledger.total_ns);
    assert_eq!(refused.account.stage_ns(Stage::Forward), 0);
}

#[tokio::test]
async fn a_mark_after_the_end_is_counted_and_changes_nothing() {
    let recorder = ServerRecorder::start("digits").unwrap();
    let late: Arc<Mutex<Option<RequestStages>>> = Arc::default();
    let shared = late.clone();
    let handler = move |Extension(stages): Extension<RequestStages>| async move {
        *shared.lock() = Some(stages);
        "ok"
    };
    let router = Router::new().route("/", get(handler)).layer(LedgerLayer::new(&recorder));
    let at = serve(router.nest_service("/lapwing", recorder.stats_service())).await;
    ask(false, Method::GET, at.clone(), "").await;
    while recorder.recent(1).is_empty() {
        tokio::task::yield_now().await;
        recorder.flush();
    }
    let stages = late.lock().take().unwrap();
    drop(stages.enter(Stage::Forward));
    stages.model("late");
    assert_eq!((recorder.late(), stages.trace_context()), (2, None));
    let (_, _, metrics) = ask(false, Method::GET, format!("{at}/lapwing/metrics"), "").await;
    assert!(
        String::from_utf8_lossy(&metrics).contains("\nlapwing_late_events_total 3\n"),
        "a context asked for too late is one more"
    );
    assert_eq!(recorder.recent(1)[0].account.stage_ns(Stage::Forward), 0);
}
