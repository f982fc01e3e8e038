//! Places each request at one of several upstreams ([`Placement`]). Where there is one, it does nothing.
//!
//! Stage: validation. It reads no body and never waits.

use std::sync::Arc;
use std::task::{Context, Poll};

use tower::Service;

use crate::body::TrackedRequest;
use crate::placement::Placement;

/// Applies [`Place`].
#[derive(Clone, Debug)]
pub(crate) struct PlaceLayer {
    /// What chooses, if there are several.
    pub(crate) placement: Option<Arc<Placement>>,
}

impl<S> tower::Layer<S> for PlaceLayer {
    type Service = Place<S>;

    fn layer(&self, inner: S) -> Place<S> {
        Place { inner, placement: self.placement.clone() }
    }
}

/// Notes in the request's extensions where it goes.
#[derive(Clone, Debug)]
pub(crate) struct Place<S> {
    inner: S,
    placement: Option<Arc<Placement>>,
}

impl<S: Service<TrackedRequest>> Service<TrackedRequest> for Place<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut tracked: TrackedRequest) -> S::Future {
        if let Some(placement) = &self.placement {
            let placed = placement.place(&tracked.request, &tracked.in_flight.account);
            tracked.request.extensions_mut().insert(placed);
        }
        self.inner.call(tracked)
    }
}
