//! Turns every error of the layers below into a response (`error/response.rs`), and writes its outcome into the ledger.
//!
//! An answer in the middle of a request, or while there is no upstream, says whether the client's connection ends after it.
//!
//! Stage: none. It never touches the upstream's responses.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::Response;
use pin_project_lite::pin_project;
use tower::Service;

use crate::body::{MAX_DRAINED_BYTES, ResponseBody, TrackedRequest};
use crate::error::Error;
use crate::error::response::respond;
use crate::in_flight::InFlight;

/// Applies [`FailureResponses`].
#[derive(Clone, Debug)]
pub(crate) struct FailureResponsesLayer;

impl<S> tower::Layer<S> for FailureResponsesLayer {
    type Service = FailureResponses<S>;

    fn layer(&self, inner: S) -> FailureResponses<S> {
        FailureResponses { inner }
    }
}

/// Answers errors, so that it never fails.
#[derive(Clone, Debug)]
pub(crate) struct FailureResponses<S> {
    inner: S,
}

impl<S> Service<TrackedRequest> for FailureResponses<S>
where
    S: Service<TrackedRequest, Response = Response<ResponseBody>, Error = Error>,
{
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(())) // no layer below holds requests back: they are shed instead
    }

    fn call(&mut self, tracked: TrackedRequest) -> Self::Future {
        let in_flight = tracked.in_flight.clone();
        ResponseFuture { answer: self.inner.call(tracked), in_flight }
    }
}

pin_project! {
    /// The upstream's response, or the one that reports an error.
    pub(crate) struct ResponseFuture<F> {
        #[pin]
        answer: F,
        in_flight: Arc<InFlight>,
    }
}

impl<F> Future for ResponseFuture<F>
where
    F: Future<Output = Result<Response<ResponseBody>, Error>>,
{
    type Output = Result<Response<ResponseBody>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        Poll::Ready(Ok(match ready!(this.answer.poll(cx)) {
            Ok(response) => response,
            Err(error) => {
                tracing::debug!(%error, "a request failed and is answered by lapwing");
                error.report_time_limit(&this.in_flight.context.counters);
                let closes = this.in_flight.context.health.is_away() || error.ends_connection() || leaves_rest(this.in_flight);
                if closes {
                    this.in_flight.close_client();
                }
                let (response, outcome) = respond(&error, closes);
                this.in_flight.write_ledger(|ledger| {
                    ledger.status = response.status().as_u16();
                    ledger.outcome = outcome;
                });
                response.map(ResponseBody::own)
            }
        }))
    }
}

/// Whether more is left of the request than is read after its answer (HTTP/1.1).
fn leaves_rest(in_flight: &InFlight) -> bool {
    let is_left =
        || in_flight.meter.known_body_left().is_none_or(|left| left > MAX_DRAINED_BYTES) || in_flight.client.awaits_continue();
    in_flight.stamps.request_end().is_none() && !in_flight.is_multiplexed && is_left()
}
