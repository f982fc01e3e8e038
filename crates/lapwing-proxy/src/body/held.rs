//! Holds a request until its body has come whole, before the upstream is asked; and puts the body, or another in its place, back. Past a
//! bound ([`crate::hold`]) the request goes on as it came: first what was collected, then the rest as it comes.
//!
//! The time in which the body comes is ingress. What follows is queue, if somebody decides meanwhile where the request goes.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http::header::{CONTENT_LENGTH, UPGRADE};
use http::{HeaderValue, Method, Request};
use http_body::{Body, Frame};
use smallvec::SmallVec;

use super::request::RequestBody;
use super::tracked_request::TrackedRequest;
use super::upload_watch::slow_upload;
use crate::connection::LazyDeadline;
use crate::error::Error;
use crate::hold::{HeldPieces, HoldPassed};
use crate::in_flight::InFlight;
use lapwing_ledger::{ObservedEvent, Stage, Stamp};
use lapwing_metrics::Counter;

/// A request that was held until its body had come whole, or a bound was passed.
#[derive(Debug)]
pub(crate) struct HeldRequest {
    tracked: TrackedRequest,
    frames: VecDeque<Frame<Bytes>>,
    is_sized: bool,
    /// Since when only the holder keeps it from going on; `None` if a bound was passed.
    whole: Option<Stamp>,
}

/// Why `tracked` cannot be held, if it is known before anything of its body is read.
pub(crate) fn passes_unheld(tracked: &TrackedRequest) -> Option<HoldPassed> {
    let TrackedRequest { request, in_flight } = tracked;
    let max_body = in_flight.account.context.hold.max_body.get();
    if request.method() == Method::CONNECT || request.headers().contains_key(UPGRADE) {
        Some(HoldPassed::Upgrade)
    } else if in_flight.client.awaits_continue() {
        Some(HoldPassed::Expect)
    } else if request.body().size_hint().lower() > max_body {
        Some(HoldPassed::Body)
    } else {
        None
    }
}

/// Holds `tracked`, of which [`passes_unheld`] says nothing else, until its body has come whole, or a bound was passed. Both are counted.
///
/// # Errors
///
/// If the body breaks off, or stands still for longer than `client_stall_timeout`, or comes too slowly.
pub(crate) async fn hold(mut tracked: TrackedRequest) -> Result<HeldRequest, Error> {
    let in_flight = tracked.in_flight.clone();
    let (account, context) = (&in_flight.account, &in_flight.account.context);
    let (limits, counters) = (&context.hold, &context.counters);
    let began = Stamp::now();
    let body = tracked.request.body_mut();
    let is_sized = body.size_hint().exact().is_some();
    let mut pieces = HeldPieces::new(counters.clone(), limits.budget.get());
    let (mut rest, mut deadline, mut passed) = (VecDeque::new(), LazyDeadline::default(), None);
    while !body.is_end_stream() && passed.is_none() {
        match poll_fn(|cx| poll_held(body, began, &in_flight, &mut deadline, cx)).await? {
            Next::End => break,
            Next::TimeIsUp => passed = Some(HoldPassed::Time),
            Next::Frame(frame) => {
                let piece = frame.data_ref().filter(|piece| piece.has_remaining());
                let length = pieces.length().saturating_add(piece.map_or(0, Bytes::len));
                passed = match piece {
                    Some(_) if length as u64 > limits.max_body.get() => Some(HoldPassed::Body),
                    Some(piece) if !pieces.push(piece, body.size_hint().exact()) => Some(HoldPassed::Budget),
                    _ => None,
                };
                // a piece for which there was no room goes on as any other; trailers end the body
                if passed.is_some() || frame.is_trailers() {
                    rest.push_back(frame);
                }
                account.read_passed();
            }
        }
    }
    counters.bump(passed.map_or(Counter::HeldRequests, HoldPassed::counter));
    let now = Stamp::now();
    let came = account.stamps.request_end().unwrap_or_else(|| account.stamps.request_last()).max(began);
    let whole = passed.is_none().then_some(came);
    // while it waits for its client, nobody else keeps it
    in_flight.write_ledger(|ledger| ledger.observe(Stage::Ingress, ObservedEvent::Request, began, whole.unwrap_or(now)));
    let mut frames = pieces.into_frames();
    frames.append(&mut rest);
    Ok(HeldRequest { tracked, frames, is_sized, whole })
}

/// What comes next of a held body.
enum Next {
    Frame(Frame<Bytes>),
    End,
    /// It did not come within `hold.max_time`.
    TimeIsUp,
}

/// Polls the body of a request that has been held since `began`.
fn poll_held(
    body: &mut RequestBody,
    began: Stamp,
    in_flight: &Arc<InFlight>,
    deadline: &mut LazyDeadline,
    cx: &mut Context<'_>,
) -> Poll<Result<Next, Error>> {
    let (account, context) = (&in_flight.account, &in_flight.account.context);
    let stall = context.config.client_stall_timeout.get();
    match Pin::new(body).poll_frame(cx) {
        Poll::Ready(Some(Ok(frame))) => Poll::Ready(Ok(Next::Frame(frame))),
        Poll::Ready(Some(Err(error))) => Poll::Ready(Err(Error::from(&error))),
        Poll::Ready(None) => Poll::Ready(Ok(Next::End)),
        Poll::Pending if deadline.has_expired(cx, began, context.hold.max_time.get()) => Poll::Ready(Ok(Next::TimeIsUp)),
        Poll::Pending if deadline.has_expired(cx, account.stamps.request_last(), stall) => {
            Poll::Ready(Err(Error::RequestStalled { limit: stall }))
        }
        Poll::Pending => slow_upload(account, cx, deadline).map_or(Poll::Pending, |error| Poll::Ready(Err(error))),
    }
}

impl HeldRequest {
    /// The request without what was collected of its body.
    pub(crate) const fn tracked(&mut self) -> &mut TrackedRequest {
        &mut self.tracked
    }

    /// The request's head.
    pub(crate) const fn head(&self) -> &Request<RequestBody> {
        &self.tracked.request
    }

    /// Whether the body has come whole.
    pub(crate) const fn is_whole(&self) -> bool {
        self.whole.is_some()
    }

    /// What has come of the body, piece by piece.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        self.frames.iter().filter_map(Frame::data_ref).map(AsRef::as_ref)
    }

    /// The pieces of the body; `None` if it has not come whole, or has trailers.
    pub(crate) fn whole_pieces(&self) -> Option<SmallVec<[Bytes; 4]>> {
        self.whole?;
        self.frames.iter().map(|frame| frame.data_ref().cloned()).collect()
    }

    /// The body in one piece; `None` if it has not come whole, or has trailers.
    pub(crate) fn body(&self) -> Option<Bytes> {
        self.whole?;
        let pieces: Option<Vec<&Bytes>> = self.frames.iter().map(Frame::data_ref).collect();
        Some(match pieces?.as_slice() {
            [one] => Bytes::clone(one),
            many => many.iter().flat_map(|piece| piece.iter().copied()).collect(),
        })
    }

    /// Sends `body` in place of the one that came.
    pub(crate) fn replace_body(&mut self, body: Bytes) {
        let headers = self.tracked.request.headers_mut();
        if headers.contains_key(CONTENT_LENGTH) {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        }
        self.frames = VecDeque::from([Frame::data(body)]);
    }

    /// Notes that a request that had come whole was held for this until now.
    pub(crate) fn note_queue(&self, event: ObservedEvent) {
        if let Some(whole) = self.whole {
            self.tracked.in_flight.write_ledger(|ledger| ledger.observe(Stage::Queue, event, whole, Stamp::now()));
        }
    }

    /// The request, with what was collected before what is still to come.
    pub(crate) fn into_request(mut self) -> TrackedRequest {
        self.tracked.request.body_mut().put_back(self.frames, self.is_sized);
        self.tracked
    }
}
