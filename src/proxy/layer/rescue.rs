//! Turns every error below into a response, by `proxy/error/response.rs`, and writes its outcome in the ledger.
//!
//! Stage: none. It never touches a response of the upstream's.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::Response;
use pin_project_lite::pin_project;
use tower::Service;

use crate::proxy::body::response::ResponseBody;
use crate::proxy::error::Error;
use crate::proxy::error::response::rescue;
use crate::proxy::exchange::in_flight::Live;
use crate::proxy::exchange::tracked_request::Call;

/// Applies [`Rescued`].
#[derive(Clone, Debug)]
pub(crate) struct RescueLayer;

impl<S> tower::Layer<S> for RescueLayer {
    type Service = Rescued<S>;

    fn layer(&self, inner: S) -> Rescued<S> {
        Rescued { inner }
    }
}

/// Never fails.
#[derive(Clone, Debug)]
pub(crate) struct Rescued<S> {
    inner: S,
}

impl<S> Service<Call> for Rescued<S>
where
    S: Service<Call, Response = Response<ResponseBody>, Error = Error>,
{
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(())) // nothing below holds a request back: it is shed instead
    }

    fn call(&mut self, call: Call) -> Self::Future {
        let live = call.live.clone();
        ResponseFuture { answer: self.inner.call(call), live }
    }
}

pin_project! {
    /// The answer, or what stands for it.
    pub(crate) struct ResponseFuture<F> {
        #[pin]
        answer: F,
        live: Arc<Live>,
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
                tracing::debug!(%error, "rescued");
                let (response, outcome) = rescue(&error);
                this.live.with(|ledger| {
                    ledger.status = response.status().as_u16();
                    ledger.outcome = outcome;
                });
                response.map(ResponseBody::own)
            }
        }))
    }
}
