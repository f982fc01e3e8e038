//! Lets a tap see admitted requests: it may capture their bodies and answers while they pass, and write into their accounts.
//!
//! Stage: none. The exchange is never delayed, changed or failed by what is captured: bodies are referenced while they pass. Which
//! requests are captured, and for what, is the tap's business; one that its share does not draw costs the draw and no call.

use std::fmt::Debug;
use std::future::Future;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};

use futures_util::future::Either;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Request, Response, StatusCode, Version};
use smallvec::SmallVec;
use tokio::sync::oneshot;
use tower::Service;

use crate::body::capture::{BodyCapture, CaptureBudget};
use crate::body::{RequestBody, ResponseBody, TrackedRequest};
use crate::error::Error;
use crate::in_flight::{InFlight, OnClose};
use lapwing_ledger::{LabelId, Ledger, Stamp, TraceId};
use lapwing_protocol::ShareDraw;

/// Sees the requests of a stack.
pub trait ExchangeTap: Debug + Send + Sync {
    /// Sees a request before it goes to the upstream. `is_drawn` says whether the tap's share drew it. It must be quick and must not
    /// wait: the request does.
    fn on_request(&self, request: &mut PassingRequest<'_>, is_drawn: bool);
}

/// A tap in a stack, and which requests it sees.
#[derive(Clone, Debug)]
pub struct StackTap {
    /// Sees them.
    pub tap: Arc<dyn ExchangeTap>,
    /// The share of requests that it sees.
    pub share: Option<ShareDraw>,
    /// Whether it sees all others too.
    pub sees_all: bool,
    /// Whether it sees all others for now. Read for each request.
    pub sees_all_now: Arc<AtomicBool>,
}

/// A request on its way through the stack.
#[derive(Debug)]
pub struct PassingRequest<'r> {
    request: &'r mut Request<RequestBody>,
    in_flight: &'r Arc<InFlight>,
    answers: SmallVec<[AwaitedAnswer; 2]>,
}

impl PassingRequest<'_> {
    /// Its method.
    #[must_use]
    pub fn method(&self) -> &Method {
        self.request.method()
    }

    /// Its path, without the query.
    #[must_use]
    pub fn path(&self) -> &str {
        self.request.uri().path()
    }

    /// Its headers.
    #[must_use]
    pub fn headers(&self) -> &HeaderMap {
        self.request.headers()
    }

    /// Its headers, which the upstream gets.
    pub fn headers_mut(&mut self) -> &mut HeaderMap {
        self.request.headers_mut()
    }

    /// Lets `act` write into its open ledger; `None`, and counted, if that was handed over. The ledger is locked meanwhile: `act` must
    /// not call this again.
    pub fn with_ledger<T>(&mut self, act: impl FnOnce(&mut Self, &mut Ledger) -> T) -> Option<T> {
        let in_flight = self.in_flight;
        in_flight.write_ledger(|ledger| act(self, ledger))
    }

    /// Captures the request, which began at `arrived`, within `budget`. Its answer is captured if what comes with it is given to
    /// [`Self::await_answer`].
    pub fn capture(&mut self, arrived: Stamp, budget: &Arc<CaptureBudget>) -> (CapturedExchange, AwaitedAnswer) {
        let (sender, answer) = oneshot::channel();
        let captured = CapturedExchange {
            arrived,
            method: self.request.method().clone(),
            path: self.request.uri().path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/")),
            version: self.request.version(),
            headers: self.request.headers().clone(),
            body: self.request.body_mut().capture(budget),
            answer,
        };
        (captured, AwaitedAnswer { sender, budget: budget.clone(), in_flight: self.in_flight.clone() })
    }

    /// Captures the answer to the request when it comes.
    pub fn await_answer(&mut self, answer: AwaitedAnswer) {
        self.answers.push(answer);
    }

    /// Has `on_close` called when the request's ledger closes.
    pub fn add_on_close(&mut self, on_close: Box<dyn OnClose>) {
        self.in_flight.add_on_close(on_close);
    }
}

/// A captured request. Its body, and the answer, may still be on their way.
#[derive(Debug)]
pub struct CapturedExchange {
    /// When its first byte arrived.
    pub arrived: Stamp,
    /// Its method.
    pub method: Method,
    /// Its path and query.
    pub path: PathAndQuery,
    /// The client's HTTP version.
    pub version: Version,
    /// Its headers, as the client sent them.
    pub headers: HeaderMap,
    /// Its body, as far as it has come.
    pub body: BodyCapture,
    /// The upstream's answer. Closed without one if the request failed or the client left.
    pub answer: oneshot::Receiver<CapturedAnswer>,
}

/// The upstream's answer to a captured request.
#[derive(Debug)]
pub struct CapturedAnswer {
    /// The trace of the request that the upstream got; zero without tracing.
    pub trace: TraceId,
    /// Who answered; `None` if the request's ledger was handed over by then.
    pub answered_by: Option<AnsweredBy>,
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body, as far as it has come.
    pub body: BodyCapture,
}

/// Which of several upstreams answered a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnsweredBy {
    /// The label of its exchanges.
    pub upstream: LabelId,
    /// The key by which a live split placed the request there.
    pub split_key: Option<NonZeroU32>,
}

/// An answer that is captured when it comes. Dropped: it is not, and the captured request learns that.
#[derive(Debug)]
pub struct AwaitedAnswer {
    sender: oneshot::Sender<CapturedAnswer>,
    budget: Arc<CaptureBudget>,
    in_flight: Arc<InFlight>,
}

impl AwaitedAnswer {
    /// Captures the body of `response` while it passes.
    fn attach(self, mut response: Response<ResponseBody>) -> Response<ResponseBody> {
        let body = response.body_mut().capture(&self.budget);
        let known = self.in_flight.read_ledger(|ledger| {
            let Ledger { trace, series, split_key, .. } = ledger;
            (*trace, AnsweredBy { upstream: series.upstream, split_key: *split_key })
        });
        let (trace, answered_by) = known.unzip();
        let (status, headers) = (response.status(), response.headers().clone());
        let answer = CapturedAnswer { trace: trace.unwrap_or_default(), answered_by, status, headers, body };
        drop(self.sender.send(answer)); // the capture may have been given up
        response
    }
}

/// Applies [`Tapped`].
#[derive(Clone, Debug)]
pub(crate) struct TapLayer(Option<StackTap>);

/// Returns the layer for `tap`.
pub(crate) const fn layer(tap: Option<StackTap>) -> TapLayer {
    TapLayer(tap)
}

impl<S> tower::Layer<S> for TapLayer {
    type Service = Tapped<S>;

    fn layer(&self, inner: S) -> Tapped<S> {
        Tapped { inner, tap: self.0.clone() }
    }
}

/// Lets a tap see requests.
#[derive(Clone, Debug)]
pub(crate) struct Tapped<S> {
    inner: S,
    tap: Option<StackTap>,
}

type Answer = Result<Response<ResponseBody>, Error>;

impl<S> Service<TrackedRequest> for Tapped<S>
where
    S: Service<TrackedRequest, Response = Response<ResponseBody>, Error = Error, Future: Send + 'static>,
{
    type Response = Response<ResponseBody>;
    type Error = Error;
    type Future = Either<S::Future, Pin<Box<dyn Future<Output = Answer> + Send>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut tracked: TrackedRequest) -> Self::Future {
        if let Some(StackTap { tap, share, sees_all, sees_all_now }) = &self.tap {
            let is_drawn = share.as_ref().is_some_and(|share| share.draws(tracked.request.headers()));
            if is_drawn || *sees_all || sees_all_now.load(Relaxed) {
                let TrackedRequest { request, in_flight } = &mut tracked;
                let mut passing = PassingRequest { request, in_flight, answers: SmallVec::new() };
                tap.on_request(&mut passing, is_drawn);
                let answers = passing.answers;
                if !answers.is_empty() {
                    let response = self.inner.call(tracked);
                    return Either::Right(Box::pin(async move {
                        let attach = |response, awaited: AwaitedAnswer| awaited.attach(response);
                        response.await.map(|response| answers.into_iter().fold(response, attach))
                    }));
                }
            }
        }
        Either::Left(self.inner.call(tracked))
    }
}
