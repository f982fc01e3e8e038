//! A request over HTTP/2 (h2c or TLS) to the upstream, on a connection with room for it (`h2_pool`). A stream has no task of its own:
//! whoever waits for its answer sends its request's body too.
//!
//! A request that the upstream has not processed is sent once more, as far as all of it is still here: after a goodbye (GOAWAY) whose last
//! stream is before it, or REFUSED_STREAM (RFC 9113, 6.8 and 8.7).

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{Reason, RecvStream};
use http::{HeaderMap, Request, Response, Version, header};
use http_body::Body;

use super::context::{Undone, UpstreamContext};
use super::h1::{expired, response_deadline};
use super::h2_connection::Sender;
use super::h2_pool::H2Client;
use super::h2_upload::{H2Upload, SettingsHeard, UploadError};
use super::head_copy::HeadCopy;
use crate::body::{Beside, GoesOn, H2Source, RequestBody, Rest, slow_upload};
use crate::connection::{Greeting, LazyDeadline, StreamPlace, UploadWait};
use crate::error::Error;
use crate::in_flight::RequestAccount;
use lapwing_ledger::{ObservedEvent, Stage, Stamp};
use lapwing_metrics::Counter;
use lapwing_net::Tasks;

/// What opens one stream.
struct Opening {
    sender: Sender,
    place: StreamPlace,
    asked: Stamp,
}

/// A request's body, as it is sent.
enum Sending {
    Nothing,
    Body(RequestBody),
    /// All of it, sent once before.
    Again(Bytes),
}

impl H2Client {
    /// Carries `request` to the upstream and waits for the response's head. If there is no connection for it, it comes back with the
    /// error.
    pub(crate) async fn carry_request(
        &self,
        upstream: &UpstreamContext,
        request: Box<Request<RequestBody>>,
        account: &RequestAccount,
    ) -> Result<Response<H2Source>, Undone> {
        let mut attempt = account.stamps.dispatch();
        let mut deadline = self.deadline();
        let mut opening = match self.open(upstream, account, &mut attempt, &mut deadline).await {
            Ok(opening) => opening,
            Err(error) => return Err(Undone { error, request: Some(request) }),
        };
        let (head, body) = request.into_parts();
        let mut head = Request::from_parts(head, ());
        let is_empty = body.is_end_stream();
        let mut body = if is_empty { Sending::Nothing } else { Sending::Body(body) };
        let mut again = Some(HeadCopy::of(&head));
        loop {
            let Opening { sender, place, asked } = opening;
            let Sender { streams, meter, state } = sender;
            let explain = |error| upstream.explain(error, account, Version::HTTP_2, &meter);
            let (answer, upload) =
                send(streams, head, body, || (state.settings(), place.upload())).map_err(|error| explain(Error::H2(error)))?;
            let mut awaited = Awaited { answer, upload, whole: None, asked, deadline };
            let answered = poll_fn(|cx| awaited.poll_head(cx, account)).await;
            let Awaited { upload, whole, deadline: kept, .. } = awaited;
            deadline = kept;
            let error = match answered {
                Ok(response) => {
                    self.keep_deadline(deadline);
                    let length = content_length(response.headers());
                    let rest = upload.map(|upload| RestOfRequest::begin(upload, &upstream.tasks));
                    return Ok(response.map(|stream| H2Source::new(stream, (meter, place), length, rest)));
                }
                Err(error) => error,
            };
            let unsent = match (upload, whole) {
                (Some(upload), _) => upload.unbegun().map(Sending::Body),
                (None, Some(whole)) => Some(Sending::Again(whole)),
                (None, None) => is_empty.then_some(Sending::Nothing),
            };
            let again = again.take().filter(|_| is_unprocessed(&error)).and_then(HeadCopy::into_head);
            (head, body) = match (again, unsent) {
                (Some(head), Some(body)) => (head, body),
                _ => return Err(explain(error).into()),
            };
            note_repeat(account, &mut attempt);
            drop(place);
            opening = self.open(upstream, account, &mut attempt, &mut deadline).await?;
        }
    }

    /// Waits for a connection with room for one more stream.
    async fn open(
        &self,
        upstream: &UpstreamContext,
        account: &RequestAccount,
        attempt: &mut Stamp,
        deadline: &mut LazyDeadline,
    ) -> Result<Opening, Error> {
        let mut may_retry = true;
        let (connection, place) = self.place(&upstream.h2_pool);
        loop {
            let (mut sender, asked, reused) = match connection.known_sender() {
                Some(sender) => (sender, *attempt, true),
                None => {
                    let (sender, reused) = connection.sender(upstream, account).await?;
                    (sender, Stamp::now(), reused)
                }
            };
            // room for one more stream
            let opened = poll_fn(|cx| match sender.streams.poll_ready(cx) {
                Poll::Ready(opened) => Poll::Ready(Ok(opened)),
                Poll::Pending => overdue(cx, account, asked, deadline).map(Err),
            });
            match opened.await? {
                Ok(()) => return Ok(Opening { sender, place, asked }),
                Err(_) if reused && may_retry => {
                    // nothing was written: the connection has ended
                    may_retry = false;
                    note_repeat(account, attempt);
                    // not taken out: another request may have put a new one there
                    sender.end();
                }
                Err(error) => return Err(upstream.explain(Error::H2(error), account, Version::HTTP_2, &sender.meter)),
            }
        }
    }

    /// What the upstream begins with when it is spoken to in HTTP/2; [`Greeting::Nothing`] if it ends the connection without a word.
    pub(crate) async fn greeting(&self, upstream: &UpstreamContext, account: &RequestAccount) -> Result<Greeting, Error> {
        let (connection, _place) = self.place(&upstream.h2_pool);
        connection.greeting(upstream, account, |cx, asked, deadline| overdue(cx, account, asked, deadline)).await
    }
}

/// Opens a stream for a request and its body. `upload` is asked for if there is a body to send bit by bit.
fn send(
    mut streams: SendRequest<Bytes>,
    head: Request<()>,
    body: Sending,
    upload: impl FnOnce() -> (Option<SettingsHeard>, UploadWait),
) -> Result<(ResponseFuture, Option<H2Upload>), h2::Error> {
    let (answer, mut stream) = streams.send_request(head, matches!(body, Sending::Nothing))?;
    let upload = match body {
        Sending::Nothing => None,
        Sending::Body(body) => {
            let (settings, wait) = upload();
            Some(H2Upload::new(body, stream, settings, wait))
        }
        Sending::Again(whole) => {
            stream.send_data(whole, true)?;
            None
        }
    };
    Ok((answer, upload))
}

/// Whether the upstream says with `error` that it has not processed the request: its stream is after the last of a goodbye (h2 gives that
/// error to no other), or it was refused.
fn is_unprocessed(error: &Error) -> bool {
    let Error::H2(error) = error else { return false };
    error.is_remote() && (error.is_go_away() || (error.is_reset() && error.reason() == Some(Reason::REFUSED_STREAM)))
}

/// A request is sent again.
fn note_repeat(account: &RequestAccount, attempt: &mut Stamp) {
    account.context.counters.bump(Counter::UpstreamRetried);
    account.write_ledger(|ledger| ledger.observe(Stage::Unattributed, ObservedEvent::Attempt, *attempt, Stamp::now()));
    *attempt = Stamp::now();
}

/// A request that was sent, up to its body, and whose answer is awaited.
struct Awaited {
    answer: ResponseFuture,
    upload: Option<H2Upload>,
    /// The body, if one piece was all of it, and was sent.
    whole: Option<Bytes>,
    asked: Stamp,
    deadline: LazyDeadline,
}

impl Awaited {
    /// Sends the body and waits for the response's head, until [`response_deadline`] expires.
    fn poll_head(&mut self, cx: &mut Context<'_>, account: &RequestAccount) -> Poll<Result<Response<RecvStream>, Error>> {
        // first, so that head and body go out in one write
        if let Some(upload) = &mut self.upload
            && let Poll::Ready(sent) = upload.poll_sent(cx)
        {
            if let Err(UploadError::Body(error)) = sent {
                return Poll::Ready(Err(Error::from(&error)));
            }
            self.whole = upload.take_whole();
            // of which nothing was taken, it may go over another stream
            if sent.is_ok() || upload.has_begun() {
                self.upload = None;
            }
        }
        if let Poll::Ready(answered) = Pin::new(&mut self.answer).poll(cx) {
            return Poll::Ready(answered.map_err(Error::H2));
        }
        overdue(cx, account, self.asked, &mut self.deadline).map(Err)
    }
}

/// Ready once the answer to a request that was sent at `asked` is overdue, or its body comes too slowly.
fn overdue(cx: &mut Context<'_>, account: &RequestAccount, asked: Stamp, deadline: &mut LazyDeadline) -> Poll<Error> {
    let (since, limit) = response_deadline(account, asked);
    if deadline.has_expired(cx, since, limit) {
        return Poll::Ready(expired(account, limit));
    }
    slow_upload(account, cx, deadline).map_or(Poll::Pending, Poll::Ready)
}

/// The length that an answer's head announces; `None` if it announces none, or several.
fn content_length(headers: &HeaderMap) -> Option<u64> {
    let mut fields = headers.get_all(header::CONTENT_LENGTH).iter();
    let first = fields.next()?;
    if fields.any(|field| field != first) {
        return None;
    }
    first.to_str().ok()?.parse().ok()
}

/// What is left of a request that was answered before its end.
#[derive(Debug)]
struct RestOfRequest {
    upload: Beside<H2Upload>,
    tasks: Tasks,
}

impl RestOfRequest {
    fn begin(upload: H2Upload, tasks: &Tasks) -> Box<dyn Rest> {
        let this = Self { upload: Beside::new(Some(upload), tasks.clone()), tasks: tasks.clone() };
        this.upload.go_on(); // who asked until now may not ask again
        Box::new(this)
    }
}

impl GoesOn for H2Upload {
    fn go_on(&mut self, cx: &mut Context<'_>) -> bool {
        self.poll_sent(cx).is_ready()
    }
}

impl Rest for RestOfRequest {
    fn is_sent(&mut self, cx: &mut Context<'_>) -> bool {
        self.upload.ask(cx);
        self.upload.go_on()
    }

    fn leave(&self) {
        self.upload.leave();
    }

    fn go_on(self: Box<Self>) {
        if let Some(mut upload) = self.upload.take() {
            self.tasks.spawn(async move {
                let _ = poll_fn(|cx| upload.poll_sent(cx).map(drop)).await;
            });
        }
    }
}
