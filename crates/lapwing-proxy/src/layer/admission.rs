//! Admits a request: names its route and model by its head, and chooses the reader of its bodies; makes its head one that may be
//! forwarded (`head`); and sheds requests beyond `max_in_flight`, unless a slow upload gives way (`upload`). In this order: requests that
//! are refused or shed have a name too, and nothing acts on a head that can be read in two ways.
//!
//! Stage: validation. It reads no body, never waits and never queues.

use std::future::{Ready, ready};
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::Either;
use http::{HeaderMap, Method, Request, header};
use http_body::Body;
use tower::Service;

use super::deadline;
use crate::body::TrackedRequest;
use crate::config::Config;
use crate::error::Error;
use crate::head::{fields_bytes, normalise_request};
use crate::in_flight::{RequestAccount, RequestContext};
use crate::upload::UploadPlaces;
use lapwing_ledger::{Annotation, Ledger};
use lapwing_metrics::Counter;

/// Applies [`Admission`].
#[derive(Clone, Debug)]
pub(crate) struct AdmissionLayer {
    /// The slow uploads of the worker.
    pub(crate) uploads: Arc<UploadPlaces>,
}

impl<S> tower::Layer<S> for AdmissionLayer {
    type Service = Admission<S>;

    fn layer(&self, inner: S) -> Admission<S> {
        Admission { inner, uploads: self.uploads.clone() }
    }
}

/// Names, normalises and limits requests.
#[derive(Clone, Debug)]
pub(crate) struct Admission<S> {
    inner: S,
    uploads: Arc<UploadPlaces>,
}

impl<S, B, A> Service<TrackedRequest<B, A>> for Admission<S>
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

    fn call(&mut self, mut tracked: TrackedRequest<B, A>) -> Self::Future {
        let TrackedRequest { request, in_flight } = &mut tracked;
        let account = A::as_ref(in_flight);
        classify(request, account);
        let admitted = normalise_request(request).map_err(Error::Refused);
        match admitted.and_then(|()| check_limits(request, &account.context, &self.uploads)) {
            Ok(()) => Either::Left(self.inner.call(tracked)),
            Err(error) => Either::Right(ready(Err(error))),
        }
    }
}

/// Names the request's route and model, notes what the head says of the body, and chooses the reader of its bodies.
fn classify<B>(request: &Request<B>, account: &RequestAccount) {
    let (method, path, headers) = (request.method(), request.uri().path(), request.headers());
    account.open_reader(method == Method::POST, |observer, ledger| {
        if note_request_head(headers, &account.context.config, ledger) {
            deadline::note(headers, &account.context.config, &account.context.counters, ledger);
        }
        observer.request(method, path, headers, ledger)
    });
}

/// Notes what the request's head says of its body. Returns whether it may say how long the request may take.
fn note_request_head(headers: &HeaderMap, config: &Config, ledger: &mut Ledger) -> bool {
    let annotations = &mut ledger.circumstances.annotations;
    let mut may_have_deadline = false;
    // to pass over a few names costs less than two look-ups
    for (name, value) in headers {
        if *name == header::EXPECT {
            annotations.add(Annotation::ExpectContinue);
        } else if *name == header::CONTENT_ENCODING && !value.as_bytes().eq_ignore_ascii_case(b"identity") {
            annotations.add(Annotation::CompressedRequest);
        } else {
            may_have_deadline |= deadline::may_state_deadline(config, name);
        }
    }
    may_have_deadline
}

/// Whether there is room for the request, and its head and the body that it announces are within the bounds.
fn check_limits<B: Body>(request: &Request<B>, context: &RequestContext, uploads: &UploadPlaces) -> Result<(), Error> {
    let limit = context.config.max_in_flight;
    let in_flight = context.counters.get(Counter::InFlight);
    if in_flight > limit && !uploads.make_room(in_flight, limit) {
        return Err(Error::Shed { limit });
    }
    let limit = context.config.max_header_bytes.get();
    if head_bytes(request) > limit {
        return Err(Error::HeadTooLarge { limit });
    }
    if let Some(limit) = context.config.max_request_bytes.on().map(|size| size.get())
        && request.body().size_hint().exact().is_some_and(|n| n > limit)
    {
        return Err(Error::BodyTooLarge { limit });
    }
    Ok(())
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

    use super::*;
    use crate::in_flight::fixtures::context;
    use lapwing_ledger::Stamp;
    use lapwing_settings::{Size, Switch};

    #[test]
    fn a_method_is_part_of_the_head() {
        let of = |method: &str| head_bytes(&Request::builder().method(method).uri("/x").header("host", "m").body(()).unwrap());
        assert_eq!(of("GET"), 3 + 2 + 9);
        assert_eq!(of(&"M".repeat(100_000)), 100_000 + 2 + 9);
    }

    /// What becomes of a request with `body` under `config`, while `others` are in flight.
    fn limited(config: Config, body: &'static str, others: u64) -> Result<(), Error> {
        let context = RequestContext { config, ..context() };
        for _ in 0..=others {
            // itself included
            context.counters.raise(Counter::InFlight);
        }
        check_limits(&Request::new(Full::<Bytes>::from(body)), &context, &UploadPlaces::default())
    }

    #[test]
    fn requests_beyond_a_limit_are_refused_by_its_name() {
        assert!(limited(Config::default(), "body", 0).is_ok());
        let small = Config { max_request_bytes: Switch::On(Size(3)), ..Config::default() };
        assert!(matches!(limited(small.clone(), "body", 0), Err(Error::BodyTooLarge { limit: 3 })));
        assert!(limited(small, "bod", 0).is_ok());
        let few = || Config { max_in_flight: 2, ..Config::default() };
        assert!(limited(few(), "body", 1).is_ok());
        assert!(matches!(limited(few(), "body", 2), Err(Error::Shed { limit: 2 })));
    }

    fn names(ledger: &Ledger) -> Vec<&'static str> {
        ledger.circumstances.annotations.iter().map(Annotation::name).collect()
    }

    #[test]
    fn a_head_tells_of_its_body() {
        for (field, expected) in [
            (("expect", "100-continue"), &["expect_continue"][..]),
            (("content-encoding", "gzip"), &["compressed_request"]),
            (("content-encoding", "Identity"), &[]),
            (("accept-encoding", "gzip"), &[]),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(field.0, field.1.parse().unwrap());
            let mut ledger = Ledger::open(Stamp::now(), 0);
            assert!(!note_request_head(&headers, &Config::default(), &mut ledger));
            assert_eq!(names(&ledger), expected, "{field:?}");
        }
    }
}
