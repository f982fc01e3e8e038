//! The demo server over a real socket, and its spans at a real OTLP/gRPC receiver.

use std::collections::BTreeMap;
use std::sync::mpsc;

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

use http::StatusCode;
use serde_json::json;

use super::super::tickets::{id, teams};
use super::*;

/// A port where nothing listens, so OTLP gets no answer; the server must work all the same.
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
    json!({"id": "q", "inputs": [{"name": "ticket_ids", "shape": [ids.len()], "datatype": "INT64", "data": ids}]}).to_string()
}

/// The best label of each row, after checking the form of the response.
fn labels(answer: &Value, rows: usize) -> Vec<i64> {
    assert_eq!(answer["model_name"], "tickets");
    assert_eq!(answer["parameters"]["executor"], "plan");
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
async fn tickets_get_their_teams_cached_or_not() {
    let (to, server) = start_server(nobody()).unwrap();
    let ids: Vec<i64> = (0..64).map(id).collect();
    let (status, headers, answer) = ask(to, None, by_ids(&ids)).await;
    assert_eq!((status, &answer["id"]), (StatusCode::OK, &json!("q")));
    let first = labels(&answer, 64);
    let right = first.iter().zip(teams()).filter(|(label, team)| **label == *team as i64).count();
    assert!(right >= 50, "{right} of 64");
    assert_eq!(server.cache_counts().read().hits, 0);
    let (_, _, answer) = ask(to, None, by_ids(&ids)).await;
    assert_eq!(labels(&answer, 64), first);
    assert_eq!(server.cache_counts().read().hits, 64);
    let timing = headers["server-timing"].to_str().unwrap();
    let names: Vec<&str> = timing.split(", ").map(|e| e.split_once(";dur=").unwrap().0).collect();
    assert_eq!(names, ["preprocessing", "queue", "forward", "postprocessing"]);
    assert!(timing.split(", ").all(|e| e.split_once(";dur=").unwrap().1.parse::<f64>().unwrap() > 0.0), "{timing}");
    server.stop();
}

#[tokio::test]
async fn faults_are_answered_with_400_and_the_reason() {
    let (to, server) = start_server(nobody()).unwrap();
    let named = |name: &str, outputs: &str| {
        format!(r#"{{"inputs":[{{"name":"{name}","shape":[1],"datatype":"INT64","data":[10000]}}],"outputs":[{outputs}]}}"#)
    };
    let floats = r#"{"inputs":[{"name":"ticket_ids","shape":[1],"datatype":"FP32","data":[1]}]}"#;
    for (body, reason) in [
        ("{".to_owned(), "?: EOF while parsing"),
        (by_ids(&[-3]), "ticket_ids: -3 is not in the feature table"),
        (by_ids(&[]), "ticket_ids: expected shape [N] with 1 to 256 rows, got [0]"),
        (by_ids(&[id(0); 257]), "ticket_ids: expected shape [N] with 1 to 256 rows, got [257]"),
        (floats.to_owned(), "ticket_ids: expected INT64, got FP32"),
        (r#"{"inputs":[]}"#.to_owned(), "inputs: expected one tensor, `ticket_ids`, got 0"),
        (named("pixels", ""), "pixels: expected `ticket_ids`"),
        (named("ticket_ids", r#"{"name":"logits"}"#), "outputs: the model has no `logits`; it has [\"label\", \"probability\"]"),
    ] {
        let (status, headers, answer) = ask(to, None, body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
        assert!(answer["error"].as_str().unwrap().starts_with(reason), "{answer}");
        assert!(!headers.contains_key("server-timing"));
    }
    // the length alone is enough: the server answers before a byte of the body has arrived
    let mut stream = tokio::net::TcpStream::connect(to).await.unwrap();
    let head = format!("POST {ROUTE} HTTP/1.1\r\nhost: demo\r\ncontent-length: {}\r\n\r\n", (4 << 20) + 1);
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut line = [0; 12];
    stream.read_exact(&mut line).await.unwrap();
    assert_eq!(&line, b"HTTP/1.1 413");
    let (status, _, answer) = ask(to, None, named("ticket_ids", r#"{"name":"probability"}"#)).await;
    assert_eq!((status, answer["outputs"].as_array().unwrap().len()), (StatusCode::OK, 1));
    server.stop();
}

#[tokio::test]
async fn metadata_and_health_are_served() {
    let (to, server) = start_server(nobody()).unwrap();
    let client = crate::client::HttpClient::new(to);
    for path in ["/v2/health/live", "/v2/health/ready", "/v2/models/tickets/ready"] {
        assert_eq!(client.get(path).await.unwrap().0, StatusCode::OK, "{path}");
    }
    let (_, about) = client.get("/v2/models/tickets").await.unwrap();
    let about: Value = serde_json::from_slice(&about).unwrap();
    assert_eq!(about["inputs"], json!([{"name": "ticket_ids", "datatype": "INT64", "shape": [-1]}]));
    assert_eq!(about["outputs"][1], json!({"name": "probability", "datatype": "FP32", "shape": [-1, 3]}));
    let (status, fault) = client.get("/v2/models/other").await.unwrap();
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(fault.starts_with(br#"{"error":"model \"other\" is not served here"#), "{fault:?}");
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
    let id = id(0);
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
    let server_span = by_name["POST /v2/models/tickets/infer"];
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
