//! The gRPC receiver, called by generated clients over a real socket.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::logs::v1::{ExportLogsServiceRequest, logs_service_client::LogsServiceClient};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, metrics_service_client::MetricsServiceClient,
};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use prost::Message;
use tokio_util::sync::CancellationToken;
use tonic::Code;
use tonic::codec::CompressionEncoding;
use tonic::transport::Endpoint;

use super::{handler, listener, request, span};
use crate::otlp::{ExportHandler, serve_grpc};
use lapwing_ledger::{Stage, TraceId};
use lapwing_metrics::{Counter, Counters};

const TRACE: TraceId = TraceId([7; 16]);
const MAX_BODY: u64 = 64 << 10;

/// Serves while `client` runs, then stops within the grace period.
async fn against<C: Future<Output = ()>>(handler: ExportHandler, client: impl FnOnce(Endpoint) -> C) {
    let (listener, address) = listener();
    let stop = CancellationToken::new();
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let served = serve_grpc(listener, handler, MAX_BODY, stop.clone());
    let (served, ()) = tokio::join!(tokio::time::timeout(Duration::from_secs(30), served), async {
        Box::pin(client(endpoint)).await;
        stop.cancel();
    });
    served.expect("it stops").unwrap();
}

#[tokio::test]
async fn spans_come_plain_and_gzipped_and_metrics_and_logs_are_taken() {
    let counters = Arc::new(Counters::default());
    let (handler, mut spans) = handler(8, None, &counters);
    against(handler, async |endpoint| {
        let channel = endpoint.connect_lazy();
        let mut traces = TraceServiceClient::new(channel.clone());
        let answer = traces.export(request(vec![span(TRACE, 1, "model_forward")])).await.unwrap();
        assert!(answer.into_inner().partial_success.is_none());
        let mut packed = TraceServiceClient::new(channel.clone()).send_compressed(CompressionEncoding::Gzip);
        packed.export(request(vec![span(TRACE, 2, "queue"), span(TRACE, 3, "x")])).await.unwrap();
        MetricsServiceClient::new(channel.clone()).export(ExportMetricsServiceRequest::default()).await.unwrap();
        LogsServiceClient::new(channel).export(ExportLogsServiceRequest::default()).await.unwrap();
    })
    .await;
    let (first, second) = (spans.recv().await.unwrap(), spans.recv().await.unwrap());
    assert_eq!((first.len(), first[0].stage, second.len(), second[0].stage), (1, Some(Stage::Forward), 2, Some(Stage::Queue)));
    assert!(spans.recv().await.is_none(), "nothing else came, and the server let go of its handler");
    assert_eq!((counters.get(Counter::SpansReceived), counters.get(Counter::OtlpMalformed)), (3, 0));
}

#[tokio::test]
async fn what_cannot_be_taken_is_refused_for_good_and_counted() {
    let counters = Arc::new(Counters::default());
    let (handler, _spans) = handler(8, None, &counters);
    against(handler, async |endpoint| {
        let channel = endpoint.connect().await.unwrap();
        let mut traces = TraceServiceClient::new(channel.clone());
        let huge = request(vec![span(TRACE, 1, &"x".repeat(100_000))]);
        assert_eq!(traces.export(huge.clone()).await.unwrap_err().code(), Code::ResourceExhausted);
        let mut packed = TraceServiceClient::new(channel.clone()).send_compressed(CompressionEncoding::Gzip);
        assert_eq!(packed.export(huge).await.unwrap_err().code(), Code::ResourceExhausted, "small only while packed");
        let mut raw = tonic::client::Grpc::new(channel);
        let mut call = async |path: &'static str| {
            raw.ready().await.unwrap();
            let garbage = tonic::Request::new(bytes::Bytes::from_static(b"\xff\xff\xff"));
            raw.unary(garbage, http::uri::PathAndQuery::from_static(path), lapwing_protocol::BytesCodec).await.unwrap_err().code()
        };
        assert_eq!(call("/opentelemetry.proto.collector.trace.v1.TraceService/Export").await, Code::InvalidArgument);
        assert_eq!(call("/opentelemetry.proto.collector.profiles.v1.ProfilesService/Export").await, Code::Unimplemented);
    })
    .await;
    let refused = [Counter::OtlpTooLarge, Counter::OtlpUndecodable, Counter::OtlpWrongPath, Counter::OtlpMalformed];
    assert_eq!(refused.map(|counter| counters.get(counter)), [2, 1, 1, 4]);
}

#[tokio::test]
async fn a_status_does_not_repeat_a_long_field() {
    let counters = Arc::new(Counters::default());
    let (handler, _spans) = handler(8, None, &counters);
    against(handler, async |endpoint| {
        // of a message that is not packed it does not matter
        let (status, message) = call(&endpoint, &"x".repeat(8_000), vec![7; 9]).await;
        assert_eq!(status, Code::Unimplemented);
        let length = message.len();
        assert!(message.contains("xxx") && length <= lapwing_net::MAX_ERROR_TEXT, "{length} bytes");
    })
    .await;
    assert_eq!(counters.get(Counter::OtlpMalformed), 1);
}

#[tokio::test]
async fn a_flood_stays_bounded_and_the_exporter_still_gets_success() {
    let counters = Arc::new(Counters::default());
    let (handler, mut spans) = handler(2, None, &counters);
    against(handler, async |endpoint| {
        let mut traces = TraceServiceClient::new(endpoint.connect().await.unwrap());
        // 600 spans make two messages of 512 and 88, which fill the channel
        for _ in 0..3 {
            let flood = (0..600).map(|i| span(TRACE, i as u8 | 1, "x")).collect();
            traces.export(request(flood)).await.unwrap();
        }
    })
    .await;
    let kept = [spans.recv().await.unwrap().len(), spans.recv().await.unwrap().len()];
    assert_eq!(kept, [512, 88]);
    assert!(spans.recv().await.is_none());
    assert_eq!((counters.get(Counter::SpansReceived), counters.get(Counter::SpansShed)), (1800, 1200));
}

#[tokio::test]
async fn a_connection_that_stalls_does_not_hold_up_shutdown() {
    let counters = Arc::new(Counters::default());
    let (handler, _spans) = handler(2, None, &counters);
    let stalled = std::sync::Mutex::new(None);
    against(handler, async |endpoint| {
        use tokio::io::AsyncWriteExt;
        let authority = endpoint.uri().authority().unwrap().to_string();
        let mut stream = tokio::net::TcpStream::connect(authority).await.unwrap();
        stream.write_all(b"PRI * HTTP/2.0\r\n").await.unwrap();
        stalled.lock().unwrap().replace(stream);
        tokio::time::sleep(Duration::from_millis(50)).await;
    })
    .await;
}

/// The status of a call whose message is packed as `encoding` says, and the encodings that the answer names.
async fn packed(endpoint: &Endpoint, encoding: &str, message: Vec<u8>) -> String {
    let fields = answered(endpoint, encoding, message).await;
    let accepted = fields.get("grpc-accept-encoding").map_or("", |value| value.to_str().unwrap());
    format!("{} {accepted}", fields["grpc-status"].to_str().unwrap())
}

/// The status of such a call, and its message.
async fn call(endpoint: &Endpoint, encoding: &str, message: Vec<u8>) -> (Code, String) {
    let status = tonic::Status::from_header_map(&answered(endpoint, encoding, message).await).unwrap();
    (status.code(), status.message().to_owned())
}

/// The fields of the answer's head and trailers.
async fn answered(endpoint: &Endpoint, encoding: &str, message: Vec<u8>) -> http::HeaderMap {
    use http_body_util::{BodyExt, Full};
    use tower::{Service, ServiceExt};
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    let frame = [&[1][..], &length, &message].concat();
    let mut request = http::Request::post("http://x/opentelemetry.proto.collector.trace.v1.TraceService/Export")
        .body(tonic::body::Body::new(Full::new(bytes::Bytes::from(frame))))
        .unwrap();
    for (name, value) in [("content-type", "application/grpc"), ("te", "trailers"), ("grpc-encoding", encoding)] {
        request.headers_mut().insert(name, http::HeaderValue::from_str(value).unwrap());
    }
    let mut channel = endpoint.connect().await.unwrap();
    let answer = channel.ready().await.unwrap().call(request).await.unwrap();
    let (head, body) = answer.into_parts();
    let mut fields = head.headers;
    fields.extend(body.collect().await.unwrap().trailers().cloned().unwrap_or_default());
    fields
}

#[tokio::test]
async fn every_packing_of_sdks_is_taken() {
    let counters = Arc::new(Counters::default());
    let (handler, mut spans) = handler(8, None, &counters);
    let body = request(vec![span(TRACE, 1, "forward")]).encode_to_vec();
    let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut zlib, &body).unwrap();
    let zlib = zlib.finish().unwrap();
    let mut zstd = vec![0; zstd_safe::compress_bound(body.len())];
    zstd_safe::compress(&mut zstd[..], &body, 3).map(|length| zstd.truncate(length)).unwrap();
    against(handler, async |endpoint| {
        for (encoding, message) in [("gzip", super::gzip(&body)), ("deflate", zlib), ("zstd", zstd)] {
            assert_eq!(packed(&endpoint, encoding, message).await, "0 ", "{encoding}");
        }
        assert_eq!(packed(&endpoint, "zstd", vec![7; 9]).await, "3 ");
        assert_eq!(packed(&endpoint, "snappy", vec![7; 9]).await, "12 gzip, deflate, zstd, identity");
    })
    .await;
    for _ in 0..3 {
        assert_eq!(spans.recv().await.unwrap().len(), 1);
    }
}
