//! Opens the ledger at the first byte of the request's head, and makes sure that it is closed whatever happens.
//!
//! Stage: ingress begins here. It never reads a body.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Method, Request, Response, StatusCode, Version, header};
use hyper::body::Incoming;
use pin_project_lite::pin_project;
use tower::Service;

use crate::body::{RequestBody, ResponseBody, TrackedRequest};
use crate::connection::SocketMeter;
use crate::exchange::{ExchangeContext, ExchangeGuard, InFlight, server_timing};
use lapwing_ledger::{ExchangeKind, ObservedEvent, Stage};

/// Applies [`OpenLedger`].
#[derive(Clone, Debug)]
pub(crate) struct LedgerLayer {
    context: Arc<ExchangeContext>,
    meter: Arc<SocketMeter>,
}

/// Returns the layer for one client connection.
pub(crate) const fn layer(context: Arc<ExchangeContext>, meter: Arc<SocketMeter>) -> LedgerLayer {
    LedgerLayer { context, meter }
}

impl<S> tower::Layer<S> for LedgerLayer {
    type Service = OpenLedger<S>;

    fn layer(&self, inner: S) -> OpenLedger<S> {
        OpenLedger { inner, context: self.context.clone(), meter: self.meter.clone() }
    }
}

/// Opens a ledger for each request.
#[derive(Clone, Debug)]
pub(crate) struct OpenLedger<S> {
    inner: S,
    context: Arc<ExchangeContext>,
    meter: Arc<SocketMeter>,
}

impl<S> Service<Request<Incoming>> for OpenLedger<S>
where
    S: Service<TrackedRequest, Response = Response<ResponseBody>, Error = Infallible>,
{
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let is_multiplexed = request.version() == Version::HTTP_2;
        let began = if is_multiplexed { self.meter.last_read() } else { None }.unwrap_or_else(|| self.meter.head_began());
        let in_flight = InFlight::open(self.context.clone(), self.meter.clone(), began, is_multiplexed);
        if http_body::Body::is_end_stream(request.body()) {
            in_flight.on_request_end(None);
        } else if request.headers().contains_key(header::EXPECT) {
            in_flight.await_continue();
        }
        if !is_multiplexed && let Some(before) = self.meter.last_closed().filter(|closed| *closed > began) {
            // pipelined: it came while the request before it was still being answered
            in_flight.with(|ledger| ledger.observe(Stage::Queue, ObservedEvent::Pipelined, began, before));
        }
        let guard = Some(ExchangeGuard(in_flight.clone()));
        let is_head = request.method() == Method::HEAD;
        let accepts_trailers = self.context.respond_server_timing && server_timing::accepts_trailers(&request);
        let request = Box::new(request.map(|body| RequestBody::new(body, in_flight.clone())));
        ResponseFuture { answer: self.inner.call(TrackedRequest { request, in_flight }), guard, is_head, accepts_trailers }
    }
}

pin_project! {
    /// Hands the ledger's guard on to the response's body.
    pub(crate) struct ResponseFuture<F> {
        #[pin]
        answer: F,
        guard: Option<ExchangeGuard>,
        is_head: bool,
        accepts_trailers: bool,
    }
}

impl<F> Future for ResponseFuture<F>
where
    F: Future<Output = Result<Response<ResponseBody>, Infallible>>,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let response = match ready!(this.answer.poll(cx)) {
            Ok(response) => response,
            Err(never) => match never {},
        };
        let Some(guard) = this.guard.take() else { return Poll::Ready(Ok(response)) };
        if response.status() == StatusCode::SWITCHING_PROTOCOLS && guard.0.with(|ledger| ledger.kind) == ExchangeKind::Stream {
            guard.0.detach(); // the splice has its own guard
            return Poll::Ready(Ok(response));
        }
        let mut response = response;
        if *this.is_head || matches!(response.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
            response = response.map(|body| body.emptied(guard.0.is_multiplexed));
        }
        let has_timing_trailer =
            guard.0.context.respond_server_timing && server_timing::announce(&mut response, &guard.0, *this.accepts_trailers);
        response.body_mut().guard(guard, has_timing_trailer);
        Poll::Ready(Ok(response))
    }
}
