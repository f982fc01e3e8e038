//! One attempt on the wire: OTLP by HTTP through hyper's pooled client, or by gRPC through a tonic channel.
//!
//! Which answers may pass is the specification's: 429, 502, 503 and 504; CANCELLED, DEADLINE_EXCEEDED, ABORTED,
//! OUT_OF_RANGE, UNAVAILABLE, DATA_LOSS, and RESOURCE_EXHAUSTED where it says when.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Extensions, Status};

use super::deliver::{Carry, Setback};
use super::headers::Error;
use super::parcel::Parcel;
use crate::attribution::otlp::signal::Signal;
use crate::attribution::otlp::status::retry_delay;
use crate::protocol::BytesCodec;
use crate::settings::Collector;

const CONNECT: Duration = Duration::from_secs(5);
/// An idle connection is kept for the next export of a slow exporter.
const POOL_IDLE: Duration = Duration::from_secs(90);
/// Read of an answer's body, so that the connection can be used again.
const ANSWER_BYTES: usize = 64 << 10;

/// Where to, checked, not yet in use.
#[allow(clippy::large_enum_variant, reason = "there is one")]
pub(super) enum Route {
    Http { urls: [Uri; 3], headers: HeaderMap },
    Grpc { endpoint: Endpoint, headers: HeaderMap },
}

/// Ready to carry.
#[allow(clippy::large_enum_variant, reason = "there is one")]
pub(super) enum Carrier {
    Http { client: Client<HttpConnector, Full<Bytes>>, urls: [Uri; 3], headers: HeaderMap },
    Grpc { channel: Channel, headers: HeaderMap },
}

impl Route {
    /// Checks the address.
    pub(super) fn new(to: &Collector, headers: HeaderMap) -> Result<Self, Error> {
        let fault = |reason: String| Error::Address { address: to.to_string(), reason };
        match to {
            Collector::Http(base) => {
                let url = |signal: Signal| format!("{base}{}", signal.http_path()).parse::<Uri>();
                let [traces, metrics, logs] = Signal::ALL.map(|signal| url(signal).map_err(|e| fault(e.to_string())));
                Ok(Self::Http { urls: [traces?, metrics?, logs?], headers })
            }
            Collector::Grpc(authority) => {
                let endpoint = Endpoint::from_shared(format!("http://{authority}")).map_err(|e| fault(e.to_string()))?;
                Ok(Self::Grpc { endpoint: endpoint.connect_timeout(CONNECT), headers })
            }
        }
    }

    /// Takes it into use; nothing is connected yet. Must be called in a tokio runtime.
    pub(super) fn open(self) -> Carrier {
        match self {
            Self::Http { urls, headers } => {
                let mut connector = HttpConnector::new();
                connector.set_connect_timeout(Some(CONNECT));
                connector.set_nodelay(true);
                let client = Client::builder(TokioExecutor::new())
                    .pool_timer(TokioTimer::new())
                    .pool_idle_timeout(POOL_IDLE)
                    .build(connector);
                Carrier::Http { client, urls, headers }
            }
            Self::Grpc { endpoint, headers } => Carrier::Grpc { channel: endpoint.connect_lazy(), headers },
        }
    }
}

impl Carry for Carrier {
    async fn carry(&self, parcel: &Parcel) -> Result<(), Setback> {
        match self {
            Self::Http { client, urls, headers } => by_http(client, &urls[parcel.signal as usize], headers, parcel).await,
            Self::Grpc { channel, headers } => by_grpc(channel.clone(), headers, parcel).await,
        }
    }
}

async fn by_http(
    client: &Client<HttpConnector, Full<Bytes>>,
    url: &Uri,
    headers: &HeaderMap,
    parcel: &Parcel,
) -> Result<(), Setback> {
    let mut request = Request::new(Full::new(parcel.body.clone()));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = url.clone();
    *request.headers_mut() = headers.clone();
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(parcel.encoding.content_type()));
    let passing = |reason, after| Err(Setback::Passing { reason, after });
    let (head, body) = match client.request(request).await {
        Ok(response) => response.into_parts(),
        Err(error) => return passing(chain(&error), None),
    };
    let _ = Limited::new(body, ANSWER_BYTES).collect().await;
    match head.status {
        status if status.is_success() => Ok(()),
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => passing(format!("the collector answered {}", head.status), retry_after(&head.headers)),
        status => Err(Setback::Lasting(format!("the collector answered {status}"))),
    }
}

/// In seconds; a date is not read, and the usual pause is kept.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

async fn by_grpc(channel: Channel, headers: &HeaderMap, parcel: &Parcel) -> Result<(), Setback> {
    let mut client = tonic::client::Grpc::new(channel);
    if let Err(error) = client.ready().await {
        return Err(Setback::Passing { reason: chain(&error), after: None });
    }
    let metadata = MetadataMap::from_headers(headers.clone());
    let request = tonic::Request::from_parts(metadata, Extensions::default(), parcel.body.clone());
    let path = PathAndQuery::from_static(parcel.signal.grpc_path());
    match client.unary(request, path, BytesCodec).await {
        Ok(_) => Ok(()),
        Err(status) => Err(setback(&status)),
    }
}

fn setback(status: &Status) -> Setback {
    let after = retry_delay(status.details());
    let reason = format!("the collector answered {:?}: {}", status.code(), status.message());
    let may_pass = match status.code() {
        Code::Cancelled | Code::DeadlineExceeded | Code::Aborted | Code::OutOfRange | Code::Unavailable | Code::DataLoss => true,
        Code::ResourceExhausted => after.is_some(),
        // tonic's for a connection that broke
        Code::Unknown => std::error::Error::source(status).is_some(),
        _ => false,
    };
    if may_pass { Setback::Passing { reason, after } } else { Setback::Lasting(reason) }
}

/// An error with its causes, which hyper's own text leaves out.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
