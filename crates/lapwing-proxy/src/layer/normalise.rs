//! Makes each request's head one that may be forwarded, or refuses it (`head`).
//!
//! Stage: validation. It reads no body.

use std::future::{Ready, ready};
use std::task::{Context, Poll};

use futures_util::future::Either;
use tower::Service;

use crate::body::TrackedRequest;
use crate::error::Error;
use crate::head::normalise_request;

/// Applies [`Normalise`].
#[derive(Clone, Debug)]
pub(crate) struct NormaliseLayer;

impl<S> tower::Layer<S> for NormaliseLayer {
    type Service = Normalise<S>;

    fn layer(&self, inner: S) -> Normalise<S> {
        Normalise { inner }
    }
}

/// Normalises requests' heads.
#[derive(Clone, Debug)]
pub(crate) struct Normalise<S> {
    inner: S,
}

impl<S, B, A> Service<TrackedRequest<B, A>> for Normalise<S>
where
    S: Service<TrackedRequest<B, A>, Error = Error>,
{
    type Response = S::Response;
    type Error = Error;
    type Future = Either<S::Future, Ready<Result<S::Response, Error>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut tracked: TrackedRequest<B, A>) -> Self::Future {
        match normalise_request(&mut tracked.request) {
            Ok(()) => Either::Left(self.inner.call(tracked)),
            Err(refused) => Either::Right(ready(Err(Error::Refused(refused)))),
        }
    }
}
