//! The client with collectors over gRPC that answer what tonic cannot read, and over HTTP that want what was agreed.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use flate2::read::GzDecoder;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::*;

/// Where a collector over gRPC puts its status.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    Head,
    Trailers,
}

fn status(code: &str, details: Option<&str>) -> HeaderMap {
    let fields = [("grpc-status", Some(code)), ("grpc-status-details-bin", details), ("grpc-message", Some("no"))];
    let fields = fields.into_iter().filter_map(|(name, value)| Some((name.parse().unwrap(), value?.parse().unwrap())));
    fields.collect()
}

/// What a collector was sent.
type Taken = Arc<Mutex<Vec<(HeaderMap, Bytes)>>>;

/// A collector that answers every request alike, while its task is kept; and what it was sent.
async fn collector(place: Place, status: HeaderMap) -> (SocketAddr, Taken, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, taken) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
    let seen = taken.clone();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (seen, status) = (seen.clone(), status.clone());
            let answer = move |request: Request<Incoming>| {
                let (seen, status) = (seen.clone(), status.clone());
                async move {
                    let (head, body) = request.into_parts();
                    let body = body.collect().await.unwrap().to_bytes();
                    seen.lock().push((head.headers, body));
                    let (in_head, trailers) = match place {
                        Place::Head => (status, HeaderMap::new()),
                        Place::Trailers => (HeaderMap::new(), status),
                    };
                    let content = if place == Place::Head { Bytes::new() } else { Bytes::from_static(&[0; 5]) };
                    let body = Full::new(content).with_trailers(async move { Some(Ok::<_, Infallible>(trailers)) });
                    let mut response = Response::new(body);
                    *response.headers_mut() = in_head;
                    response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
                    Ok::<_, Infallible>(response)
                }
            };
            connections.spawn(async move {
                let _ = auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service_fn(answer)).await;
            });
        }
    });
    tasks.detach_all();
    (address, taken, tasks)
}

fn client(to: &str, compression: Compression) -> CollectorClient {
    let options =
        CollectorOptions { headers: [].into(), compression, timeout: Duration::from_secs(10), identity: Arc::default() };
    CollectorClient::new(&to.parse().unwrap(), options).unwrap()
}

fn message() -> ExportMessage {
    ExportMessage { signal: Signal::Traces, encoding: Encoding::Protobuf, body: Bytes::from_static(b"spans spans spans spans") }
}

/// tonic panics on such details; here the message is tried again, or refused, by its code alone.
#[tokio::test]
async fn status_details_that_are_no_base64_end_no_task() {
    for place in [Place::Head, Place::Trailers] {
        for (code, details, is_retryable) in
            [("14", Some("%%% no base64"), true), ("3", Some("CAM%"), false), ("8", Some("!"), false)]
        {
            let (address, taken, _tasks) = collector(place, status(code, details)).await;
            let error = client(&format!("grpc://{address}"), Compression::None).send(&message()).await.unwrap_err();
            assert_eq!(matches!(error, SendError::Retryable { .. }), is_retryable, "{place:?} {code}: {error:?}");
            assert_eq!(taken.lock().len(), 1);
        }
    }
}

#[tokio::test]
async fn details_that_are_base64_are_read() {
    use tonic_types::{ErrorDetails, StatusExt};
    let details = ErrorDetails::with_retry_info(Some(Duration::from_secs(7)));
    let status = tonic::Status::with_error_details(tonic::Code::ResourceExhausted, "later", details);
    let (address, _, _tasks) = collector(Place::Head, status.into_http::<()>().headers().clone()).await;
    let error = client(&format!("grpc://{address}"), Compression::None).send(&message()).await.unwrap_err();
    assert!(matches!(error, SendError::Retryable { after: Some(after), .. } if after == Duration::from_secs(7)), "{error:?}");
}

#[tokio::test]
async fn bodies_are_compressed_where_that_is_wanted() {
    let inflated = |body: &[u8]| std::io::read_to_string(GzDecoder::new(body)).unwrap();
    let (address, taken, _tasks) = collector(Place::Trailers, status("0", None)).await;
    client(&format!("grpc://{address}"), Compression::Gzip).send(&message()).await.unwrap();
    client(&format!("http://{address}"), Compression::Gzip).send(&message()).await.unwrap();
    client(&format!("http://{address}"), Compression::None).send(&message()).await.unwrap();
    let taken = taken.lock();
    assert_eq!((&taken[0].0["grpc-encoding"], taken[0].1[0]), (&HeaderValue::from_static("gzip"), 1));
    assert_eq!(inflated(&taken[0].1[5..]), "spans spans spans spans");
    assert_eq!(
        (&taken[1].0["content-encoding"], inflated(&taken[1].1)),
        (&HeaderValue::from_static("gzip"), "spans spans spans spans".to_owned())
    );
    assert_eq!((taken[2].0.get("content-encoding"), &taken[2].1[..]), (None, &b"spans spans spans spans"[..]));
}

#[test]
fn an_endpoint_of_one_signal_is_used_as_it_is() {
    let endpoint = |text: &str| text.parse::<lapwing_settings::CollectorEndpoint>().map(|to| to.to_string());
    assert_eq!(endpoint("http://c:4318").unwrap(), "http://c:4318/");
    assert_eq!(endpoint("http://c:4318/v1/metrics").unwrap(), "http://c:4318/v1/metrics");
    assert_eq!(endpoint("grpc://c:4317/").unwrap(), "grpc://c:4317");
    assert_eq!(endpoint("HTTPS://c:4318/v1/metrics").unwrap(), "https://c:4318/v1/metrics");
    assert_eq!(endpoint("grpcs://c:4317").unwrap(), "grpcs://c:4317");
    let base: lapwing_settings::Collector = "http://c:4318/prefix/".parse().unwrap();
    assert_eq!(base.endpoint("/v1/traces").to_string(), "http://c:4318/prefix/v1/traces");
}
