//! The request body on its way to the upstream: passed on frame by frame, counted and stamped, never copied.
//!
//! It holds the body back only where the client asked for that (`Expect: 100-continue`): until the upstream says
//! "continue", or a second has passed (RFC 9110, 10.1.1 lets a client wait no longer for ever).

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use parking_lot::Mutex;

use crate::ledger::Stamp;
use crate::proxy::connection::lazy_deadline::Watch;
use crate::proxy::exchange::in_flight::Live;

/// How long a body waits for the upstream's "100 Continue".
const CONTINUE_WITHIN: Duration = Duration::from_secs(1);

/// Why a request body broke off.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestBodyError {
    /// The client's side failed.
    #[error("{0}")]
    Client(hyper::Error),
    /// More bytes than `max_request_bytes`.
    #[error("larger than max_request_bytes = {0}")]
    TooLarge(u64),
}

/// A request body in flight.
#[derive(Debug)]
pub(crate) struct RequestBody {
    inner: Option<Incoming>,
    live: Arc<Live>,
    gate: Option<(Arc<Gate>, Watch)>,
    left: u64,
    /// What is passed on before anything more is read.
    ahead: Option<Box<Ahead>>,
}

/// What has been read of a body already.
#[derive(Debug)]
struct Ahead {
    frames: VecDeque<Frame<Bytes>>,
    /// Whether the body's length may be told where all of it has been read: the client told it too.
    is_sized: bool,
}

/// Opens when the upstream says "100 Continue".
#[derive(Debug)]
pub(crate) struct Gate {
    since: Stamp,
    open: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Gate {
    /// A closed gate.
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { since: Stamp::now(), open: AtomicBool::new(false), waker: Mutex::new(None) })
    }

    /// Lets the body go.
    pub(crate) fn open(&self) {
        self.open.store(true, Relaxed);
        if let Some(waker) = self.waker.lock().take() {
            waker.wake();
        }
    }
}

impl RequestBody {
    /// Wraps what the client sends.
    pub(crate) fn new(inner: Incoming, live: Arc<Live>) -> Self {
        let left = live.recorder.config.max_request_bytes.on().map_or(u64::MAX, |size| size.get());
        // of a request without a body the ledger knows the end already
        let inner = (!inner.is_end_stream()).then_some(inner);
        Self { inner, live, gate: None, left, ahead: None }
    }

    /// Holds the body back until `gate` opens.
    pub(crate) fn gated(mut self, gate: Option<Arc<Gate>>) -> Self {
        self.gate = gate.map(|gate| (gate, Watch::default()));
        self
    }

    /// Puts `frames`, read before or standing for what was, before all that is still to be read.
    pub(crate) fn put_back(&mut self, frames: VecDeque<Frame<Bytes>>, is_sized: bool) {
        self.ahead = Some(Box::new(Ahead { frames, is_sized }));
    }

    fn end(&mut self) {
        if self.inner.take().is_some() {
            self.live.on_request_end();
        }
    }

    fn too_large(&self) -> RequestBodyError {
        RequestBodyError::TooLarge(self.live.recorder.config.max_request_bytes.on().map_or(u64::MAX, |size| size.get()))
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = RequestBodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        if let Some((gate, watch)) = &mut this.gate {
            if !gate.open.load(Relaxed) && !watch.expired(cx, gate.since, CONTINUE_WITHIN) {
                *gate.waker.lock() = Some(cx.waker().clone());
                return Poll::Pending;
            }
            this.gate = None;
        }
        if let Some(frame) = this.ahead.as_mut().and_then(|ahead| ahead.frames.pop_front()) {
            return Poll::Ready(Some(Ok(frame)));
        }
        let Some(inner) = &mut this.inner else { return Poll::Ready(None) };
        let polled = Pin::new(&mut *inner).poll_frame(cx);
        this.live.awaits_client.store(polled.is_pending(), Relaxed);
        match polled {
            Poll::Pending => Poll::Pending,
            Poll::Ready(None) => {
                this.end();
                Poll::Ready(None)
            }
            Poll::Ready(Some(Err(error))) => {
                this.inner = None;
                Poll::Ready(Some(Err(RequestBodyError::Client(error))))
            }
            Poll::Ready(Some(Ok(frame))) => {
                let n = frame.data_ref().map_or(0, Buf::remaining);
                this.live.on_request_bytes(n);
                let Some(left) = this.left.checked_sub(n as u64) else {
                    this.inner = None;
                    return Poll::Ready(Some(Err(this.too_large())));
                };
                this.left = left;
                if let Some(bytes) = frame.data_ref() {
                    this.live.on_request_piece(bytes);
                }
                if inner.is_end_stream() || frame.is_trailers() {
                    this.end();
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
