//! Refuses rather than queues: past `max_in_flight` a request is shed. Refuses what is too large by its own word.
//!
//! Stage: validation. It never waits.

use std::future::{Ready, ready};
use std::task::{Context, Poll};

use futures_util::future::Either;
use http::Request;
use tower::Service;

use crate::metrics::Counter;
use crate::proxy::error::Error;
use crate::proxy::exchange::tracked_request::Call;

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
        let limit = recorder.config.max_header_bytes.get();
        if head_bytes(&call.request) > limit {
            return Either::Right(ready(Err(Error::HeadTooLarge { limit })));
        }
        if let Some(limit) = recorder.config.max_request_bytes.on().map(|size| size.get())
            && http_body::Body::size_hint(call.request.body()).exact().is_some_and(|n| n > limit)
        {
            return Either::Right(ready(Err(Error::BodyTooLarge { limit })));
        }
        Either::Left(self.inner.call(call))
    }
}

/// About how many bytes the head has on the wire. Hyper's own bound is that of its buffer, which bodies want larger.
fn head_bytes<B>(request: &Request<B>) -> u64 {
    let fields = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + 4);
    let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
    (fields.sum::<usize>() + target) as u64
}
