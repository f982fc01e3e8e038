//! The innermost service: carries a request to the upstream over HTTP/1.1 or HTTP/2 and brings the response back.

mod convert;
mod h1;
mod link;
mod mux;
mod pool;
mod upgrade;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{HeaderMap, Method, Request, Response, StatusCode, Version, header};
use hyper::upgrade::OnUpgrade;

pub(crate) use h1::explain_body;
pub(crate) use link::Link;
pub(crate) use mux::{CONNECTION_WINDOW, STREAM_WINDOW};
pub(crate) use pool::Pool;

use super::config::UpstreamProtocol;
use super::error::Error;
use crate::ledger::{ExchangeKind, Outcome, Stamp};
use crate::net::{ConnectError, Socket, Target, Tasks};
use crate::proxy::body::request::{Gate, RequestBody};
use crate::proxy::body::response::ResponseBody;
use crate::proxy::exchange::grpc::grpc_outcome;
use crate::proxy::exchange::in_flight::Live;
use crate::proxy::exchange::tracked_request::Call;
use mux::Mux;

/// What the requests of one worker share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) target: Target,
    pub(crate) pool: Arc<Pool>,
    pub(crate) tasks: Tasks,
}

/// The upstream as one client connection sees it.
#[derive(Clone, Debug)]
pub(crate) struct Upstream {
    shared: Arc<Shared>,
    mux: Arc<Mux>,
}

impl Upstream {
    /// For one client connection.
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, mux: Arc::default() }
    }

    fn speaks_h2(call: &Call) -> bool {
        match call.live.recorder.config.upstream_protocol {
            UpstreamProtocol::Auto => call.request.version() == Version::HTTP_2,
            UpstreamProtocol::H1 => false,
            UpstreamProtocol::H2 => true,
        }
    }
}

impl tower::Service<Call> for Upstream {
    type Response = Response<ResponseBody>;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: Call) -> Self::Future {
        let Self { shared, mux } = self.clone();
        if Self::speaks_h2(&call) { Box::pin(over_h2(shared, mux, call)) } else { Box::pin(over_h1(shared, call)) }
    }
}

async fn over_h2(shared: Arc<Shared>, mux: Arc<Mux>, call: Call) -> Result<Response<ResponseBody>, Error> {
    let Call { mut request, live } = call;
    refuse_tunnel(&request)?;
    convert::to_h2(&mut request, &shared.target);
    let response = mux.exchange(&shared, request, &live).await?;
    let head = Stamp::now();
    live.begin_window(live.request_end(), head);
    on_head(&live, response.status(), response.headers());
    Ok(response.map(|body| ResponseBody::upstream(body, None, head)))
}

async fn over_h1(shared: Arc<Shared>, call: Call) -> Result<Response<ResponseBody>, Error> {
    let Call { mut request, live } = call;
    refuse_tunnel(&request)?;
    convert::to_h1(&mut request);
    let gate = request.headers().contains_key(header::EXPECT).then(Gate::new);
    on_interim(&mut request, &live, gate.clone());
    let client = request.extensions_mut().remove::<OnUpgrade>();
    let request = request.map(|body| body.gated(gate));
    let (mut response, link) = h1::exchange(&shared, request, &live).await?;
    let head = link.meter.last_read().unwrap_or_else(Stamp::now);
    let sent = live.request_end().and_then(|end| Some(link.meter.last_write()?.max(end)));
    live.begin_window(sent, head);
    on_head(&live, response.status(), response.headers());
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let Some(client) = client else { return Err(Error::SwitchedUnasked) };
        upgrade::splice(&shared, client, &mut response, link, live);
        return Ok(response.map(|body| ResponseBody::upstream(body, None, head)));
    }
    Ok(response.map(|body| ResponseBody::upstream(body, Some((link, shared.pool.clone())), head)))
}

/// Connects to the upstream, within `connect_timeout`.
async fn connect(shared: &Shared, live: &Live) -> Result<Socket, Error> {
    let (target, limit) = (&shared.target, live.recorder.config.connect_timeout.get());
    target.connect(limit).await.map_err(|error| match error {
        ConnectError::Io(cause) => Error::Connect { upstream: target.to_string(), cause },
        ConnectError::Timeout(limit) => Error::ConnectTimeout { upstream: target.to_string(), limit },
    })
}

fn refuse_tunnel(request: &Request<RequestBody>) -> Result<(), Error> {
    if request.method() == Method::CONNECT {
        return Err(Error::Unsupported("CONNECT asks for a tunnel, which Lapwing is not"));
    }
    Ok(())
}

/// Interim responses: "100 Continue" opens the gate; any other is passed on as it is (to HTTP/1.1 clients: hyper's
/// HTTP/2 server has no way to send one).
fn on_interim(request: &mut Request<RequestBody>, live: &Arc<Live>, gate: Option<Arc<Gate>>) {
    if live.multiplexed && gate.is_none() {
        return;
    }
    let (meter, multiplexed) = (live.meter.clone(), live.multiplexed);
    hyper::ext::on_informational(request, move |response| {
        if response.status() == StatusCode::CONTINUE {
            if let Some(gate) = &gate {
                gate.open();
            }
            return;
        }
        if multiplexed {
            return;
        }
        let mut bytes = format!("HTTP/1.1 {}\r\n", response.status()).into_bytes();
        for (name, value) in response.headers() {
            bytes.extend_from_slice(name.as_str().as_bytes());
            bytes.extend_from_slice(b": ");
            bytes.extend_from_slice(value.as_bytes());
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"\r\n");
        meter.interject(&bytes);
    });
}

/// What a response's head tells: status, outcome, the upstream's reports.
fn on_head(live: &Arc<Live>, status: StatusCode, headers: &HeaderMap) {
    live.observe(|observer, ledger| observer.response(headers, false, ledger));
    live.on_response_head(status.as_u16(), headers);
    let is_grpc = headers.get(header::CONTENT_TYPE).is_some_and(|v| v.as_bytes().starts_with(b"application/grpc"));
    let still_asking = live.request_end().is_none();
    live.with(|ledger| {
        ledger.status = status.as_u16();
        ledger.outcome = match status.as_u16() {
            500.. => Outcome::ServerError,
            400..500 => Outcome::ClientError,
            _ => Outcome::Ok,
        };
        if is_grpc {
            ledger.outcome = grpc_outcome(headers).unwrap_or(ledger.outcome);
            if still_asking {
                ledger.kind = ExchangeKind::Stream;
            }
        }
    });
}
