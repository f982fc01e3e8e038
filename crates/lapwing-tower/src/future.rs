//! The future of a response: hands the end of the ledger on to the response's body.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::{HeaderName, HeaderValue, Response, StatusCode};
use http_body::Body;
use pin_project_lite::pin_project;

use crate::body::ResponseBody;
use crate::in_handler::ClosingGuard;
use lapwing_ledger::{Outcome, Stamp};

const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

pin_project! {
    /// The answer of [`LedgerService`](crate::LedgerService).
    #[derive(Debug)]
    pub struct ResponseFuture<F> {
        #[pin]
        answer: F,
        guard: ClosingGuard,
        has_server_timing: bool,
        is_head: bool,
    }
}

impl<F> ResponseFuture<F> {
    pub(crate) const fn new(answer: F, guard: ClosingGuard, has_server_timing: bool, is_head: bool) -> Self {
        Self { answer, guard, has_server_timing, is_head }
    }
}

impl<F, B, E> Future for ResponseFuture<F>
where
    F: Future<Output = Result<Response<B>, E>>,
    B: Body,
{
    type Output = Result<Response<ResponseBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        this.guard.is_running = true;
        let polled = this.answer.poll(cx);
        this.guard.is_running = false;
        let now = Stamp::now();
        let mut response = match ready!(polled) {
            Ok(response) => response,
            Err(error) => {
                this.guard.close(Some(Outcome::Broken), now);
                return Poll::Ready(Err(error));
            }
        };
        if let Some(exchange) = this.guard.get() {
            exchange.on_head(&response, now);
            let timing = || exchange.server_timing(now).and_then(|text| HeaderValue::try_from(text).ok());
            if let Some(value) = this.has_server_timing.then(timing).flatten() {
                response.headers_mut().append(SERVER_TIMING, value);
            }
        }
        let has_no_body = *this.is_head || matches!(response.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        if has_no_body || response.body().is_end_stream() {
            this.guard.close(None, now);
        }
        let guard = this.guard.take();
        Poll::Ready(Ok(response.map(|body| ResponseBody::new(body, guard, now))))
    }
}
