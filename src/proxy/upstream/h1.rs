//! One exchange over an HTTP/1.1 link: ask, drive, give up in time, and try once more where nothing was ever written.

use std::future::{Future, poll_fn};
use std::io::ErrorKind;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;

use super::Shared;
use super::link::Link;
use crate::ledger::{ObservedEvent, Stage, Stamp};
use crate::metrics::Counter;
use crate::proxy::body::request::{RequestBody, RequestBodyError};
use crate::proxy::error::Error;
use crate::proxy::exchange::in_flight::Live;

/// Carries `request` to the upstream and waits for the response's head.
pub(crate) async fn exchange(
    shared: &Shared,
    mut request: Request<RequestBody>,
    live: &Arc<Live>,
) -> Result<(Response<Incoming>, Link), Error> {
    let mut attempt = live.dispatch();
    let mut pooled = shared.pool.take(attempt).await;
    loop {
        let reused = pooled.is_some();
        let mut link = match pooled.take() {
            Some(link) => link,
            // rare and large: boxed, so that the usual request does not carry its room
            None => Box::pin(connect(shared, live)).await?,
        };
        match ask(&mut link, request, live, attempt).await {
            Ok(response) => return Ok((response, link)),
            Err((_, Some(unwritten))) if reused => {
                // the upstream closed the idle connection just now: nothing was written, so nothing can happen twice
                live.recorder.counters.bump(Counter::UpstreamRetried);
                live.with(|ledger| ledger.observe(Stage::Unattributed, ObservedEvent::Attempt, attempt, Stamp::now()));
                attempt = Stamp::now();
                request = *unwritten;
            }
            Err((error, _)) => return Err(error),
        }
    }
}

async fn connect(shared: &Shared, live: &Arc<Live>) -> Result<Link, Error> {
    let began = Stamp::now();
    let connected = super::connect(shared, live).await;
    live.with(|ledger| ledger.observe(Stage::Unattributed, ObservedEvent::Connect, began, Stamp::now()));
    let socket = connected?;
    live.recorder.counters.bump(Counter::UpstreamConnected);
    Link::open(socket, &live.recorder.config).await
}

type Failed = (Error, Option<Box<Request<RequestBody>>>);

async fn ask(
    link: &mut Link,
    request: Request<RequestBody>,
    live: &Arc<Live>,
    asked: Stamp,
) -> Result<Response<Incoming>, Failed> {
    let mut answer = pin!(link.ask(request));
    poll_fn(|cx| {
        link.drive(cx);
        live.read(); // what was written just now
        if let Poll::Ready(result) = answer.as_mut().poll(cx) {
            return Poll::Ready(result.map_err(|mut failed| {
                let unwritten = failed.take_message().map(Box::new);
                (explain(failed.into_error()), unwritten)
            }));
        }
        let taken = link.meter.last_write().unwrap_or(asked); // the upstream may be the slower
        let (since, limit) = patience(live, asked.max(taken));
        if link.watch.expired(cx, since, limit) { Poll::Ready(Err((overdue(live, limit), None))) } else { Poll::Pending }
    })
    .await
}

/// How long the answer may take from when: to a whole request `header_timeout`, while it still comes `idle_timeout` from when
/// it last moved. `moved` is when the upstream last took something, or was asked.
pub(super) fn patience(live: &Live, moved: Stamp) -> (Stamp, Duration) {
    let config = &live.recorder.config;
    match live.request_end() {
        Some(end) => (end.max(moved), config.header_timeout.get()),
        None => (live.request_last().max(moved), config.idle_timeout.get()),
    }
}

/// Whose fault it is that [`patience`] is at its end.
pub(super) fn overdue(live: &Live, limit: Duration) -> Error {
    match live.request_end() {
        Some(_) => Error::HeaderTimeout { limit },
        None if live.awaits_client.load(Relaxed) => Error::RequestStalled { limit },
        None => Error::RequestUnread { limit },
    }
}

/// What a failure of the upstream's connection means: it may be the request's body that failed.
pub(crate) fn explain(error: hyper::Error) -> Error {
    let mut cause = std::error::Error::source(&error);
    while let Some(source) = cause {
        if let Some(body) = source.downcast_ref::<RequestBodyError>() {
            return explain_body(body);
        }
        cause = source.source();
    }
    if error.is_parse() { Error::Garbage(error) } else { Error::Reset(error) }
}

/// What it means that a request's body failed.
pub(crate) fn explain_body(error: &RequestBodyError) -> Error {
    match error {
        RequestBodyError::TooLarge(limit) => Error::BodyTooLarge { limit: *limit },
        RequestBodyError::Client(error) if is_malformed(error) => Error::RequestBody(words(error)),
        RequestBodyError::Client(error) => Error::RequestCut(words(error)),
    }
}

/// Whether the client's bytes were wrong, rather than missing.
fn is_malformed(error: &hyper::Error) -> bool {
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<std::io::Error>());
    cause.is_some_and(|cause| matches!(cause.kind(), ErrorKind::InvalidData | ErrorKind::InvalidInput))
}

/// hyper's words leave out the cause.
fn words(error: &hyper::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}
