//! Bodies as the layer passes them: every frame unaltered, with the times at which it was asked for and came.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Buf;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::account::AccountGuard;
use crate::in_handler::InHandler;
use lapwing_ledger::{Outcome, Stamp};

pin_project! {
    /// The body of a request, whose waits for the client are ingress.
    #[derive(Debug)]
    pub struct RequestBody<B> {
        #[pin]
        inner: B,
        exchange: Arc<InHandler>,
        waits_since: Option<Stamp>,
    }
}

impl<B> RequestBody<B> {
    pub(crate) const fn new(inner: B, exchange: Arc<InHandler>) -> Self {
        Self { inner, exchange, waits_since: None }
    }
}

impl<B: Body> Body for RequestBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut this = self.project();
        let Poll::Ready(frame) = this.inner.as_mut().poll_frame(cx) else {
            this.waits_since.get_or_insert_with(Stamp::now);
            return Poll::Pending;
        };
        if let Some(from) = this.waits_since.take() {
            this.exchange.on_request_wait(from, Stamp::now());
        }
        if let Some(data) = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref()) {
            this.exchange.on_request_bytes(data.remaining());
        }
        if !matches!(&frame, Some(Ok(frame)) if frame.is_data()) || this.inner.is_end_stream() {
            this.exchange.on_request_end();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

pin_project! {
    /// The body of a response, whose end closes the ledger.
    #[derive(Debug)]
    pub struct ResponseBody<B> {
        #[pin]
        inner: B,
        end: BodyEnd,
    }
}

/// Closes the ledger when the body ends or is dropped.
#[derive(Debug)]
struct BodyEnd {
    guard: AccountGuard<InHandler>,
    /// When the server was given the head or the last frame, and has not asked for another since.
    given: Option<Stamp>,
    /// The bytes that the body has in all, if it said so at first, less those that were taken.
    left: Option<u64>,
}

impl<B: Body> ResponseBody<B> {
    pub(crate) fn new(inner: B, guard: AccountGuard<InHandler>, given: Stamp) -> Self {
        let left = inner.size_hint().exact();
        Self { inner, end: BodyEnd { guard, given: Some(given), left } }
    }
}

impl BodyEnd {
    /// The server asks for a frame.
    fn on_asked(&mut self) {
        if let (Some(exchange), Some(from)) = (self.guard.get(), self.given.take()) {
            exchange.on_response_wait(from, Stamp::now());
        }
    }

    /// The body gave a frame, or ended.
    fn on_given<D: Buf, E>(&mut self, frame: Option<&Result<Frame<D>, E>>, is_last: bool) {
        let Some(exchange) = self.guard.get() else { return };
        let now = Stamp::now();
        match frame {
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    exchange.on_response_bytes(data.remaining(), self.left.is_none(), now);
                    self.left = self.left.map(|left| left.saturating_sub(data.remaining() as u64));
                }
                if let Some(trailers) = frame.trailers_ref() {
                    exchange.on_trailers(trailers);
                }
                self.given = Some(now);
                if is_last || frame.is_trailers() {
                    self.guard.close(None, now);
                }
            }
            Some(Err(_)) => self.guard.close(Some(Outcome::Broken), now),
            None => self.guard.close(None, now),
        }
    }
}

impl Drop for BodyEnd {
    fn drop(&mut self) {
        if self.guard.is_running() {
            return; // the body panicked: the guard says so
        }
        self.on_asked();
        // the server takes as many bytes as were announced, and need not ask for more
        if self.left == Some(0) {
            self.guard.close(None, Stamp::now());
        }
    }
}

impl<B: Body> Body for ResponseBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut this = self.project();
        this.end.on_asked();
        let inner = this.inner.as_mut();
        let frame = ready!(this.end.guard.running(|| inner.poll_frame(cx)));
        let is_last = this.inner.is_end_stream();
        this.end.on_given(frame.as_ref(), is_last);
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
