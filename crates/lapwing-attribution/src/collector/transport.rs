//! One attempt to send a message: OTLP over HTTP, or over gRPC.
//!
//! Which responses are worth another attempt is the OTLP specification's: 429, 502, 503 and 504; CANCELLED, DEADLINE_EXCEEDED,
//! ABORTED, OUT_OF_RANGE, UNAVAILABLE, DATA_LOSS, and RESOURCE_EXHAUSTED with a retry delay.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use flate2::write::GzEncoder;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tonic::client::Grpc;
use tonic::codec::CompressionEncoding;
use tonic::metadata::MetadataMap;
use tonic::{Code, Extensions, Status};
use tonic_types::StatusExt;
use tower::ServiceExt;

use super::grpc::readable;
use super::headers::{self, Error};
use super::{ExportMessage, SendError, Signal, Transport};
use lapwing_net::{Client, ClientError, ClientIdentity, ClientLimits, Target, TlsTo};
use lapwing_protocol::BytesCodec;
use lapwing_settings::{Collector, CollectorEndpoint, Secret};

/// The limits of one attempt. An idle connection is kept for the next export of a slow exporter.
const fn limits(timeout: Duration) -> ClientLimits {
    ClientLimits {
        connect_timeout: Duration::from_secs(5),
        timeout,
        // of a response's body, which is read so that the connection can be used again
        max_body: 64 << 10,
        idle_timeout: Duration::from_secs(90),
        max_idle: 4,
        keep_alive: None,
    }
}

/// How bodies are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// By gzip.
    Gzip,
}

/// How messages are sent.
#[derive(Clone, Debug)]
pub struct CollectorOptions {
    /// Sent with every message, by name.
    pub headers: BTreeMap<String, Secret>,
    /// Whether bodies are compressed.
    pub compression: Compression,
    /// For one attempt.
    pub timeout: Duration,
    /// Whom a collector over TLS has to prove itself to.
    pub identity: Arc<ClientIdentity>,
}

/// The client of a collector. It connects with the first message.
#[derive(Debug)]
pub struct CollectorClient {
    wire: Wire,
    headers: HeaderMap,
    compression: Compression,
}

#[derive(Debug)]
enum Wire {
    Http { client: Client<Full<Bytes>>, paths: [PathAndQuery; 3] },
    Grpc { client: Client<tonic::body::Body> },
}

impl CollectorClient {
    /// A client of `to` for every signal.
    ///
    /// # Errors
    ///
    /// When a header's name or value, or the collector's address, cannot be put on the wire.
    pub fn new(to: &Collector, options: CollectorOptions) -> Result<Self, Error> {
        let [traces, metrics, logs] = Signal::ALL.map(|signal| to.endpoint(signal.http_path()));
        Self::with_endpoints([&traces, &metrics, &logs], options)
    }

    /// A client of one endpoint, whatever the signal.
    ///
    /// # Errors
    ///
    /// Those of [`Self::new`].
    pub fn of_endpoint(to: &CollectorEndpoint, options: CollectorOptions) -> Result<Self, Error> {
        Self::with_endpoints([to, to, to], options)
    }

    /// All endpoints are of one collector.
    fn with_endpoints(to: [&CollectorEndpoint; 3], options: CollectorOptions) -> Result<Self, Error> {
        let CollectorOptions { headers, compression, timeout, identity } = options;
        let authority = to[0].authority().to_owned();
        let target = if to[0].is_tls() { Target::Tls(authority, TlsTo(identity)) } else { Target::Tcp(authority) };
        let parsed = |to: &CollectorEndpoint| {
            let fault = |reason: String| Error::Address { address: to.to_string(), reason };
            let text = to.to_string();
            let url = text.strip_prefix("grpc").map_or(text.clone(), |rest| format!("http{rest}"));
            let uri = url.parse::<Uri>().map_err(|e| fault(e.to_string()))?;
            uri.path_and_query().cloned().ok_or_else(|| fault("it has no path".to_owned()))
        };
        let [traces, metrics, logs] = to.map(parsed);
        let wire = match to[0] {
            CollectorEndpoint::Http(_) => {
                Wire::Http { client: Client::new(target, limits(timeout)), paths: [traces?, metrics?, logs?] }
            }
            CollectorEndpoint::Grpc(_) => {
                traces?;
                Wire::Grpc { client: Client::http2(target, limits(timeout)) }
            }
        };
        Ok(Self { wire, headers: headers::checked(headers)?, compression })
    }
}

impl Transport for CollectorClient {
    async fn send(&self, message: &ExportMessage) -> Result<Bytes, SendError> {
        let Self { wire, headers, compression } = self;
        match wire {
            Wire::Http { client, paths } => {
                send_http(client, &paths[message.signal as usize], headers, *compression, message).await
            }
            Wire::Grpc { client } => send_grpc(client.clone(), headers, *compression, message).await,
        }
    }
}

async fn send_http(
    client: &Client<Full<Bytes>>,
    path: &PathAndQuery,
    headers: &HeaderMap,
    compression: Compression,
    message: &ExportMessage,
) -> Result<Bytes, SendError> {
    let body = match compression {
        Compression::None => message.body.clone(),
        Compression::Gzip => gzip(&message.body).map_err(|error| SendError::Permanent(error.to_string()))?,
    };
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = Uri::from(path.clone());
    *request.headers_mut() = headers.clone();
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(message.encoding.content_type()));
    if compression == Compression::Gzip {
        request.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    let retryable = |reason, after| Err(SendError::Retryable { reason, after });
    let (head, body) = match client.send(request).await {
        Ok(response) => response.into_parts(),
        Err(error @ ClientError::Request(_)) => return Err(SendError::Permanent(error.to_string())),
        Err(error) => return retryable(error.to_string(), None),
    };
    // an answer that breaks off still has a status
    let answer = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    match head.status {
        status if status.is_success() => Ok(answer),
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => retryable(format!("the collector answered {}", head.status), retry_after(&head.headers)),
        status => Err(SendError::Permanent(format!("the collector answered {status}"))),
    }
}

/// `Retry-After` in seconds. A date is ignored, and the usual pause is kept.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

async fn send_grpc(
    client: Client<tonic::body::Body>,
    headers: &HeaderMap,
    compression: Compression,
    message: &ExportMessage,
) -> Result<Bytes, SendError> {
    let metadata = MetadataMap::from_headers(headers.clone());
    let request = tonic::Request::from_parts(metadata, Extensions::default(), message.body.clone());
    let path = PathAndQuery::from_static(message.signal.grpc_path());
    let mut grpc = Grpc::new(client.map_response(readable as fn(_) -> _));
    if compression == Compression::Gzip {
        grpc = grpc.send_compressed(CompressionEncoding::Gzip);
    }
    match grpc.unary(request, path, BytesCodec).await {
        Ok(answer) => Ok(answer.into_inner()),
        Err(status) => Err(send_error(&status)),
    }
}

fn gzip(body: &[u8]) -> std::io::Result<Bytes> {
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(body)?;
    Ok(encoder.finish()?.into())
}

fn send_error(status: &Status) -> SendError {
    let after = status.get_details_retry_info().and_then(|info| info.retry_delay);
    let reason = match std::error::Error::source(status) {
        // no response: the client's error says why
        Some(cause) => cause.to_string(),
        None => format!("the collector answered {:?}: {}", status.code(), status.message()),
    };
    let may_retry = match status.code() {
        Code::Cancelled | Code::DeadlineExceeded | Code::Aborted | Code::OutOfRange | Code::Unavailable | Code::DataLoss => true,
        Code::ResourceExhausted => after.is_some(),
        // tonic's code for a connection that was not made or that broke
        Code::Unknown => std::error::Error::source(status).is_some(),
        _ => false,
    };
    if may_retry { SendError::Retryable { reason, after } } else { SendError::Permanent(reason) }
}
