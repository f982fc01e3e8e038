//! Sheds requests beyond `max_in_flight`, unless a slow upload gives way (`upload`), and refuses those whose head, or announced body, is too large.
//!
//! Stage: validation. It never waits and never queues.

use std::future::{Ready, ready};
use std::task::{Context, Poll};

use futures_util::future::Either;
use http::Request;
use tower::Service;

use crate::body::TrackedRequest;
use crate::error::Error;
use crate::head::fields_bytes;
use lapwing_metrics::Counter;

/// Applies [`RequestLimits`].
#[derive(Clone, Debug)]
pub(crate) struct RequestLimitsLayer;

impl<S> tower::Layer<S> for RequestLimitsLayer {
    type Service = RequestLimits<S>;

    fn layer(&self, inner: S) -> RequestLimits<S> {
        RequestLimits { inner }
    }
}

/// Sheds and refuses requests.
#[derive(Clone, Debug)]
pub(crate) struct RequestLimits<S> {
    inner: S,
}

impl<S: Service<TrackedRequest, Error = Error>> Service<TrackedRequest> for RequestLimits<S> {
    type Response = S::Response;
    type Error = Error;
    type Future = Either<S::Future, Ready<Result<S::Response, Error>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, tracked: TrackedRequest) -> Self::Future {
        let context = &tracked.in_flight.context;
        let limit = context.config.max_in_flight;
        let in_flight = context.counters.get(Counter::InFlight);
        if in_flight > limit && !context.uploads.make_room(in_flight, limit) {
            return Either::Right(ready(Err(Error::Shed { limit })));
        }
        let limit = context.config.max_header_bytes.get();
        if head_bytes(&tracked.request) > limit {
            return Either::Right(ready(Err(Error::HeadTooLarge { limit })));
        }
        if let Some(limit) = context.config.max_request_bytes.on().map(|size| size.get())
            && http_body::Body::size_hint(tracked.request.body()).exact().is_some_and(|n| n > limit)
        {
            return Either::Right(ready(Err(Error::BodyTooLarge { limit })));
        }
        Either::Left(self.inner.call(tracked))
    }
}

/// The head's approximate size on the wire, in bytes.
fn head_bytes<B>(request: &Request<B>) -> u64 {
    let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
    fields_bytes(request.headers()) + (request.method().as_str().len() + target) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_is_part_of_the_head() {
        let of = |method: &str| head_bytes(&Request::builder().method(method).uri("/x").header("host", "m").body(()).unwrap());
        assert_eq!(of("GET"), 3 + 2 + 9);
        assert_eq!(of(&"M".repeat(100_000)), 100_000 + 2 + 9);
    }
}
