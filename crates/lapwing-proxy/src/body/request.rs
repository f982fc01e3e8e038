//! The request body on its way to the upstream: passed on frame by frame, counted and stamped, never copied.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use parking_lot::Mutex;

use super::capture::{AttachedCaptures, BodyCapture, CaptureBudget, capture};
use super::continue_gate::ContinueGate;
use super::drain::drain;
use super::split_write::FirstPiece;
use super::upload_watch::UploadWatch;
use crate::connection::LazyDeadline;
use crate::error::Error;
use crate::in_flight::InFlight;
use lapwing_ledger::Stamp;
use lapwing_net::error_text;

/// How many bytes of a body that returns are kept.
const MAX_KEPT_BYTES: usize = 64 * 1024;

/// Why a request body broke off.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestBodyError {
    /// The client's connection failed.
    #[error("{0}")]
    Client(hyper::Error),
    /// The client reset its HTTP/2 stream before the end of the body.
    #[error("the stream was reset before its end")]
    StreamCut,
    /// More bytes than `max_request_bytes`.
    #[error("larger than max_request_bytes = {0}")]
    TooLarge(u64),
}

impl From<&RequestBodyError> for Error {
    fn from(error: &RequestBodyError) -> Self {
        match error {
            RequestBodyError::TooLarge(limit) => Self::BodyTooLarge { limit: *limit },
            RequestBodyError::StreamCut => Self::RequestCut(error.to_string()),
            RequestBodyError::Client(error) if is_malformed(error) => Self::RequestBody(reason(error)),
            RequestBodyError::Client(error) => Self::RequestCut(reason(error)),
        }
    }
}

/// Returns whether the client's bytes were wrong, rather than missing.
fn is_malformed(error: &hyper::Error) -> bool {
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<std::io::Error>());
    cause.is_some_and(|cause| matches!(cause.kind(), ErrorKind::InvalidData | ErrorKind::InvalidInput))
}

/// The cause, which hyper's own message leaves out. It is cut, because a client may end HTTP/2 with a text of its own.
fn reason(error: &hyper::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), error_text)
}

/// A request body in flight.
#[derive(Debug)]
pub(crate) struct RequestBody {
    inner: Option<Incoming>,
    in_flight: Arc<InFlight>,
    gate: Option<(Arc<ContinueGate>, LazyDeadline)>,
    /// Bytes that the client may still send.
    left: u64,
    /// Frames that pass before anything more is read.
    ahead: Option<Box<Ahead>>,
    captures: AttachedCaptures,
    upload: UploadWatch,
    first: FirstPiece,
    /// Where it returns when it is dropped.
    returned: Option<Box<ReturnedBody>>,
}

#[derive(Debug)]
struct Ahead {
    frames: VecDeque<Frame<Bytes>>,
    /// Whether the body's length may be given when all of it has been read: if the client gave it too.
    is_sized: bool,
    /// How many captures were attached before: they have a copy of these frames, or of those that these replace.
    captured: usize,
}

impl RequestBody {
    /// Wraps the body that the client sends.
    pub(crate) fn new(inner: Incoming, in_flight: Arc<InFlight>) -> Self {
        let left = in_flight.account.context.config.max_request_bytes.on().map_or(u64::MAX, |size| size.get());
        // the ledger knows the end of a request without a body
        let inner = (!inner.is_end_stream()).then_some(inner);
        let upload = UploadWatch::new(in_flight.account.context.config.client_min_rate);
        if let Some(inner) = inner.as_ref().filter(|_| !in_flight.is_multiplexed) {
            in_flight.meter.on_body_left(inner.size_hint().exact());
        }
        let first = if in_flight.is_multiplexed { FirstPiece::Read } else { FirstPiece::Unread };
        Self {
            inner,
            in_flight,
            gate: None,
            left,
            ahead: None,
            captures: AttachedCaptures::default(),
            upload,
            first,
            returned: None,
        }
    }

    /// Has it return, as it is now, when it is dropped.
    pub(crate) fn return_to(&mut self, place: ReturnedBody) {
        self.returned = Some(Box::new(place));
    }

    /// Returns to its place as it was, with what has passed before the rest.
    fn return_at(&mut self, mut returned: ReturnedBody) {
        let ahead = self.ahead.take();
        let is_sized = ahead.as_ref().is_none_or(|ahead| ahead.is_sized);
        let mut frames = std::mem::take(&mut returned.passed);
        frames.extend(ahead.into_iter().flat_map(|ahead| ahead.frames));
        let mut body = Self {
            inner: self.inner.take(),
            in_flight: self.in_flight.clone(),
            gate: None,
            left: self.left,
            ahead: None,
            captures: std::mem::take(&mut self.captures),
            upload: std::mem::replace(&mut self.upload, UploadWatch::Off),
            first: self.first,
            returned: None,
        };
        body.put_back(frames, is_sized);
        returned.give_back(body);
    }

    /// Holds the body back until `gate` opens.
    pub(crate) fn hold_by(&mut self, gate: Arc<ContinueGate>) {
        self.gate = Some((gate, LazyDeadline::default()));
    }

    /// Puts `frames`, read before or in place of what was read, before everything that is still to be read. With
    /// `is_sized`, the body's length is known once all of it has been read.
    pub(crate) fn put_back(&mut self, mut frames: VecDeque<Frame<Bytes>>, is_sized: bool) {
        // what another layer put back and this one did not take
        frames.extend(self.ahead.take().into_iter().flat_map(|ahead| ahead.frames));
        self.ahead = Some(Box::new(Ahead { frames, is_sized, captured: self.captures.len() }));
    }

    /// The same body once more, if all of it is here and none of it has passed; `None` otherwise. Nobody captures it.
    pub(crate) fn copy(&self) -> Option<Self> {
        if self.inner.is_some() || self.gate.is_some() {
            return None;
        }
        let frame = |frame: &Frame<Bytes>| Some(Frame::data(frame.data_ref()?.clone()));
        let frames = self.ahead.as_ref().map_or(Some(VecDeque::new()), |ahead| ahead.frames.iter().map(frame).collect())?;
        let mut copy = Self {
            inner: None,
            in_flight: self.in_flight.clone(),
            gate: None,
            left: 0,
            ahead: None,
            captures: AttachedCaptures::default(),
            upload: UploadWatch::Off,
            first: FirstPiece::Read,
            returned: None,
        };
        copy.put_back(frames, self.ahead.as_ref().is_none_or(|ahead| ahead.is_sized));
        Some(copy)
    }

    /// The pieces that are here and have not passed.
    pub(crate) fn ahead(&self) -> impl Iterator<Item = &Bytes> {
        self.ahead.iter().flat_map(|ahead| &ahead.frames).filter_map(Frame::data_ref)
    }

    /// Copies the body within `budget` while it passes: as it stands in the request at the layer that calls this.
    pub(crate) fn capture(&mut self, budget: &Arc<CaptureBudget>) -> BodyCapture {
        let (mut writer, copy) = capture(budget);
        if self.is_end_stream() {
            writer.finish()
        } else {
            self.captures.attach(writer)
        }
        copy
    }

    /// The client's body was read to its end, with its last bytes `at`, if these were just read.
    fn end(&mut self, at: Option<Stamp>) {
        if self.inner.take().is_some() {
            self.in_flight.on_request_end(at);
            self.upload = UploadWatch::Off;
        }
        let waiting = self.ahead.as_ref().filter(|ahead| !ahead.frames.is_empty());
        if waiting.is_none() {
            self.captures.finish();
        }
    }

    /// The first piece was asked for. Hyper reads it from the client's socket after that, or has it already: only the socket knows whether
    /// it came with the head.
    fn on_first_polled(&mut self, is_pending: bool) {
        let Self { in_flight, first, .. } = self;
        in_flight.client.on_body_asked();
        *first = match (*first, is_pending) {
            (FirstPiece::Unread, true) => {
                in_flight.meter.body_wait.begin(in_flight.account.context.acknowledges_heads());
                in_flight.meter.waker.wake(); // the client's connection reads once more, and its socket knows
                FirstPiece::Awaited
            }
            (first, true) => first,
            (FirstPiece::Awaited, false) => {
                in_flight.on_request_body(in_flight.meter.body_wait.end());
                FirstPiece::Read
            }
            (_, false) => FirstPiece::Read,
        };
    }

    fn too_large(&self) -> RequestBodyError {
        RequestBodyError::TooLarge(
            self.in_flight.account.context.config.max_request_bytes.on().map_or(u64::MAX, |size| size.get()),
        )
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = RequestBodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        if let Some((gate, deadline)) = &mut this.gate {
            if !gate.is_passable(cx, deadline) {
                return Poll::Pending;
            }
            this.gate = None;
        }
        if let Some(ahead) = &mut this.ahead
            && let Some(frame) = ahead.frames.pop_front()
        {
            this.captures.push(&frame, ahead.captured);
            if this.returned.as_mut().is_some_and(|returned| !returned.pass(&frame)) {
                this.returned = None;
            }
            if this.inner.is_none() {
                this.end(None);
            }
            return Poll::Ready(Some(Ok(frame)));
        }
        let Some(inner) = &mut this.inner else { return Poll::Ready(None) };
        let polled = if this.in_flight.is_multiplexed {
            Pin::new(inner).poll_frame(cx)
        } else {
            let waker = &this.in_flight.meter.waker;
            let (polled, is_missed) = waker.quietly(|| Pin::new(&mut *inner).poll_frame(cx));
            // the client's connection reads the next piece, if there is one
            if is_missed && !inner.is_end_stream() {
                waker.wake();
            }
            polled
        };
        this.in_flight.account.upload.set_awaits_client(polled.is_pending());
        if !this.in_flight.is_multiplexed {
            this.in_flight.meter.on_body_awaited(polled.is_pending());
        }
        if this.first != FirstPiece::Read {
            this.on_first_polled(polled.is_pending());
        }
        let Some(inner) = &this.inner else { return Poll::Ready(None) };
        match polled {
            Poll::Pending => {
                this.upload.on_wait(&this.in_flight.account, &this.in_flight.worker.uploads);
                Poll::Pending
            }
            // hyper takes `RST_STREAM(NO_ERROR)` for an end, and only END_STREAM is one (RFC 9113, 8.1)
            Poll::Ready(None) if this.in_flight.is_multiplexed && !inner.is_end_stream() => {
                this.inner = None;
                Poll::Ready(Some(Err(RequestBodyError::StreamCut)))
            }
            Poll::Ready(None) => {
                this.end(None);
                Poll::Ready(None)
            }
            Poll::Ready(Some(Err(error))) => {
                this.inner = None;
                Poll::Ready(Some(Err(RequestBodyError::Client(error))))
            }
            Poll::Ready(Some(Ok(frame))) => {
                let n = frame.data_ref().map_or(0, Buf::remaining);
                let read = this.in_flight.on_request_bytes(n);
                this.upload.on_bytes(n, &this.in_flight.account);
                let Some(left) = this.left.checked_sub(n as u64) else {
                    this.inner = None;
                    return Poll::Ready(Some(Err(this.too_large())));
                };
                this.left = left;
                if let Some(bytes) = frame.data_ref() {
                    this.in_flight.account.on_request_piece(bytes);
                }
                this.captures.push(&frame, 0);
                if this.returned.as_mut().is_some_and(|returned| !returned.pass(&frame)) {
                    this.returned = None;
                }
                if inner.is_end_stream() || frame.is_trailers() {
                    this.end(Some(read));
                } else if !this.in_flight.is_multiplexed {
                    this.in_flight.meter.on_body_left(inner.size_hint().exact());
                }
                Poll::Ready(Some(Ok(frame)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_none() && self.ahead.as_ref().is_none_or(|ahead| ahead.frames.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.inner.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint);
        let Some(ahead) = &self.ahead else { return rest };
        let read: usize = ahead.frames.iter().filter_map(Frame::data_ref).map(Bytes::len).sum();
        match rest.exact().filter(|_| ahead.is_sized) {
            Some(rest) => SizeHint::with_exact(rest + read as u64),
            None => SizeHint::default(),
        }
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if let Some(returned) = self.returned.take() {
            return self.return_at(*returned);
        }
        // a client that waits to be asked for its body sends none
        if let Some(inner) =
            self.inner.take().filter(|_| !self.in_flight.is_multiplexed && !self.in_flight.client.awaits_continue())
        {
            drain(inner, &self.in_flight);
        }
    }
}

/// Where a body returns.
pub(crate) type ReturnSlot = Arc<Mutex<Option<RequestBody>>>;

/// What has passed of a body, and where the body returns.
#[derive(Debug)]
pub(crate) struct ReturnedBody {
    passed: VecDeque<Frame<Bytes>>,
    bytes: usize,
    slot: ReturnSlot,
}

impl ReturnedBody {
    /// Nothing has passed yet; the body returns to `slot`.
    pub(crate) fn new(slot: ReturnSlot) -> Self {
        Self { passed: VecDeque::new(), bytes: 0, slot }
    }

    /// A frame passes. Returns whether it could be kept.
    fn pass(&mut self, frame: &Frame<Bytes>) -> bool {
        let kept = match (frame.data_ref(), frame.trailers_ref()) {
            (Some(bytes), _) => {
                self.bytes += bytes.len();
                Frame::data(bytes.clone())
            }
            (None, Some(trailers)) => Frame::trailers(trailers.clone()),
            (None, None) => return false,
        };
        self.passed.push_back(kept);
        self.bytes <= MAX_KEPT_BYTES
    }

    /// `body` begins anew.
    fn give_back(self, body: RequestBody) {
        *self.slot.lock() = Some(body);
    }
}
