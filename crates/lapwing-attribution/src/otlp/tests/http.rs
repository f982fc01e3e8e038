//! The HTTP receiver, called over a real socket.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_ENCODING, CONTENT_TYPE};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message;
use tokio_util::sync::CancellationToken;

use super::{gzip, handler, listener, request, span, triton};
use crate::otlp::decode::MAX_SPANS;
use crate::otlp::{ExportHandler, serve_http};
use lapwing_ledger::TraceId;
use lapwing_metrics::{Counter, Counters};

const TRACE: TraceId = TraceId([7; 16]);
const MAX_BODY: u64 = 64 << 10;
const PROTOBUF: &str = "application/x-protobuf";
const JSON: &str = "application/json";

struct Poster {
    client: Client<HttpConnector, Full<Bytes>>,
    base: String,
}

impl Poster {
    async fn send(&self, request: http::request::Builder, path: &str, body: impl Into<Bytes>) -> http::Response<Bytes> {
        let request: Request<Full<Bytes>> = request.uri(format!("{}{path}", self.base)).body(Full::new(body.into())).unwrap();
        let (head, body) = self.client.request(request).await.unwrap().into_parts();
        http::Response::from_parts(head, body.collect().await.unwrap().to_bytes())
    }

    /// Status, content type and body of the answer.
    async fn post(&self, path: &str, content_type: &str, body: impl Into<Bytes>) -> (u16, String, Bytes) {
        let request = Request::post("/").header(CONTENT_TYPE, content_type);
        answer(self.send(request, path, body).await)
    }
}

fn answer(response: http::Response<Bytes>) -> (u16, String, Bytes) {
    let content_type = response.headers().get(CONTENT_TYPE).map_or("", |v| v.to_str().unwrap()).to_owned();
    (response.status().as_u16(), content_type, response.into_body())
}

async fn against<C: Future<Output = ()>>(handler: ExportHandler, client: impl FnOnce(Poster) -> C) {
    let (listener, address) = listener();
    let stop = CancellationToken::new();
    let served = serve_http(listener, handler, MAX_BODY, stop.clone());
    let poster = Poster { client: Client::builder(TokioExecutor::new()).build_http(), base: format!("http://{address}") };
    let (served, ()) = tokio::join!(tokio::time::timeout(Duration::from_secs(30), served), async {
        Box::pin(client(poster)).await;
        stop.cancel();
    });
    served.expect("it stops").unwrap();
}

#[tokio::test]
async fn both_encodings_are_taken_and_answered_in_kind() {
    let counters = Arc::new(Counters::default());
    let (handler, mut spans) = handler(8, None, &counters);
    against(handler, async |to| {
        let protobuf = request(vec![span(TRACE, 1, "forward")]).encode_to_vec();
        assert_eq!(to.post("/v1/traces", PROTOBUF, protobuf.clone()).await, (200, PROTOBUF.to_owned(), Bytes::new()));
        let (status, content_type, body) = to.post("/v1/traces", "Application/JSON; charset=utf-8", triton()).await;
        assert_eq!((status, content_type.as_str(), &*body), (200, JSON, &b"{}"[..]));
        let packed = Request::post("/").header(CONTENT_TYPE, PROTOBUF).header(CONTENT_ENCODING, "gzip");
        assert_eq!(to.send(packed, "/v1/traces", gzip(&protobuf)).await.status(), StatusCode::OK);
        let packed = Request::post("/").header(CONTENT_TYPE, JSON).header(CONTENT_ENCODING, "gzip");
        assert_eq!(to.send(packed, "/v1/traces", gzip(&triton())).await.status(), StatusCode::OK);
        for path in ["/v1/metrics", "/v1/logs"] {
            assert_eq!(to.post(path, PROTOBUF, Bytes::new()).await.0, 200);
        }
    })
    .await;
    let triton = String::from_utf8(triton()).unwrap().matches("\"spanId\"").count();
    let mut lengths = Vec::new();
    while let Some(spans) = spans.recv().await {
        lengths.push(spans.len());
    }
    assert_eq!(lengths, [1, triton, 1, triton]);
    assert_eq!(counters.get(Counter::OtlpMalformed), 0);
}

#[tokio::test]
async fn what_cannot_be_taken_is_refused_in_kind_and_counted() {
    let counters = Arc::new(Counters::default());
    let (handler, _spans) = handler(8, None, &counters);
    against(handler, async |to| {
        let (status, content_type, body) = to.post("/v1/traces", PROTOBUF, &b"\xff\xff"[..]).await;
        let said = tonic_types::Status::decode(body).unwrap();
        assert_eq!((status, content_type.as_str(), said.code), (400, PROTOBUF, 3));
        assert!(said.message.contains("is not protobuf"), "{}", said.message);
        let (status, content_type, body) = to.post("/v1/traces", JSON, "{\"resourceSpans\":3}").await;
        let said: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((status, content_type.as_str(), &said["code"]), (400, JSON, &3.into()));
        let huge = vec![0; MAX_BODY as usize + 1];
        assert_eq!(to.post("/v1/logs", PROTOBUF, huge.clone()).await.0, 413);
        let pack = |coding| Request::post("/").header(CONTENT_TYPE, PROTOBUF).header(CONTENT_ENCODING, coding);
        assert_eq!(to.send(pack("gzip"), "/v1/metrics", gzip(&huge)).await.status(), 413, "small only while packed");
        assert_eq!(to.send(pack("gzip"), "/v1/metrics", gzip(&huge[1..])).await.status(), 200);
        assert_eq!(to.send(pack("gzip"), "/v1/metrics", "not gzip").await.status(), 400);
        assert_eq!(to.send(pack("br"), "/v1/metrics", "x").await.status(), 415);
        assert_eq!(to.post("/v1/traces", "text/plain", "x").await.0, 415);
        assert_eq!(to.send(Request::post("/"), "/v1/traces", "x").await.status(), 415);
        assert_eq!(counters.get(Counter::OtlpMalformed), 8);
        let get = to.send(Request::builder().method(Method::GET), "/v1/traces", "").await;
        assert_eq!(
            (get.status(), &get.headers()[ALLOW]),
            (StatusCode::METHOD_NOT_ALLOWED, &http::HeaderValue::from_static("POST"))
        );
        assert_eq!(to.post("/v1/profiles", PROTOBUF, "").await.0, 404);
        let refused = to.send(pack("br"), "/v1/traces", "x").await;
        assert!(refused.headers()["accept-encoding"].to_str().unwrap().contains("zstd"), "what would be read");
    })
    .await;
}

#[tokio::test]
async fn every_packing_and_path_of_sdks_is_taken() {
    let counters = Arc::new(Counters::default());
    let (handler, mut spans) = handler(32, None, &counters);
    let body = request(vec![span(TRACE, 1, "forward")]).encode_to_vec();
    let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut zlib, &body).unwrap();
    let mut zstd = vec![0; zstd_safe::compress_bound(body.len())];
    zstd_safe::compress(&mut zstd[..], &body, 3).map(|length| zstd.truncate(length)).unwrap();
    let sent = [("gzip", gzip(&body)), ("deflate", zlib.finish().unwrap()), ("zstd", zstd), ("identity", body.clone())];
    let count = sent.len() + 5;
    against(handler, async |to| {
        for (name, packed) in sent {
            let request = Request::post("/").header(CONTENT_TYPE, PROTOBUF).header(CONTENT_ENCODING, name);
            assert_eq!(to.send(request, "/v1/traces", packed).await.status(), 200, "{name}");
        }
        for path in ["/v1/traces/", "/otlp/v1/traces", "/api/v1/otlp/v1/traces"] {
            assert_eq!(to.post(path, PROTOBUF, body.clone()).await.0, 200, "{path}");
        }
        let json = r#"{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"07070707070707070707070707070707","spanId":"0101010101010101"}]}]}]}"#;
        for content_type in ["application/json; charset=utf-8", "Application/JSON"] {
            assert_eq!(to.post("/v1/traces", content_type, json).await.0, 200, "{content_type}");
        }
    })
    .await;
    for _ in 0..count {
        assert_eq!(spans.recv().await.unwrap().len(), 1);
    }
}

#[tokio::test]
async fn spans_beyond_the_bounds_are_a_partial_success_in_kind() {
    let counters = Arc::new(Counters::default());
    let (handler, _spans) = handler(8, None, &counters);
    against(handler, async |to| {
        let many = request(vec![Span::default(); MAX_SPANS + 3]).encode_to_vec();
        let (status, _, body) = to.post("/v1/traces", PROTOBUF, many).await;
        let partial = ExportTraceServiceResponse::decode(body).unwrap().partial_success.unwrap();
        assert_eq!((status, partial.rejected_spans), (200, 3));
        assert!(partial.error_message.starts_with("3 spans"), "{}", partial.error_message);
        let many = format!(r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{}{{}}]}}]}}]}}"#, "{},".repeat(MAX_SPANS + 1));
        let (status, _, body) = to.post("/v1/traces", JSON, many).await;
        let partial: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((status, &partial["partialSuccess"]["rejectedSpans"]), (200, &"2".into()));
        let resources = ExportTraceServiceRequest { resource_spans: vec![ResourceSpans::default(); 2 * MAX_SPANS - 1] };
        assert_eq!(to.post("/v1/traces", PROTOBUF, resources.encode_to_vec()).await.0, 200);
        let message = request(vec![span(TRACE, 1, "x")]);
        let scopes = ResourceSpans { scope_spans: vec![ScopeSpans::default(); 20_000], ..ResourceSpans::default() };
        let resources = ExportTraceServiceRequest { resource_spans: vec![message.resource_spans[0].clone(), scopes] };
        assert_eq!(to.post("/v1/traces", PROTOBUF, resources.encode_to_vec()).await.0, 200);
    })
    .await;
    assert_eq!((counters.get(Counter::SpansRejected), counters.get(Counter::OtlpMalformed)), (5, 0));
}

#[tokio::test]
async fn a_body_that_stalls_does_not_hold_up_shutdown() {
    let counters = Arc::new(Counters::default());
    let (handler, mut spans) = handler(8, None, &counters);
    let stalled = std::sync::Mutex::new(None);
    against(handler, async |to| {
        use tokio::io::AsyncWriteExt;
        let mut stream = tokio::net::TcpStream::connect(to.base.strip_prefix("http://").unwrap()).await.unwrap();
        let head = "POST /v1/traces HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{";
        stream.write_all(head.as_bytes()).await.unwrap();
        stalled.lock().unwrap().replace(stream);
        tokio::time::sleep(Duration::from_millis(50)).await;
    })
    .await;
    assert!(tokio::time::timeout(Duration::from_secs(5), spans.recv()).await.expect("the handler is let go").is_none());
}

#[tokio::test]
async fn processes_are_told_apart_by_their_resource_else_by_their_connection() {
    let named = |attributes: &[(&str, &str)]| {
        let mut message = request(vec![span(TRACE, 1, "x")]);
        let resource = message.resource_spans[0].resource.as_mut().unwrap();
        resource.attributes = attributes.iter().map(|(key, value)| super::text(key, value)).collect();
        message.encode_to_vec()
    };
    let counters = Arc::new(Counters::default());
    let (handler, mut spans) = handler(64, None, &counters);
    let mut processes = Vec::new();
    against(handler, |poster| async move {
        let again = Poster { client: Client::builder(TokioExecutor::new()).build_http(), base: poster.base.clone() };
        for message in [
            named(&[("service.name", "a")]),
            named(&[("service.instance.id", "i"), ("process.pid", "1")]),
            named(&[("service.instance.id", "i"), ("process.pid", "2")]),
            named(&[("process.pid", "2"), ("host.name", "h")]),
            named(&[("host.name", "h")]),
        ] {
            for poster in [&poster, &again] {
                assert_eq!(poster.post("/v1/traces", PROTOBUF, message.clone()).await.0, 200);
            }
        }
    })
    .await;
    while let Ok(mut received) = spans.try_recv() {
        processes.push(received.remove(0).process);
    }
    let [one, other, told @ .., last, last_other] = &processes[..] else { panic!("{processes:?}") };
    assert!(one != other && (one, other) == (last, last_other), "by connection, whatever the host is called");
    assert_eq!(told.len(), 6);
    assert!(
        told.chunks(2).all(|pair| pair[0] == pair[1] && pair[0] != *one),
        "the resource's word is the same on every connection"
    );
    assert!(told[0] != told[2] && told[2] != told[4] && told[0] != told[4]);
}
