//! Opens the ledger at the first byte of the request's head, and makes sure that it is closed whatever happens.
//!
//! Stage: ingress begins here. It never reads a body, and knows neither the client's body nor the connection: only where stamps come from
//! ([`ConnectionStamps`]), and that bodies keep the account ([`AccountedRequest`], [`AccountedResponse`]).

use std::convert::Infallible;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Method, Request, Response, StatusCode, Version, header};
use http_body::Body;
use pin_project_lite::pin_project;
use tower::Service;

use crate::body::{AccountedRequest, AccountedResponse, TrackedRequest};
use crate::connection::ConnectionStamps;
use crate::in_flight::{AccountGuard, InFlight, RequestContext, server_timing};
use lapwing_ledger::{ExchangeKind, ObservedEvent, Stage};

/// Applies [`OpenLedger`].
#[derive(Debug)]
pub(crate) struct LedgerLayer<T, M> {
    context: Arc<RequestContext>,
    meter: Arc<M>,
    body: PhantomData<fn() -> T>,
}

/// Returns the layer for one client connection, with stamps by `meter`. The layers below take requests with the body `T`.
pub(crate) const fn layer<T, M>(context: Arc<RequestContext>, meter: Arc<M>) -> LedgerLayer<T, M> {
    LedgerLayer { context, meter, body: PhantomData }
}

impl<S, T, M> tower::Layer<S> for LedgerLayer<T, M> {
    type Service = OpenLedger<S, T, M>;

    fn layer(&self, inner: S) -> OpenLedger<S, T, M> {
        OpenLedger { inner, context: self.context.clone(), meter: self.meter.clone(), body: PhantomData }
    }
}

/// Opens a ledger for each request.
#[derive(Debug)]
pub(crate) struct OpenLedger<S, T, M> {
    inner: S,
    context: Arc<RequestContext>,
    meter: Arc<M>,
    body: PhantomData<fn() -> T>,
}

impl<S, B, T, R, M> Service<Request<B>> for OpenLedger<S, T, M>
where
    B: Body,
    T: AccountedRequest<B, M>,
    R: AccountedResponse<M>,
    M: ConnectionStamps,
    S: Service<TrackedRequest<T, M>, Response = Response<R>, Error = Infallible>,
{
    type Response = Response<R>;
    type Error = Infallible;
    type Future = ResponseFuture<S::Future, M>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let is_multiplexed = request.version() == Version::HTTP_2;
        let began = self.meter.head_began(is_multiplexed);
        let in_flight = InFlight::open(self.context.clone(), self.meter.clone(), began, is_multiplexed);
        if request.body().is_end_stream() {
            in_flight.on_request_end(None);
        } else if request.headers().contains_key(header::EXPECT) {
            in_flight.client.await_continue();
        }
        if !is_multiplexed && let Some(before) = self.meter.last_closed().filter(|closed| *closed > began) {
            // pipelined: it came while the request before it was still being answered
            in_flight.write_ledger(|ledger| ledger.observe(Stage::Queue, ObservedEvent::Pipelined, began, before));
        }
        let guard = Some(AccountGuard(in_flight.clone()));
        let is_head = request.method() == Method::HEAD;
        let accepts_trailers = self.context.respond_server_timing && server_timing::accepts_trailers(&request);
        let request = Box::new(request.map(|body| T::wrap(body, in_flight.clone())));
        ResponseFuture { answer: self.inner.call(TrackedRequest { request, in_flight }), guard, is_head, accepts_trailers }
    }
}

pin_project! {
    /// Hands the ledger's guard on to the response's body.
    pub(crate) struct ResponseFuture<F, M: ConnectionStamps> {
        #[pin]
        answer: F,
        guard: Option<AccountGuard<M>>,
        is_head: bool,
        accepts_trailers: bool,
    }
}

impl<F, R, M> Future for ResponseFuture<F, M>
where
    F: Future<Output = Result<Response<R>, Infallible>>,
    R: AccountedResponse<M>,
    M: ConnectionStamps,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let response = match ready!(this.answer.poll(cx)) {
            Ok(response) => response,
            Err(never) => match never {},
        };
        let Some(guard) = this.guard.take() else { return Poll::Ready(Ok(response)) };
        if response.status() == StatusCode::SWITCHING_PROTOCOLS
            && guard.0.read_ledger(|ledger| ledger.kind) == Some(ExchangeKind::Stream)
        {
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

#[cfg(test)]
mod tests;
