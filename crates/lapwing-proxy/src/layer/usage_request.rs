//! Asks the server for more than the client did (`proxy.amend`), and cuts it out of the response again: [`UsageRequest`], the innermost
//! layer, and [`BufferedResponse`], the outermost. That holds the head of a response back whose body is gathered and rewritten whole, for
//! only then is its length known; it stands outside the ledger, whose guard the body needs to be counted meanwhile.
//!
//! Stage: none; holding a request until its body has come counts as ingress. They hold only requests that may be changed, within the bounds
//! of the section `hold`, and pass every other request and response unchanged.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::future::Either;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use pin_project_lite::pin_project;
use tower::Service;

use crate::body::{MAX_GATHERED_BYTES, RequestBody, ResponseBody, ResponseRewrite, TrackedRequest, hold, passes_unheld};
use crate::error::Error;
use crate::upstream::{KnowsTraits, UpstreamTraits};
use lapwing_metrics::{Counter, Counters};
use lapwing_protocol::amend::{AddedOption, CompletionsRoute, UsageStyle, amend_request};

/// Fields that hold a digest or signature of a body's bytes.
const DIGESTS: [HeaderName; 5] = [
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("repr-digest"),
    HeaderName::from_static("digest"),
    HeaderName::from_static("content-md5"),
    HeaderName::from_static("signature"),
];

/// Applies [`UsageRequest`].
#[derive(Clone, Debug)]
pub(crate) struct UsageRequestLayer;

impl<S> tower::Layer<S> for UsageRequestLayer {
    type Service = UsageRequest<S>;

    fn layer(&self, inner: S) -> UsageRequest<S> {
        UsageRequest { inner }
    }
}

/// Amends requests, and the responses to them. It reads and writes what is known of the upstream that each goes to.
#[derive(Clone, Debug)]
pub(crate) struct UsageRequest<S> {
    inner: S,
}

type Answer = Result<Response<ResponseBody>, Error>;

impl<S> Service<TrackedRequest> for UsageRequest<S>
where
    S: Service<TrackedRequest, Response = Response<ResponseBody>, Error = Error, Future: Send>
        + KnowsTraits
        + Clone
        + Send
        + 'static,
{
    type Response = Response<ResponseBody>;
    type Error = Error;
    type Future = Either<S::Future, Pin<Box<dyn Future<Output = Answer> + Send>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, tracked: TrackedRequest) -> Self::Future {
        if tracked.in_flight.account.context.config.amend.is_any()
            && let Some(route) = eligible_route(&tracked.request)
            && may_be_held(&tracked)
        {
            let traits = self.inner.traits(&tracked.request).clone();
            return Either::Right(Box::pin(with_usage_request(self.inner.clone(), traits, tracked, route)));
        }
        Either::Left(self.inner.call(tracked))
    }
}

/// Returns the route of a request that may be changed, by its head.
fn eligible_route(request: &Request<RequestBody>) -> Option<CompletionsRoute> {
    let headers = request.headers();
    let is_plain = *request.method() == Method::POST
        && is_type(headers, "application/json")
        && !is_encoded(headers)
        && ![EXPECT, UPGRADE].iter().chain(&DIGESTS).any(|name| headers.contains_key(name));
    let has_body = !request.body().is_end_stream();
    if is_plain && has_body { CompletionsRoute::of(request.uri().path()) } else { None }
}

/// Whether a request that may be changed can be held. If not, it is counted.
fn may_be_held(tracked: &TrackedRequest) -> bool {
    let passed = passes_unheld(tracked);
    if let Some(passed) = passed {
        tracked.in_flight.account.context.counters.bump(passed.counter());
    }
    passed.is_none()
}

fn is_type(headers: &HeaderMap, expected: &str) -> bool {
    let Some(Ok(value)) = headers.get(CONTENT_TYPE).map(HeaderValue::to_str) else { return false };
    value.split(';').next().is_some_and(|essence| essence.trim().eq_ignore_ascii_case(expected))
}

fn is_encoded(headers: &HeaderMap) -> bool {
    headers.get_all(CONTENT_ENCODING).iter().any(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity"))
}

/// What is done with the response.
#[derive(Clone, Copy)]
enum Plan {
    CutUsage(UsageStyle),
    LearnUsageStyle(CompletionsRoute),
    CutMetaInfo,
}

async fn with_usage_request<S>(
    mut inner: S,
    traits: Arc<UpstreamTraits>,
    tracked: TrackedRequest,
    route: CompletionsRoute,
) -> Answer
where
    S: Service<TrackedRequest, Response = Response<ResponseBody>, Error = Error> + Send,
{
    let context = tracked.in_flight.account.context.clone();
    let mut held = hold(tracked).await?;
    let body = held.body();
    let edit = body.as_ref().and_then(|body| amend_request(body, context.config.amend));
    let plan = edit.as_ref().and_then(|edit| match (edit.added, traits.usage_style(route)) {
        (AddedOption::MetaInfo, _) => Some(Plan::CutMetaInfo),
        (AddedOption::Usage, None) => Some(Plan::LearnUsageStyle(route)),
        (AddedOption::Usage, Some(UsageStyle::Unasked)) => None,
        (AddedOption::Usage, Some(style)) => Some(Plan::CutUsage(style)),
    });
    if let (Some(body), Some(edit), Some(Plan::CutUsage(_) | Plan::CutMetaInfo)) = (&body, &edit, plan) {
        held.replace_body(Bytes::from(edit.apply(body)));
        context.counters.bump(Counter::Amended);
    }
    let mut tracked = held.into_request();
    if plan.is_some() {
        // a compressed response could not be cut
        tracked.request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    }
    let mut response = inner.call(tracked).await?;
    if let Some(plan) = plan {
        rewrite(&mut response, plan, &context.counters, traits);
    }
    Ok(response)
}

/// Removes from the response what the amended request caused. Where that is not possible, it is counted.
fn rewrite(response: &mut Response<ResponseBody>, plan: Plan, counters: &Arc<Counters>, traits: Arc<UpstreamTraits>) {
    let headers = response.headers();
    let is_meant = match plan {
        Plan::CutUsage(_) | Plan::LearnUsageStyle(_) => is_type(headers, "text/event-stream"),
        Plan::CutMetaInfo => is_type(headers, "application/json"),
    };
    if !response.status().is_success() || !is_meant || response.body().is_end_stream() {
        return; // an error, or a server that does not know the option
    }
    let is_readable = !is_encoded(headers) && !DIGESTS.iter().any(|name| headers.contains_key(name));
    let length = response.body().size_hint().exact();
    let counters = counters.clone();
    let rewrite = match plan {
        Plan::LearnUsageStyle(route) if is_readable => {
            ResponseRewrite::learn_usage_style(counters, move |style| traits.learn_usage_style(route, style))
        }
        Plan::LearnUsageStyle(_) => return,
        Plan::CutUsage(style) if is_readable => {
            response.headers_mut().remove(CONTENT_LENGTH);
            ResponseRewrite::cut_usage(counters, style)
        }
        Plan::CutMetaInfo if is_readable && length.is_none_or(|length| length <= MAX_GATHERED_BYTES as u64) => {
            ResponseRewrite::cut_meta_info(counters)
        }
        Plan::CutUsage(_) | Plan::CutMetaInfo => return counters.bump(Counter::AmendFailed),
    };
    response.body_mut().rewrite(rewrite);
}

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
