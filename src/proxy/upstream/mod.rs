//! The innermost service: carries a request to the upstream over HTTP/1.1 or HTTP/2 and brings the response back.

mod convert;
mod h1;
mod h1_connection;
mod h2;
mod h2_upload;
mod interim;
mod pool;
mod traits;
mod trust;
mod upgrade;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Method, Request, Response, StatusCode, Version, header};
use http_body::Body;
use hyper::upgrade::OnUpgrade;

pub(crate) use self::h2::{CONNECTION_WINDOW, STREAM_WINDOW};
pub(crate) use pool::ConnectionPool;
pub(crate) use traits::UpstreamTraits;

use self::h2::H2Connection;
use crate::ledger::{Annotation, Stamp};
use crate::net::{ConnectError, Socket, Target, Tasks};
use crate::proxy::body::{ContinueGate, Drive, RequestBody, ResponseBody};
use crate::proxy::config::UpstreamProtocol;
use crate::proxy::error::Error;
use crate::proxy::error::response::keep_error_field_apart;
use crate::proxy::exchange::{InFlight, TrackedRequest};
use crate::proxy::head::normalise_response;
use trust::Framing;

/// What the requests of one worker share of the upstream.
#[derive(Debug)]
pub(crate) struct UpstreamContext {
    pub(crate) target: Target,
    pub(crate) pool: Arc<ConnectionPool>,
    /// What was learnt of it.
    pub(crate) traits: Arc<UpstreamTraits>,
    pub(crate) tasks: Tasks,
}

/// The upstream as one client's connection sees it.
#[derive(Clone, Debug)]
pub(crate) struct Upstream {
    context: Arc<UpstreamContext>,
    h2: Arc<H2Connection>,
}

impl Upstream {
    /// For one client's connection.
    pub(crate) fn new(context: Arc<UpstreamContext>) -> Self {
        Self { context, h2: Arc::default() }
    }
}

fn speaks_h2(protocol: UpstreamProtocol, version: Version) -> bool {
    match protocol {
        UpstreamProtocol::Auto => version == Version::HTTP_2,
        UpstreamProtocol::H1 => false,
        UpstreamProtocol::H2 => true,
    }
}

impl tower::Service<TrackedRequest> for Upstream {
    type Response = Response<ResponseBody>;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, tracked: TrackedRequest) -> Self::Future {
        let context = self.context.clone();
        if speaks_h2(tracked.in_flight.context.config.upstream_protocol, tracked.request.version()) {
            Box::pin(over_h2(context, self.h2.clone(), tracked))
        } else {
            Box::pin(over_h1(context, tracked))
        }
    }
}

async fn over_h2(
    context: Arc<UpstreamContext>,
    h2: Arc<H2Connection>,
    tracked: TrackedRequest,
) -> Result<Response<ResponseBody>, Error> {
    let TrackedRequest { mut request, in_flight } = tracked;
    refuse_tunnel(&request)?;
    convert::to_h2(&mut request, &context.target);
    let mut response = h2.exchange(&context, request, &in_flight).await?;
    keep_error_field_apart(response.headers_mut());
    let head = response.body().last_read();
    in_flight.begin_window(in_flight.request_end(), head);
    in_flight.record_response_head(response.status(), response.headers());
    Ok(response.map(|stream| ResponseBody::stream(stream, head)))
}

async fn over_h1(context: Arc<UpstreamContext>, tracked: TrackedRequest) -> Result<Response<ResponseBody>, Error> {
    let TrackedRequest { mut request, in_flight } = tracked;
    refuse_tunnel(&request)?;
    convert::to_h1(&mut request);
    let gate = request.headers().contains_key(header::EXPECT).then(ContinueGate::new);
    interim::pass_on(&mut request, &in_flight, gate.clone());
    // hyper offers one for every `Upgrade`; without `Connection: upgrade` it is not forwarded, and the upstream is not asked
    let client = request.extensions_mut().remove::<OnUpgrade>().filter(|_| request.headers().contains_key(header::UPGRADE));
    let is_old = request.version() < Version::HTTP_11;
    if let Some(gate) = gate {
        request.body_mut().hold_by(gate);
    }
    let (mut response, mut connection) = h1::exchange(&context, request, &in_flight).await?;
    let limit = in_flight.context.config.max_header_bytes.get();
    let closes = normalise_response(&mut response, limit, is_old).map_err(Error::RefusedAnswer)?;
    keep_error_field_apart(response.headers_mut());
    if in_flight.request_end().is_none() && (in_flight.is_multiplexed || closes) {
        // nobody wants the rest of the request: an HTTP/2 client is told so by the end of its stream
        connection.close_at_end();
    }
    connection.framing = if response.body().size_hint().exact().is_some() { Framing::Sized } else { Framing::Open };
    let head = connection.last_read().unwrap_or_else(Stamp::now);
    let sent = in_flight.request_end().and_then(|end| Some(connection.meter.last_write()?.max(end)));
    in_flight.begin_window(sent, head);
    in_flight.record_response_head(response.status(), response.headers());
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let Some(client) = client else { return Err(Error::SwitchedUnasked) };
        upgrade::splice(&context, client, &mut response, connection, in_flight);
        return Ok(response.map(|body| ResponseBody::upstream(body, None, head)));
    }
    Ok(response.map(|body| ResponseBody::upstream(body, Some(connection), head)))
}

/// Connects to the upstream, within `connect_timeout`.
async fn connect(upstream: &UpstreamContext, in_flight: &InFlight) -> Result<Socket, Error> {
    let (target, limit) = (&upstream.target, in_flight.context.config.connect_timeout.get());
    let socket = target.connect(limit).await.map_err(|error| match error {
        ConnectError::Io(cause) => Error::Connect { upstream: target.to_string(), cause },
        ConnectError::Timeout(limit) => Error::ConnectTimeout { upstream: target.to_string(), limit },
    })?;
    in_flight.annotate(Annotation::NewUpstreamConnection);
    Ok(socket)
}

fn refuse_tunnel(request: &Request<RequestBody>) -> Result<(), Error> {
    if request.method() == Method::CONNECT {
        return Err(Error::Unsupported("CONNECT asks for a tunnel, which Lapwing is not"));
    }
    Ok(())
}
