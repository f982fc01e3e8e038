//! The demo server over a real socket, and its spans at a real OTLP/gRPC receiver.

use std::collections::BTreeMap;
use std::sync::mpsc;

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use serde_json::Value;
use tokio::task::JoinSet;

use super::*;
use crate::app::demo::data;

/// A port where nobody listens: OTLP stays unanswered, and the server must not mind.
fn nobody() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 1))
}

async fn ask(to: SocketAddr, traceparent: Option<&str>, body: String) -> (StatusCode, HeaderMap, Value) {
    use http_body_util::BodyExt;
    let stream = tokio::net::TcpStream::connect(to).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(hyper_util::rt::TokioIo::new(stream)).await.unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(connection);
    let mut request = http::Request::builder().method("POST").uri(ROUTE).header("host", "demo");
    if let Some(traceparent) = traceparent {
        request = request.header("traceparent", traceparent);
    }
    let response = sender.send_request(request.body(body).unwrap()).await.unwrap();
    let (head, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    (head.status, head.headers, serde_json::from_slice(&body).unwrap())
}

fn by_ids(ids: &[i64]) -> String {
    json!({"id": "q", "inputs": [{"name": "entity_ids", "shape": [ids.len()], "datatype": "INT64", "data": ids}]}).to_string()
}

fn by_pixels(rows: &[data::Row]) -> String {
    let mut pixels = Vec::new();
    for row in rows {
        data::parse_pixels(row.pixels, &mut pixels).unwrap();
    }
    json!({"inputs": [{"name": "pixels", "shape": [rows.len(), 64], "datatype": "FP32", "data": pixels}]}).to_string()
}

/// The best label of each row, after checking the form of the response.
fn labels(answer: &Value, rows: usize) -> Vec<i64> {
    assert_eq!(answer["model_name"], "digits");
    assert_eq!(answer["outputs"][0]["name"], "label");
    assert_eq!(answer["outputs"][0]["shape"], json!([rows, 3]));
    assert_eq!(answer["outputs"][1]["name"], "probability");
    let probabilities: Vec<f64> = serde_json::from_value(answer["outputs"][1]["data"].clone()).unwrap();
    assert_eq!(probabilities.len(), rows * 3);
    for row in probabilities.chunks_exact(3) {
        assert!(row[0] >= row[1] && row[1] >= row[2] && row.iter().sum::<f64>() <= 1.000_01, "{row:?}");
    }
    let labels: Vec<i64> = serde_json::from_value(answer["outputs"][0]["data"].clone()).unwrap();
    labels.chunks_exact(3).map(|row| row[0]).collect()
}

#[tokio::test]
async fn known_rows_get_scikit_learns_labels_by_pixels_and_by_ids() {
    let (to, server) = start_server(nobody()).unwrap();
    let rows = &data::rows().unwrap()[..64];
    let want: Vec<i64> = rows.iter().map(|r| r.prediction).collect();
    let ids: Vec<i64> = rows.iter().map(|r| r.entity_id).collect();
    let (status, headers, answer) = ask(to, None, by_ids(&ids)).await;
    assert_eq!((status, &answer["id"]), (StatusCode::OK, &json!("q")));
    assert_eq!(labels(&answer, 64), want);
    let (status, _, answer) = ask(to, None, by_pixels(rows)).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(labels(&answer, 64), want);
    let timing = headers["server-timing"].to_str().unwrap();
    let names: Vec<&str> = timing.split(", ").map(|e| e.split_once(";dur=").unwrap().0).collect();
    assert_eq!(names, ["preprocessing", "forward", "postprocessing"]);
    assert!(timing.split(", ").all(|e| e.split_once(";dur=").unwrap().1.parse::<f64>().unwrap() > 0.0), "{timing}");
    server.stop();
}

#[tokio::test]
async fn faults_are_answered_with_400_and_the_reason() {
    let (to, server) = start_server(nobody()).unwrap();
    for (body, reason) in [
        ("{".to_owned(), "body: not an inference request: "),
        (by_ids(&[-3]), "entity_ids: -3 is not in the feature table"),
        (by_ids(&[]), "entity_ids.shape: expected [N] with 1 to 256 rows, got [0]"),
        (" ".repeat(MAX_BODY + 1), "body: length limit exceeded"),
    ] {
        let (status, headers, answer) = ask(to, None, body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        assert!(answer["error"].as_str().unwrap().starts_with(reason), "{answer}");
        assert!(!headers.contains_key("server-timing"));
    }
    server.stop();
}

#[tokio::test]
async fn metadata_and_health_are_served() {
    let (to, server) = start_server(nobody()).unwrap();
    let mut client = crate::app::demo::client::Client::new(to);
    for path in ["/v2/health/live", "/v2/health/ready", "/v2/models/digits/ready"] {
        assert_eq!(client.get(path).await.unwrap().0, StatusCode::OK, "{path}");
    }
    let (_, about) = client.get("/v2/models/digits").await.unwrap();
    let about: Value = serde_json::from_slice(&about).unwrap();
    assert_eq!(about["inputs"][0], json!({"name": "pixels", "datatype": "FP32", "shape": [-1, 64]}));
    let (status, fault) = client.get("/v2/models/other/infer").await.unwrap();
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert_eq!(&fault[..], br#"{"error":"GET /v2/models/other/infer: not served here"}"#);
    server.stop();
}

struct Collector(mpsc::Sender<ExportTraceServiceRequest>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: tonic::Request<ExportTraceServiceRequest>,
    ) -> Result<tonic::Response<ExportTraceServiceResponse>, tonic::Status> {
        self.0.send(request.into_inner()).unwrap();
        Ok(tonic::Response::new(ExportTraceServiceResponse::default()))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sampled_request_is_traced_below_its_caller_and_an_unsampled_one_is_not() {
    let (sender, received) = mpsc::channel();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let otlp = listener.local_addr().unwrap();
    let mut tasks = JoinSet::new();
    let incoming = tonic::transport::server::TcpIncoming::from(listener);
    tasks.spawn(
        tonic::transport::Server::builder().add_service(TraceServiceServer::new(Collector(sender))).serve_with_incoming(incoming),
    );
    let (to, server) = start_server(otlp).unwrap();
    let id = data::rows().unwrap()[0].entity_id;
    let sampled = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let unsampled = "00-4bf92f3577b34da6a3ce929d0e0e4737-00f067aa0ba902b7-00";
    ask(to, Some(unsampled), by_ids(&[id])).await;
    ask(to, Some(sampled), by_ids(&[id, id])).await;
    ask(to, None, by_ids(&[id])).await;
    let dropped = tokio::task::spawn_blocking(move || {
        let dropped = Arc::clone(&server.spans_dropped);
        server.stop();
        dropped.load(Ordering::Relaxed)
    });
    assert_eq!(dropped.await.unwrap(), 0);

    let spans: Vec<_> =
        received.try_iter().flat_map(|r| r.resource_spans).flat_map(|r| r.scope_spans).flat_map(|s| s.spans).collect();
    let by_name: BTreeMap<&str, _> = spans.iter().map(|s| (s.name.as_str(), s)).collect();
    let server_span = by_name["POST /v2/models/digits/infer"];
    assert_eq!(spans.len(), 5);
    assert_eq!(server_span.kind, SpanKind::Server as i32);
    assert_eq!(server_span.parent_span_id, [0x00, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7]);
    let mut previous = server_span.start_time_unix_nano;
    for name in ["feature_hydration", "preprocessing", "model_forward", "postprocessing"] {
        let span = by_name[name];
        assert_eq!((&span.trace_id, &span.parent_span_id), (&server_span.trace_id, &server_span.span_id), "{name}");
        assert!(span.start_time_unix_nano >= previous && span.end_time_unix_nano >= span.start_time_unix_nano, "{name}");
        previous = span.end_time_unix_nano;
    }
    assert!(previous <= server_span.end_time_unix_nano);
    assert!(by_name["feature_hydration"].attributes.iter().any(|a| a.key == "cache_hit"));
}
