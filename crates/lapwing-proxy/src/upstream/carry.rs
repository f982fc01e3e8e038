//! Carries one request to one upstream, over HTTP/1.1 or HTTP/2, whichever that speaks; or elsewhere, if it takes no connection.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use http::{HeaderValue, Method, Request, Response, StatusCode, Version, header};
use http_body::Body;
use hyper::upgrade::OnUpgrade;

use super::client_upstreams::{ClientUpstream, Elsewhere};
use super::context::{Undone, UpstreamContext};
use super::h2_pool::H2Client;
use super::trust::Framing;
use super::{convert, h1, interim, upgrade};
use crate::body::{ContinueGate, Drive, KeptRequest, RequestBody, ResponseBody, TrackedRequest};
use crate::config::UpstreamProtocol;
use crate::connection::Greeting;
use crate::error::Error;
use crate::error::response::keep_error_field_apart;
use crate::head::normalise_response;
use crate::health::Route;
use crate::in_flight::{InFlight, RequestAccount};
use lapwing_ledger::Stamp;
use lapwing_protocol::is_grpc;

/// The answer, once it comes.
pub(crate) type Answered = Pin<Box<dyn Future<Output = Result<Response<ResponseBody>, Error>> + Send>>;

/// Carries a request to `upstream`, or if that takes no connection, `elsewhere`.
pub(crate) fn carry(
    ClientUpstream { context, h2 }: &ClientUpstream,
    elsewhere: Option<Box<Elsewhere>>,
    tracked: TrackedRequest,
) -> Answered {
    let context = context.clone();
    let (protocol, spoken) = (context.protocol(&tracked.in_flight.account), &context.health.spoken);
    match spoken.route(protocol, tracked.request.version()) {
        Route::Http1 => {
            let is_kept = protocol == UpstreamProtocol::Auto && spoken.is_http1_unproven();
            // most requests have no use for it
            let h2 = (is_kept || tracked.in_flight.is_multiplexed).then(|| h2.clone());
            boxed(|| over_h1(context, h2, is_kept, elsewhere, tracked))
        }
        Route::Http2 => boxed(|| over_h2(context, h2.clone(), elsewhere, tracked)),
        Route::Http2IfSpoken => Box::pin(over_either(context, h2.clone(), elsewhere, tracked)),
    }
}

/// Makes a future where it stays: `Box::pin` is given one that was made, and copies all of it, though most of it is empty yet.
#[inline(always)]
fn boxed<F: Future>(make: impl FnOnce() -> F) -> Pin<Box<F>> {
    Box::into_pin(Box::write(Box::new_uninit(), make()))
}

/// Over HTTP/2, once the upstream has said that it speaks it; else over HTTP/1.1.
async fn over_either(
    context: Arc<UpstreamContext>,
    h2: Arc<H2Client>,
    elsewhere: Option<Box<Elsewhere>>,
    tracked: TrackedRequest,
) -> Result<Response<ResponseBody>, Error> {
    let in_flight = tracked.in_flight.clone();
    in_flight.account.stamps.dispatch();
    let greeting = match h2.greeting(&context, &in_flight.account).await {
        Ok(greeting) => greeting,
        Err(error) => {
            let version = tracked.request.version();
            let other = elsewhere.and_then(|elsewhere| elsewhere.after(&error, &in_flight.account, version, |_| true));
            return carry(&other.ok_or(error)?.0, None, tracked).await;
        }
    };
    match greeting {
        Greeting::Http2 => over_h2(context, h2, elsewhere, tracked).await,
        Greeting::Http1 => over_h1(context, Some(h2), false, elsewhere, tracked).await,
        // it may not answer what it cannot read, and speak HTTP/1.1 all the same
        Greeting::Nothing | Greeting::Other => {
            let answered = over_h1(context.clone(), Some(h2), false, None, tracked).await;
            if answered.is_ok() {
                context.health.spoken.on_no_http2(&context.target);
            }
            answered
        }
        Greeting::Tls => {
            let found = context.health.spoken.explain(&context.target, UpstreamProtocol::Auto, Version::HTTP_2, greeting);
            Err(found.unwrap_or(Error::StreamCut))
        }
    }
}

async fn over_h2(
    mut context: Arc<UpstreamContext>,
    mut h2: Arc<H2Client>,
    mut elsewhere: Option<Box<Elsewhere>>,
    tracked: TrackedRequest,
) -> Result<Response<ResponseBody>, Error> {
    let TrackedRequest { mut request, in_flight } = tracked;
    refuse_tunnel(&request)?;
    convert::to_h2(&mut request, &context.target);
    let mut response = loop {
        let Undone { error, request: unwritten } = match h2.carry_request(&context, request, &in_flight.account).await {
            Ok(response) => break response,
            Err(undone) => undone,
        };
        let version = if in_flight.is_multiplexed { Version::HTTP_2 } else { Version::HTTP_11 };
        match another(&mut elsewhere, unwritten, &error, &in_flight.account, version, |_| true) {
            Some((other, Route::Http2, unwritten)) => (context, h2, request) = (other.context, other.h2, unwritten),
            Some((other, _, mut request)) => {
                if !in_flight.is_multiplexed {
                    convert::to_h1(&mut request);
                }
                return carry(&other, None, TrackedRequest { request, in_flight }).await;
            }
            None => return Err(Box::pin(failed(&context, Version::HTTP_2, error, &in_flight.account)).await),
        }
    };
    context.health.spoken.on_http2();
    keep_error_field_apart(response.headers_mut());
    let head = response.body().last_read();
    in_flight.account.begin_window(in_flight.account.stamps.request_end(), head);
    in_flight.account.record_response_head(response.status(), response.headers());
    Ok(response.map(|stream| ResponseBody::stream(stream, head)))
}

/// Over HTTP/1.1. With `is_kept`, the request can go over `h2` if the upstream turns out to speak nothing else.
async fn over_h1(
    mut context: Arc<UpstreamContext>,
    h2: Option<Arc<H2Client>>,
    is_kept: bool,
    mut elsewhere: Option<Box<Elsewhere>>,
    tracked: TrackedRequest,
) -> Result<Response<ResponseBody>, Error> {
    let TrackedRequest { mut request, in_flight } = tracked;
    refuse_tunnel(&request)?;
    if in_flight.is_multiplexed
        && needs_h2(&context, &request, &in_flight.account)
        && let Some(h2) = h2
    {
        return Box::pin(grpc_over_h2(context, h2, elsewhere, TrackedRequest { request, in_flight })).await;
    }
    convert::to_h1(&mut request);
    let kept = h2.filter(|_| is_kept).map(|h2| (h2, Box::new(KeptRequest::of(&mut request))));
    let gate = in_flight.client.awaits_continue().then(ContinueGate::new);
    interim::pass_on(&mut request, &in_flight, gate.clone());
    // hyper offers one for every `Upgrade`; without `Connection: upgrade` it is not forwarded, and the upstream is not asked
    let client = request.extensions_mut().remove::<OnUpgrade>().filter(|_| request.headers().contains_key(header::UPGRADE));
    let is_old = request.version() < Version::HTTP_11;
    // what waits for `100 Continue`, or for another protocol, does so over HTTP/1.1
    let stays = gate.is_some() || client.is_some();
    if let Some(gate) = gate {
        request.body_mut().hold_by(gate);
    }
    let (mut response, mut connection) = loop {
        let Undone { error, request: unwritten } = match h1::carry_request(&context, request, &in_flight.account).await {
            Ok(answered) => break answered,
            Err(undone) => undone,
        };
        let can = |route: Route| route == Route::Http1 || !stays;
        match another(&mut elsewhere, unwritten, &error, &in_flight.account, Version::HTTP_11, can) {
            Some((other, Route::Http1, unwritten)) => (context, request) = (other.context, unwritten),
            Some((other, _, request)) => return carry(&other, None, TrackedRequest { request, in_flight }).await,
            None => return Box::pin(over_h2_after(context, kept, error, in_flight)).await,
        }
    };
    context.health.spoken.on_http1();
    let limit = in_flight.account.context.config.max_header_bytes.get();
    let closes = normalise_response(&mut response, limit, is_old).map_err(Error::RefusedAnswer)?;
    if context.health.on_answer(closes) {
        context.on_goodbye();
    }
    keep_error_field_apart(response.headers_mut());
    let is_early = in_flight.account.stamps.request_end().is_none();
    if is_early && (in_flight.is_multiplexed || closes) {
        // nobody wants the rest of the request: an HTTP/2 client is told so by the end of its stream
        connection.close_at_end();
        if !in_flight.is_multiplexed {
            in_flight.close_client();
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
    }
    connection.framing = if response.body().size_hint().exact().is_some() { Framing::Sized } else { Framing::Open };
    let head = connection.last_read().unwrap_or_else(Stamp::now);
    let sent = in_flight.account.stamps.request_end().and_then(|end| Some(connection.h1.meter.last_write()?.max(end)));
    in_flight.account.begin_window(sent, head);
    in_flight.account.record_response_head(response.status(), response.headers());
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let Some(client) = client else { return Err(Error::SwitchedUnasked) };
        upgrade::splice(&context, client, &mut response, connection, in_flight);
        return Ok(response.map(|body| ResponseBody::upstream(body, None, head)));
    }
    let body = |body| ResponseBody::upstream(body, Some(connection), head);
    Ok(response.map(|incoming| if is_early { body(incoming).go_on_beside(&context.tasks) } else { body(incoming) }))
}

/// Another upstream with its route, and the request for it, if its own took no connection.
fn another(
    elsewhere: &mut Option<Box<Elsewhere>>,
    unwritten: Option<Box<Request<RequestBody>>>,
    error: &Error,
    account: &RequestAccount,
    version: Version,
    can: impl Fn(Route) -> bool,
) -> Option<(ClientUpstream, Route, Box<Request<RequestBody>>)> {
    let (elsewhere, request) = (elsewhere.take()?, unwritten?);
    let (other, route) = elsewhere.after(error, account, version, can)?;
    Some((other, route, request))
}

/// A request failed over HTTP/1.1. It goes over HTTP/2 if the upstream turns out to speak nothing else, and the request was `kept`.
async fn over_h2_after(
    context: Arc<UpstreamContext>,
    kept: Option<(Arc<H2Client>, Box<KeptRequest>)>,
    error: Error,
    in_flight: Arc<InFlight>,
) -> Result<Response<ResponseBody>, Error> {
    let error = failed(&context, Version::HTTP_11, error, &in_flight.account).await;
    let spoken = &context.health.spoken;
    if matches!(error, Error::WrongProtocol(_))
        && spoken.is_http2_only()
        && let Some((h2, kept)) = kept
        && let Some(request) = kept.take()
    {
        return over_h2(context, h2, None, TrackedRequest { request: Box::new(request), in_flight }).await;
    }
    if in_flight.is_multiplexed {
        spoken.doubt_no_http2();
    }
    Err(error)
}

/// A request over `version` failed: if the upstream broke off, finds out whether it has gone, or speaks something else.
async fn failed(context: &UpstreamContext, version: Version, error: Error, account: &RequestAccount) -> Error {
    if !matches!(error, Error::Reset(_) | Error::H2(_)) {
        return error;
    }
    let health = &context.health;
    health.probe_before_answer(&context.target).await;
    if health.is_away() {
        return error;
    }
    let protocol = context.protocol(account);
    health.spoken.ask(&context.target, protocol, version).await.unwrap_or(error)
}

/// Whether a request of HTTP/2 is a gRPC call, which is not translated: a server of HTTP/1.1 cannot answer it, whatever it says.
fn needs_h2(context: &UpstreamContext, request: &Request<RequestBody>, account: &RequestAccount) -> bool {
    let is_learnt = context.protocol(account) == UpstreamProtocol::Auto && context.health.spoken.refuses_http2();
    is_learnt && is_grpc(request.headers())
}

/// A gRPC call to an upstream that has not spoken HTTP/2 so far.
async fn grpc_over_h2(
    context: Arc<UpstreamContext>,
    h2: Arc<H2Client>,
    elsewhere: Option<Box<Elsewhere>>,
    tracked: TrackedRequest,
) -> Result<Response<ResponseBody>, Error> {
    if context.health.spoken.finds_http2(&context.target).await {
        return over_h2(context, h2, elsewhere, tracked).await;
    }
    Err(Error::GrpcOverHttp1 { upstream: context.target.to_string() })
}

fn refuse_tunnel(request: &Request<RequestBody>) -> Result<(), Error> {
    if request.method() == Method::CONNECT {
        return Err(Error::Unsupported("CONNECT asks for a tunnel, which Lapwing is not"));
    }
    Ok(())
}
