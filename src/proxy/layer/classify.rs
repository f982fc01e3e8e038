//! Names the request's route and model by its head, and finds a reader for its bodies.
//!
//! Stage: validation. It looks at no body itself, and never changes a request.

use std::task::{Context, Poll};

use tower::Service;

use crate::proxy::exchange::tracked_request::Call;

/// Applies [`Classified`].
#[derive(Clone, Debug)]
pub(crate) struct ClassifyLayer;

impl<S> tower::Layer<S> for ClassifyLayer {
    type Service = Classified<S>;

    fn layer(&self, inner: S) -> Classified<S> {
        Classified { inner }
    }
}

/// Classifies.
#[derive(Clone, Debug)]
pub(crate) struct Classified<S> {
    inner: S,
}

impl<S: Service<Call>> Service<Call> for Classified<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, call: Call) -> S::Future {
        let (method, path, headers) = (call.request.method(), call.request.uri().path(), call.request.headers());
        let mut tap = None;
        call.live.observe(|observer, ledger| tap = observer.request(method, path, headers, ledger));
        if let Some(tap) = tap {
            call.live.read_by(tap);
        }
        self.inner.call(call)
    }
}
