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

use crate::body::{RequestBody, ResponseBody, TrackedRequest};
use crate::error::Error;
use crate::error::response::respond;
use crate::in_flight::RequestAccount;

/// Applies [`FailureResponses`].
#[derive(Clone, Debug)]
pub(crate) struct FailureResponsesLayer;

impl<S> tower::Layer<S> for FailureResponsesLayer {
    type Service = FailureResponses<S>;

    fn layer(&self, inner: S) -> FailureResponses<S> {
        FailureResponses { inner }
    }
}

/// A request whose failure is answered.
pub(crate) trait FailedRequest: AsRef<RequestAccount> {
    /// Whether there is no upstream now.
    fn is_upstream_away(&self) -> bool;

    /// Whether more is left of the request than is read after its answer (HTTP/1.1).
    fn leaves_rest(&self) -> bool;

    /// The answer says that the client's connection ends after it.
    fn close_client(&self);
}

/// Answers errors, so that it never fails.
#[derive(Clone, Debug)]
pub(crate) struct FailureResponses<S> {
    inner: S,
}

impl<S, A> Service<TrackedRequest<RequestBody, A>> for FailureResponses<S>
where
    A: FailedRequest,
    S: Service<TrackedRequest<RequestBody, A>, Response = Response<ResponseBody>, Error = Error>,
{
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = ResponseFuture<S::Future, A>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(())) // no layer below holds requests back: they are shed instead
    }

    fn call(&mut self, tracked: TrackedRequest<RequestBody, A>) -> Self::Future {
        let in_flight = tracked.in_flight.clone();
        ResponseFuture { answer: self.inner.call(tracked), in_flight }
    }
}

pin_project! {
    /// The upstream's response, or the one that reports an error.
    pub(crate) struct ResponseFuture<F, A> {
        #[pin]
        answer: F,
        in_flight: Arc<A>,
    }
}

impl<F, A> Future for ResponseFuture<F, A>
where
    A: FailedRequest,
    F: Future<Output = Result<Response<ResponseBody>, Error>>,
{
    type Output = Result<Response<ResponseBody>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        Poll::Ready(Ok(match ready!(this.answer.poll(cx)) {
            Ok(response) => response,
            Err(error) => {
                tracing::debug!(%error, "a request failed and is answered by lapwing");
                let account = A::as_ref(this.in_flight);
                error.report_time_limit(&account.context.counters);
                let closes = this.in_flight.is_upstream_away() || error.ends_connection() || this.in_flight.leaves_rest();
                if closes {
                    this.in_flight.close_client();
                }
                let (response, outcome) = respond(&error, closes);
                account.write_ledger(|ledger| {
                    ledger.status = response.status().as_u16();
                    ledger.outcome = outcome;
                });
                response.map(ResponseBody::own)
            }
        }))
    }
}
