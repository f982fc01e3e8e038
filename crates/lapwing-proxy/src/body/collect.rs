//! Reads a request body before the upstream is asked, up to a bound, and puts it or another in its place back.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use bytes::Bytes;
use http::HeaderValue;
use http::header::CONTENT_LENGTH;
use http_body::{Body, Frame};

use super::tracked_request::TrackedRequest;
use super::upload_watch::slow_upload;
use crate::connection::LazyDeadline;
use crate::error::Error;
use lapwing_ledger::{ObservedEvent, Stage, Stamp};

/// A request whose body was read ahead, to its end or until it exceeded the bound.
#[derive(Debug)]
pub(crate) struct CollectedRequest {
    tracked: TrackedRequest,
    frames: VecDeque<Frame<Bytes>>,
    is_sized: bool,
}

/// Reads the body of `tracked` to its end, or until more than `limit` bytes were read. The time counts as ingress.
///
/// # Errors
///
/// If the body breaks off, or stands still for longer than `client_stall_timeout`, or comes too slowly.
pub(crate) async fn collect(mut tracked: TrackedRequest, limit: usize) -> Result<CollectedRequest, Error> {
    let in_flight = tracked.in_flight.clone();
    let began = Stamp::now();
    let body = tracked.request.body_mut();
    let is_sized = body.size_hint().exact().is_some();
    let timeout = in_flight.account.context.config.client_stall_timeout.get();
    let (mut frames, mut length, mut deadline) = (VecDeque::new(), 0, LazyDeadline::default());
    while length <= limit {
        let next = poll_fn(|cx| match Pin::new(&mut *body).poll_frame(cx) {
            Poll::Ready(next) => Poll::Ready(next.transpose().map_err(|error| Error::from(&error))),
            Poll::Pending if deadline.has_expired(cx, in_flight.account.stamps.request_last(), timeout) => {
                Poll::Ready(Err(Error::RequestStalled { limit: timeout }))
            }
            Poll::Pending => {
                slow_upload(&in_flight.account, cx, &mut deadline).map_or(Poll::Pending, |error| Poll::Ready(Err(error)))
            }
        });
        let Some(frame) = next.await? else { break };
        length += frame.data_ref().map_or(0, Bytes::len);
        frames.push_back(frame);
    }
    let end = in_flight.account.stamps.request_end().unwrap_or_else(|| in_flight.account.stamps.request_last()).max(began);
    in_flight.write_ledger(|ledger| ledger.observe(Stage::Ingress, ObservedEvent::Request, began, end));
    Ok(CollectedRequest { tracked, frames, is_sized })
}

impl CollectedRequest {
    /// The body in one piece; `None` if it was not read to its end, or has trailers.
    pub(crate) fn body(&self) -> Option<Bytes> {
        if !self.tracked.request.body().is_end_stream() {
            return None;
        }
        let pieces: Option<Vec<&Bytes>> = self.frames.iter().map(Frame::data_ref).collect();
        Some(match pieces?.as_slice() {
            [one] => Bytes::clone(one),
            many => many.iter().flat_map(|piece| piece.iter().copied()).collect(),
        })
    }

    /// Sends `body` in place of the one that was read.
    pub(crate) fn replace_body(&mut self, body: Bytes) {
        let headers = self.tracked.request.headers_mut();
        if headers.contains_key(CONTENT_LENGTH) {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        }
        self.frames = VecDeque::from([Frame::data(body)]);
    }

    /// The request, with the frames that were read before those that are still to be read.
    pub(crate) fn into_request(mut self) -> TrackedRequest {
        self.tracked.request.body_mut().put_back(self.frames, self.is_sized);
        self.tracked
    }
}
