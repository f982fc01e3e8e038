//! Sheds requests beyond `max_in_flight`, unless a slow upload gives way (`upload`), and refuses those whose head, or announced body, is too large.
//!
//! Stage: validation. It never waits and never queues.

use std::future::{Ready, ready};
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::Either;
use http::Request;
use http_body::Body;
use tower::Service;

use crate::body::TrackedRequest;
use crate::error::Error;
use crate::head::fields_bytes;
use crate::in_flight::RequestAccount;
use crate::upload::UploadPlaces;
use lapwing_metrics::Counter;

/// Applies [`RequestLimits`].
#[derive(Clone, Debug)]
pub(crate) struct RequestLimitsLayer {
    /// The slow uploads of the worker.
    pub(crate) uploads: Arc<UploadPlaces>,
}

impl<S> tower::Layer<S> for RequestLimitsLayer {
    type Service = RequestLimits<S>;

    fn layer(&self, inner: S) -> RequestLimits<S> {
        RequestLimits { inner, uploads: self.uploads.clone() }
    }
}

/// Sheds and refuses requests.
#[derive(Clone, Debug)]
pub(crate) struct RequestLimits<S> {
    inner: S,
    uploads: Arc<UploadPlaces>,
}

impl<S, B, A> Service<TrackedRequest<B, A>> for RequestLimits<S>
where
    A: AsRef<RequestAccount>,
    B: Body,
    S: Service<TrackedRequest<B, A>, Error = Error>,
{
    type Response = S::Response;
    type Error = Error;
    type Future = Either<S::Future, Ready<Result<S::Response, Error>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, tracked: TrackedRequest<B, A>) -> Self::Future {
        let context = &A::as_ref(&tracked.in_flight).context;
        let limit = context.config.max_in_flight;
        let in_flight = context.counters.get(Counter::InFlight);
        if in_flight > limit && !self.uploads.make_room(in_flight, limit) {
            return Either::Right(ready(Err(Error::Shed { limit })));
        }
        let limit = context.config.max_header_bytes.get();
        if head_bytes(&tracked.request) > limit {
            return Either::Right(ready(Err(Error::HeadTooLarge { limit })));
        }
        if let Some(limit) = context.config.max_request_bytes.on().map(|size| size.get())
            && tracked.request.body().size_hint().exact().is_some_and(|n| n > limit)
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
    use bytes::Bytes;
    use http_body_util::Full;
    use tower::{Layer, ServiceExt, service_fn};

    use super::*;
    use crate::config::Config;
    use crate::in_flight::RequestContext;
    use crate::in_flight::fixtures::{account_in, context};
    use lapwing_settings::{Size, Switch};

    #[test]
    fn a_method_is_part_of_the_head() {
        let of = |method: &str| head_bytes(&Request::builder().method(method).uri("/x").header("host", "m").body(()).unwrap());
        assert_eq!(of("GET"), 3 + 2 + 9);
        assert_eq!(of(&"M".repeat(100_000)), 100_000 + 2 + 9);
    }

    /// What becomes of a request with `body` under `config`, of which `others` are in flight: no socket, no client, nothing that carries it.
    async fn limited(config: Config, body: &'static str, others: u64) -> Result<(), Error> {
        let context = Arc::new(RequestContext { config, ..context() });
        for _ in 0..=others {
            // itself included
            context.counters.raise(Counter::InFlight);
        }
        let in_flight = Arc::new(account_in(context));
        let request = Box::new(Request::builder().uri("/x").body(Full::<Bytes>::from(body)).unwrap());
        let inner = service_fn(|_: TrackedRequest<Full<Bytes>, RequestAccount>| ready(Ok::<_, Error>(())));
        RequestLimitsLayer { uploads: Arc::default() }.layer(inner).oneshot(TrackedRequest { request, in_flight }).await
    }

    #[tokio::test]
    async fn requests_beyond_a_limit_are_refused_by_its_name() {
        assert!(limited(Config::default(), "body", 0).await.is_ok());
        let small = Config { max_request_bytes: Switch::On(Size(3)), ..Config::default() };
        assert!(matches!(limited(small.clone(), "body", 0).await, Err(Error::BodyTooLarge { limit: 3 })));
        assert!(limited(small, "bod", 0).await.is_ok());
        let few = || Config { max_in_flight: 2, ..Config::default() };
        assert!(limited(few(), "body", 1).await.is_ok());
        assert!(matches!(limited(few(), "body", 2).await, Err(Error::Shed { limit: 2 })));
    }
}
