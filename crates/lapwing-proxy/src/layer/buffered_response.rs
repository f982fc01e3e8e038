//! Holds the head of a response back until its body has been gathered and rewritten, for only then is its length known.
//!
//! Stage: none. It stands outside the ledger, whose guard the body needs to be counted while it is gathered. It never
//! touches any other response.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::header::CONTENT_LENGTH;
use http::{HeaderValue, Request, Response};
use hyper::body::Incoming;
use pin_project_lite::pin_project;
use tower::Service;

use crate::body::ResponseBody;

/// Applies [`BufferedResponse`].
#[derive(Clone, Debug)]
pub(crate) struct BufferedResponseLayer;

impl<S> tower::Layer<S> for BufferedResponseLayer {
    type Service = BufferedResponse<S>;

    fn layer(&self, inner: S) -> BufferedResponse<S> {
        BufferedResponse { inner }
    }
}

/// Buffers responses that are to be rewritten whole.
#[derive(Clone, Debug)]
pub(crate) struct BufferedResponse<S> {
    inner: S,
}

impl<S> Service<Request<Incoming>> for BufferedResponse<S>
where
    S: Service<Request<Incoming>, Response = Response<ResponseBody>, Error = Infallible>,
{
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        ResponseFuture { answer: self.inner.call(request), waiting: None }
    }
}

pin_project! {
    /// The response, once its length is known.
    pub(crate) struct ResponseFuture<F> {
        #[pin]
        answer: F,
        // rare and large: boxed, so that other requests do not carry its size
        waiting: Option<Box<Response<ResponseBody>>>,
    }
}

impl<F> Future for ResponseFuture<F>
where
    F: Future<Output = Result<Response<ResponseBody>, Infallible>>,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let mut response = match this.waiting.take() {
            Some(waiting) => waiting,
            None => {
                let response = match ready!(this.answer.poll(cx)) {
                    Ok(response) => response,
                    Err(never) => match never {},
                };
                if !response.body().is_gathering() {
                    return Poll::Ready(Ok(response));
                }
                Box::new(response)
            }
        };
        if response.body_mut().poll_gathered(cx).is_pending() {
            *this.waiting = Some(response);
            return Poll::Pending;
        }
        if let Some(length) = response.body().rewritten_length()
            && response.headers().contains_key(CONTENT_LENGTH)
        {
            response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        Poll::Ready(Ok(*response))
    }
}
