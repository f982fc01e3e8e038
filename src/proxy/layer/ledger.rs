//! Opens the ledger at the first byte of the request's head, and makes sure that it is closed, whatever happens.
//!
//! Stage: ingress begins here. It never looks at a body.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Request, Response, Version};
use hyper::body::Incoming;
use pin_project_lite::pin_project;
use tower::Service;

use crate::ledger::{ExchangeKind, ObservedEvent, Stage};
use crate::proxy::body::request::RequestBody;
use crate::proxy::body::response::ResponseBody;
use crate::proxy::connection::meter::Meter;
use crate::proxy::exchange::in_flight::{Guard, Live, Recorder};
use crate::proxy::exchange::server_timing;
use crate::proxy::exchange::tracked_request::Call;

/// Applies [`Opened`].
#[derive(Clone, Debug)]
pub(crate) struct LedgerLayer {
    recorder: Arc<Recorder>,
    meter: Arc<Meter>,
}

/// Ledgers for one client connection.
pub(crate) const fn layer(recorder: Arc<Recorder>, meter: Arc<Meter>) -> LedgerLayer {
    LedgerLayer { recorder, meter }
}

impl<S> tower::Layer<S> for LedgerLayer {
    type Service = Opened<S>;

    fn layer(&self, inner: S) -> Opened<S> {
        Opened { inner, recorder: self.recorder.clone(), meter: self.meter.clone() }
    }
}

/// Opens a ledger for each request.
#[derive(Clone, Debug)]
pub(crate) struct Opened<S> {
    inner: S,
    recorder: Arc<Recorder>,
    meter: Arc<Meter>,
}

impl<S> Service<Request<Incoming>> for Opened<S>
where
    S: Service<Call, Response = Response<ResponseBody>, Error = Infallible>,
{
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let multiplexed = request.version() == Version::HTTP_2;
        let began = if multiplexed { self.meter.last_read() } else { None }.unwrap_or_else(|| self.meter.head_began());
        let live = Live::open(self.recorder.clone(), self.meter.clone(), began, multiplexed);
        if http_body::Body::is_end_stream(request.body()) {
            live.on_request_end();
        }
        if !multiplexed && let Some(before) = self.meter.last_closed().filter(|closed| *closed > began) {
            // pipelined: it came while the request before it was still being answered
            live.with(|ledger| ledger.observe(Stage::Queue, ObservedEvent::Pipelined, began, before));
        }
        let guard = Some(Guard(live.clone()));
        let takes_trailers = self.recorder.respond_server_timing && server_timing::takes_trailers(&request);
        let request = request.map(|body| RequestBody::new(body, live.clone()));
        ResponseFuture { answer: self.inner.call(Call { request, live }), guard, takes_trailers }
    }
}

pin_project! {
    /// Hands the ledger's guard on to the response's body.
    pub(crate) struct ResponseFuture<F> {
        #[pin]
        answer: F,
        guard: Option<Guard>,
        takes_trailers: bool,
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
        if response.status() == http::StatusCode::SWITCHING_PROTOCOLS
            && guard.0.with(|ledger| ledger.kind) == ExchangeKind::Stream
        {
            guard.0.detach(); // the splice holds a guard of its own
            return Poll::Ready(Ok(response));
        }
        let mut response = response;
        let timed =
            guard.0.recorder.respond_server_timing && server_timing::announce(&mut response, &guard.0, *this.takes_trailers);
        Poll::Ready(Ok(response.map(|body| body.guarded(guard, timed))))
    }
}
