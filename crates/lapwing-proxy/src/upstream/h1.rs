//! One exchange over an HTTP/1.1 connection: send, drive, time out, and try once more if nothing was written.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::{Request, Response, Version};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use tokio::task::coop::unconstrained;

use super::context::{Undone, UpstreamContext};
use super::pool::{BoxedBody, H1Connection, PooledConnection};
use crate::body::{RequestBody, RequestBodyError, slow_upload};
use crate::error::Error;
use crate::in_flight::RequestAccount;
use lapwing_ledger::{ObservedEvent, Stage, Stamp};
use lapwing_metrics::Counter;

/// Carries `request` to the upstream and waits for the response's head. If there is no connection for it, it comes back with the error.
pub(crate) async fn carry_request(
    upstream: &UpstreamContext,
    mut request: Box<Request<RequestBody>>,
    account: &RequestAccount,
) -> Result<(Response<Incoming>, Box<PooledConnection>), Undone> {
    let mut attempt = account.stamps.dispatch();
    let (mut pooled, is_ended) = upstream.pool.take(attempt).await;
    if is_ended {
        upstream.on_goodbye();
    }
    loop {
        let reused = pooled.is_some();
        let mut connection = match pooled.take() {
            Some(connection) => connection,
            // rare and large: boxed, so that other requests do not carry its size
            None => match Box::pin(connect(upstream, account)).await {
                Ok(connection) => connection,
                Err(error) => return Err(Undone { error, request: Some(request) }),
            },
        };
        let answer = connection.h1.send(request.map(Box::new));
        let failed = match answered(&mut connection.h1, answer, account, attempt).await {
            Ok(response) => return Ok((response, connection)),
            Err(failed) => failed,
        };
        if reused {
            upstream.pool.on_lost(&connection, attempt);
            upstream.on_goodbye();
        }
        match failed {
            (_, Some(unwritten)) if reused => {
                // the upstream has just closed the idle connection: nothing was written, so nothing can happen twice
                account.context.counters.bump(Counter::UpstreamRetried);
                account.write_ledger(|ledger| ledger.observe(Stage::Unattributed, ObservedEvent::Attempt, attempt, Stamp::now()));
                attempt = Stamp::now();
                request = unwritten;
            }
            (error, _) => return Err(upstream.explain(error, account, Version::HTTP_11, &connection.h1.meter).into()),
        }
    }
}

async fn connect(upstream: &UpstreamContext, account: &RequestAccount) -> Result<Box<PooledConnection>, Error> {
    let socket = super::context::connect(upstream, account, Version::HTTP_11).await?;
    let connection = H1Connection::open(socket, &account.context.config).await?;
    Ok(PooledConnection::new(connection, upstream.pool.clone()))
}

type Failed = (Error, Option<Box<Request<RequestBody>>>);

/// Drives the connection until it has the `answer` to the request that was `sent`, or there will be none.
async fn answered(
    connection: &mut H1Connection,
    answer: impl Future<Output = Result<Response<Incoming>, TrySendError<Request<BoxedBody>>>>,
    account: &RequestAccount,
    sent: Stamp,
) -> Result<Response<Incoming>, Failed> {
    // the runtime's channel gives nothing to a task that has used its turn up, and would tell the waker below, which wakes nobody
    let mut answer = pin!(unconstrained(answer));
    poll_fn(|cx| {
        connection.drive(cx);
        account.read_passed(); // the pieces that have just been written
        // only driving the connection can have answered
        if let Poll::Ready(result) = answer.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return Poll::Ready(result.map_err(|mut failed| {
                let unwritten = failed.take_message().map(|request| Box::new(request.map(|body| *body)));
                (explain(failed.into_error()), unwritten)
            }));
        }
        let taken = connection.meter.last_write().unwrap_or(sent); // the upstream may be slower than the client
        let (since, limit) = response_deadline(account, sent.max(taken));
        if connection.deadline.has_expired(cx, since, limit) {
            return Poll::Ready(Err((expired(account, limit), None)));
        }
        slow_upload(account, cx, &mut connection.deadline).map_or(Poll::Pending, |error| Poll::Ready(Err((error, None))))
    })
    .await
}

/// Returns since when, and for how long, the response's head may be awaited: for `header_timeout` since the request's end or,
/// while the request still comes, since bytes of it last moved: for `client_stall_timeout` while the client is waited for, else for
/// `idle_timeout`. `moved` is when the upstream last took
/// bytes, or was asked.
pub(crate) fn response_deadline(account: &RequestAccount, moved: Stamp) -> (Stamp, Duration) {
    let config = &account.context.config;
    match account.stamps.request_end() {
        Some(end) => (end.max(moved), config.header_limit()),
        None if account.upload.awaits_client() => (account.stamps.request_last().max(moved), config.client_stall_timeout.get()),
        None => (account.stamps.request_last().max(moved), config.idle_limit()),
    }
}

/// Maps an expired [`response_deadline`] to the error that names who stalled.
pub(crate) fn expired(account: &RequestAccount, limit: Duration) -> Error {
    match account.stamps.request_end() {
        Some(_) => Error::HeaderTimeout { limit },
        None if account.upload.awaits_client() => Error::RequestStalled { limit },
        None => Error::RequestUnread { limit },
    }
}

/// Maps a failure of the upstream's connection to an error: the request's body may be what failed.
pub(crate) fn explain(error: hyper::Error) -> Error {
    let mut cause = std::error::Error::source(&error);
    while let Some(source) = cause {
        if let Some(body) = source.downcast_ref::<RequestBodyError>() {
            return Error::from(body);
        }
        cause = source.source();
    }
    if error.is_parse() { Error::Garbage(error) } else { Error::Reset(error) }
}
