//! One attempt to send a message: OTLP over HTTP, or over gRPC.
//!
//! Which responses are worth another attempt is the OTLP specification's: 429, 502, 503 and 504; CANCELLED, DEADLINE_EXCEEDED,
//! ABORTED, OUT_OF_RANGE, UNAVAILABLE, DATA_LOSS, and RESOURCE_EXHAUSTED with a retry delay.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use tonic::client::Grpc;
use tonic::metadata::MetadataMap;
use tonic::{Code, Extensions, Status};
use tonic_types::StatusExt;

use super::headers::Error;
use super::message::Message;
use super::send::{SendError, Transport};
use crate::attribution::otlp::signal::Signal;
use crate::net::{Client, ClientError, ClientLimits, Target};
use crate::protocol::BytesCodec;
use crate::settings::Collector;

/// The limits of one attempt. An idle connection is kept for the next export of a slow exporter.
const LIMITS: ClientLimits = ClientLimits {
    connect_timeout: Duration::from_secs(5),
    timeout: super::send::ATTEMPT,
    // of a response's body, which is read so that the connection can be used again
    max_body: 64 << 10,
    idle_timeout: Duration::from_secs(90),
    max_idle: 4,
    keep_alive: None,
};

/// The client of the user's collector. It connects with the first message.
#[allow(clippy::large_enum_variant, reason = "there is one")]
pub(super) enum CollectorClient {
    Http { client: Client<Full<Bytes>>, paths: [PathAndQuery; 3], headers: HeaderMap },
    Grpc { client: Client<tonic::body::Body>, headers: HeaderMap },
}

impl CollectorClient {
    /// Checks the collector's address; every message carries `headers`.
    pub(super) fn new(to: &Collector, headers: HeaderMap) -> Result<Self, Error> {
        let fault = |reason: String| Error::Address { address: to.to_string(), reason };
        let parsed = |text: String| text.parse::<Uri>().map_err(|e| fault(e.to_string()));
        let target = Target::Tcp(to.authority().to_owned());
        match to {
            Collector::Http(base) => {
                let path = |signal: Signal| {
                    let uri = parsed(format!("{base}{}", signal.http_path()))?;
                    let path = uri.path_and_query().cloned();
                    path.ok_or_else(|| fault("it has no path".to_owned()))
                };
                let [traces, metrics, logs] = Signal::ALL.map(path);
                Ok(Self::Http { client: Client::new(target, LIMITS), paths: [traces?, metrics?, logs?], headers })
            }
            Collector::Grpc(authority) => {
                parsed(format!("http://{authority}"))?;
                Ok(Self::Grpc { client: Client::http2(target, LIMITS), headers })
            }
        }
    }
}

impl Transport for CollectorClient {
    async fn send(&self, message: &Message) -> Result<(), SendError> {
        match self {
            Self::Http { client, paths, headers } => send_http(client, &paths[message.signal as usize], headers, message).await,
            Self::Grpc { client, headers } => send_grpc(client.clone(), headers, message).await,
        }
    }
}

async fn send_http(
    client: &Client<Full<Bytes>>,
    path: &PathAndQuery,
    headers: &HeaderMap,
    message: &Message,
) -> Result<(), SendError> {
    let mut request = Request::new(Full::new(message.body.clone()));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = Uri::from(path.clone());
    *request.headers_mut() = headers.clone();
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(message.encoding.content_type()));
    let retryable = |reason, after| Err(SendError::Retryable { reason, after });
    let (head, body) = match client.send(request).await {
        Ok(response) => response.into_parts(),
        Err(error @ ClientError::Request(_)) => return Err(SendError::Permanent(error.to_string())),
        Err(error) => return retryable(error.to_string(), None),
    };
    let _ = body.collect().await;
    match head.status {
        status if status.is_success() => Ok(()),
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

async fn send_grpc(client: Client<tonic::body::Body>, headers: &HeaderMap, message: &Message) -> Result<(), SendError> {
    let metadata = MetadataMap::from_headers(headers.clone());
    let request = tonic::Request::from_parts(metadata, Extensions::default(), message.body.clone());
    let path = PathAndQuery::from_static(message.signal.grpc_path());
    match Grpc::new(client).unary(request, path, BytesCodec).await {
        Ok(_) => Ok(()),
        Err(status) => Err(send_error(&status)),
    }
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
