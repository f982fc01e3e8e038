//! Asks the server for more than the client did (`proxy.amend`), and has it taken out of the response again.
//!
//! Stage: none of its own; a body that is read whole first arrives in ingress. It looks only at requests that may be
//! changed, keeps at most [`MAX_BODY_BYTES`] of one, and passes what it does not change as it came.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::future::Either;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response};
use http_body::{Body, Frame};
use tower::Service;

use crate::ledger::{ObservedEvent, Stage, Stamp};
use crate::metrics::Counter;
use crate::protocol::amend::{AddedOption, CompletionsRoute, UsageStyle, amend_request};
use crate::proxy::body::request::RequestBody;
use crate::proxy::body::response::ResponseBody;
use crate::proxy::body::rewrite::{MAX_WHOLE_BYTES, Undo};
use crate::proxy::connection::lazy_deadline::Watch;
use crate::proxy::error::Error;
use crate::proxy::exchange::in_flight::{Live, Recorder};
use crate::proxy::exchange::tracked_request::Call;
use crate::proxy::upstream::explain_body;

/// The largest request body that may be changed, in bytes.
const MAX_BODY_BYTES: usize = 1 << 20;

/// Fields that speak of the very bytes of a body.
const DIGESTS: [HeaderName; 5] = [
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("repr-digest"),
    HeaderName::from_static("digest"),
    HeaderName::from_static("content-md5"),
    HeaderName::from_static("signature"),
];

/// Applies [`Amended`].
#[derive(Clone, Debug)]
pub(crate) struct AmendLayer;

impl<S> tower::Layer<S> for AmendLayer {
    type Service = Amended<S>;

    fn layer(&self, inner: S) -> Amended<S> {
        Amended { inner }
    }
}

/// Amends.
#[derive(Clone, Debug)]
pub(crate) struct Amended<S> {
    inner: S,
}

type Answer = Result<Response<ResponseBody>, Error>;

impl<S> Service<Call> for Amended<S>
where
    S: Service<Call, Response = Response<ResponseBody>, Error = Error, Future: Send> + Clone + Send + 'static,
{
    type Response = Response<ResponseBody>;
    type Error = Error;
    type Future = Either<S::Future, Pin<Box<dyn Future<Output = Answer> + Send>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, call: Call) -> Self::Future {
        if call.live.recorder.config.amend.is_any()
            && let Some(route) = eligible(&call.request)
        {
            return Either::Right(Box::pin(amend(self.inner.clone(), call, route)));
        }
        Either::Left(self.inner.call(call))
    }
}

/// Whether a request may be changed, by its head.
fn eligible(request: &Request<RequestBody>) -> Option<CompletionsRoute> {
    let headers = request.headers();
    let is_plain = *request.method() == Method::POST
        && is_type(headers, "application/json")
        && !is_encoded(headers)
        && ![EXPECT, UPGRADE].iter().chain(&DIGESTS).any(|name| headers.contains_key(name));
    let is_small = !request.body().is_end_stream()
        && request.body().size_hint().exact().is_none_or(|length| length <= MAX_BODY_BYTES as u64);
    if is_plain && is_small { CompletionsRoute::of(request.uri().path()) } else { None }
}

fn is_type(headers: &HeaderMap, expected: &str) -> bool {
    let Some(Ok(value)) = headers.get(CONTENT_TYPE).map(HeaderValue::to_str) else { return false };
    value.split(';').next().is_some_and(|essence| essence.trim().eq_ignore_ascii_case(expected))
}

fn is_encoded(headers: &HeaderMap) -> bool {
    headers.get_all(CONTENT_ENCODING).iter().any(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity"))
}

/// What a response is to be rid of, or to teach.
#[derive(Clone, Copy)]
enum Plan {
    Cut(UsageStyle),
    Learn(CompletionsRoute),
    MetaInfo,
}

async fn amend<S>(mut inner: S, mut call: Call, route: CompletionsRoute) -> Answer
where
    S: Service<Call, Response = Response<ResponseBody>, Error = Error> + Send,
{
    let live = call.live.clone();
    let began = Stamp::now();
    let is_sized = call.request.body().size_hint().exact().is_some();
    let mut frames = read(call.request.body_mut(), &live).await?;
    live.with(|ledger| ledger.observe(Stage::Ingress, ObservedEvent::Request, began, live_end(&live, began)));
    let body = whole(call.request.body(), &frames);
    let edit = body.as_ref().and_then(|body| amend_request(body, live.recorder.config.amend));
    let plan = edit.as_ref().and_then(|edit| match (edit.added, live.recorder.habits.get(route)) {
        (AddedOption::MetaInfo, _) => Some(Plan::MetaInfo),
        (AddedOption::Usage, None) => Some(Plan::Learn(route)),
        (AddedOption::Usage, Some(UsageStyle::Unasked)) => None,
        (AddedOption::Usage, Some(habit)) => Some(Plan::Cut(habit)),
    });
    if let (Some(body), Some(edit), Some(Plan::Cut(_) | Plan::MetaInfo)) = (&body, &edit, plan) {
        let changed = Bytes::from(edit.apply(body));
        if call.request.headers().contains_key(CONTENT_LENGTH) {
            call.request.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(changed.len()));
        }
        frames = VecDeque::from([Frame::data(changed)]);
        live.recorder.counters.bump(Counter::Amended);
    }
    call.request.body_mut().put_back(frames, is_sized);
    if plan.is_some() {
        // what is compressed could not be cut
        call.request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    }
    let mut response = inner.call(call).await?;
    if let Some(plan) = plan {
        undo(&mut response, plan, &live.recorder);
    }
    Ok(response)
}

/// When the request was read to its end, as far as it was.
fn live_end(live: &Live, began: Stamp) -> Stamp {
    live.request_end().unwrap_or_else(|| live.request_last()).max(began)
}

/// Reads a body to its end, or until it is too large.
async fn read(body: &mut RequestBody, live: &Live) -> Result<VecDeque<Frame<Bytes>>, Error> {
    let limit = live.recorder.config.idle_timeout.get();
    let (mut frames, mut length, mut watch) = (VecDeque::new(), 0, Watch::default());
    while length <= MAX_BODY_BYTES {
        let next = poll_fn(|cx| match Pin::new(&mut *body).poll_frame(cx) {
            Poll::Ready(next) => Poll::Ready(next.transpose().map_err(|error| explain_body(&error))),
            Poll::Pending if watch.expired(cx, live.request_last(), limit) => Poll::Ready(Err(Error::RequestStalled { limit })),
            Poll::Pending => Poll::Pending,
        });
        let Some(frame) = next.await? else { break };
        length += frame.data_ref().map_or(0, Bytes::len);
        frames.push_back(frame);
    }
    Ok(frames)
}

/// The body in one piece; `None` where it is not all there, or has trailers.
fn whole(body: &RequestBody, frames: &VecDeque<Frame<Bytes>>) -> Option<Bytes> {
    if !body.is_end_stream() {
        return None;
    }
    let pieces: Option<Vec<&Bytes>> = frames.iter().map(Frame::data_ref).collect();
    Some(match pieces?.as_slice() {
        [one] => Bytes::clone(one),
        many => many.iter().flat_map(|piece| piece.iter().copied()).collect(),
    })
}

/// Has `response` rid of what was asked for; where it cannot be, that is counted.
fn undo(response: &mut Response<ResponseBody>, plan: Plan, recorder: &Arc<Recorder>) {
    let headers = response.headers();
    let is_meant = match plan {
        Plan::Cut(_) | Plan::Learn(_) => is_type(headers, "text/event-stream"),
        Plan::MetaInfo => is_type(headers, "application/json"),
    };
    if !response.status().is_success() || !is_meant || response.body().is_end_stream() {
        return; // an error, or a server that knows of no such thing
    }
    let is_readable = !is_encoded(headers) && !DIGESTS.iter().any(|name| headers.contains_key(name));
    let length = response.body().size_hint().exact();
    let undo = match plan {
        Plan::Learn(route) if is_readable => Undo::learning(recorder.clone(), route),
        Plan::Learn(_) => return,
        Plan::Cut(habit) if is_readable => {
            response.headers_mut().remove(CONTENT_LENGTH);
            Undo::usage(recorder.clone(), habit)
        }
        Plan::MetaInfo if is_readable && length.is_none_or(|length| length <= MAX_WHOLE_BYTES as u64) => {
            Undo::meta_info(recorder.clone())
        }
        Plan::Cut(_) | Plan::MetaInfo => return recorder.counters.bump(Counter::AmendFailed),
    };
    response.body_mut().undo(undo);
}
