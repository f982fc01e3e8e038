//! Refuses rather than queues: past `max_in_flight` a request is shed.
//!
//! Stage: validation. It never waits.

use std::future::{Ready, ready};
use std::task::{Context, Poll};

use futures_util::future::Either;
use tower::Service;

use crate::metrics::Counter;
use crate::proxy::call::Call;
use crate::proxy::error::Error;

/// Applies [`Admitted`].
#[derive(Clone, Debug)]
pub(crate) struct AdmitLayer;

impl<S> tower::Layer<S> for AdmitLayer {
    type Service = Admitted<S>;

    fn layer(&self, inner: S) -> Admitted<S> {
        Admitted { inner }
    }
}

/// Sheds what is too much.
#[derive(Clone, Debug)]
pub(crate) struct Admitted<S> {
    inner: S,
}

impl<S: Service<Call, Error = Error>> Service<Call> for Admitted<S> {
    type Response = S::Response;
    type Error = Error;
    type Future = Either<S::Future, Ready<Result<S::Response, Error>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, call: Call) -> Self::Future {
        let recorder = &call.live.recorder;
        let limit = recorder.config.max_in_flight;
        if recorder.counters.get(Counter::InFlight) > limit {
            return Either::Right(ready(Err(Error::Shed { limit })));
        }
        if let Some(limit) = recorder.config.max_request_bytes
            && http_body::Body::size_hint(call.request.body()).exact().is_some_and(|n| n > limit)
        {
            return Either::Right(ready(Err(Error::BodyTooLarge { limit })));
        }
        Either::Left(self.inner.call(call))
    }
}
