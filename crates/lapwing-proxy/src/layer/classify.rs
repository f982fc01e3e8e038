//! Names the request's route and model by its head, notes what the head says of the body, and chooses the reader of its bodies.
//!
//! Stage: validation. It reads no body itself and never changes a request.

use std::task::{Context, Poll};

use http::Method;
use tower::Service;

use crate::body::TrackedRequest;
use crate::in_flight::RequestAccount;
use crate::in_flight::circumstances::note_request_head;

/// Applies [`Classify`].
#[derive(Clone, Debug)]
pub(crate) struct ClassifyLayer;

impl<S> tower::Layer<S> for ClassifyLayer {
    type Service = Classify<S>;

    fn layer(&self, inner: S) -> Classify<S> {
        Classify { inner }
    }
}

/// Classifies requests.
#[derive(Clone, Debug)]
pub(crate) struct Classify<S> {
    inner: S,
}

impl<S, B, A> Service<TrackedRequest<B, A>> for Classify<S>
where
    A: AsRef<RequestAccount>,
    S: Service<TrackedRequest<B, A>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, tracked: TrackedRequest<B, A>) -> S::Future {
        let TrackedRequest { request, in_flight } = &tracked;
        let (method, path, headers) = (request.method(), request.uri().path(), request.headers());
        A::as_ref(in_flight).open_reader(method == Method::POST, |observer, ledger| {
            note_request_head(headers, ledger);
            observer.request(method, path, headers, ledger)
        });
        self.inner.call(tracked)
    }
}
