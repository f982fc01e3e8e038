//! Answers requests by earlier answers ([`lapwing_cache::Cache`]), lets the same request several times at once be asked once, and notes what the upstream
//! answers. Where the section `cache` is off it does nothing.
//!
//! Where an answer from here is soon out of date, the upstream may be asked beside it, in the background.
//!
//! Stage: `cache` while it is looked for an answer; `queue`, phase `coalesced`, while the answer to the same request is waited for. A
//! request that may be answered from here is held until its body has come, within the bounds of the section `hold`; what passes them goes
//! on as it came. Where it is only counted what a cache would bring, nothing is held: bodies are read once both have passed.

mod asked;
mod note;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::Either;
use http::Response;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tower::Service;

use self::asked::Answer;
pub(crate) use self::asked::StackCache;
use self::note::{note_answer, note_passed};
use crate::body::capture::CaptureBudget;
use crate::body::{HeldRequest, ResponseBody, SecondRequest, TrackedRequest, hold, passes_unheld};
use crate::error::Error;
use crate::in_flight::InFlight;
use lapwing_cache::{AnswerAgain, Asking, Following, Looked};
use lapwing_ledger::{ObservedEvent, ServedBy, Stage, Stamp};
use lapwing_metrics::Counter;
use lapwing_net::Tasks;
use lapwing_protocol::is_grpc;

/// Applies [`Cached`].
#[derive(Clone, Debug)]
pub(crate) struct CacheLayer(pub(crate) Option<StackCache>);

impl<S> tower::Layer<S> for CacheLayer {
    type Service = Cached<S>;

    fn layer(&self, inner: S) -> Cached<S> {
        Cached { inner, cache: self.0.clone() }
    }
}

/// Answers requests by earlier answers.
#[derive(Clone, Debug)]
pub(crate) struct Cached<S> {
    inner: S,
    cache: Option<StackCache>,
}

impl<S> Service<TrackedRequest> for Cached<S>
where
    S: Service<TrackedRequest, Response = Response<ResponseBody>, Error = Error, Future: Send> + Clone + Send + 'static,
{
    type Response = Response<ResponseBody>;
    type Error = Error;
    type Future = Either<S::Future, Pin<Box<dyn Future<Output = Answer> + Send>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx)
    }

    #[inline]
    fn call(&mut self, tracked: TrackedRequest) -> Self::Future {
        match &self.cache {
            Some(cache) if !cache.cache.ignores(&tracked.request) => cached(&mut self.inner, cache, tracked),
            _ => Either::Left(self.inner.call(tracked)),
        }
    }
}

/// A request of which something is of interest. Apart, so that all others need not carry it.
#[inline(never)]
fn cached<S>(
    inner: &mut S,
    cache: &StackCache,
    tracked: TrackedRequest,
) -> Either<S::Future, Pin<Box<dyn Future<Output = Answer> + Send>>>
where
    S: Service<TrackedRequest, Response = Response<ResponseBody>, Error = Error, Future: Send> + Clone + Send + 'static,
{
    let passed = passes_unheld(&tracked);
    if passed.is_none() {
        return Either::Right(if cache.cache.may_answer(&tracked.request) {
            Box::pin(looked(inner.clone(), cache.clone(), tracked))
        } else {
            Box::pin(note_passed(inner.clone(), cache.clone(), tracked))
        });
    }
    if let Some(passed) = passed.filter(|_| cache.cache.may_answer(&tracked.request)) {
        tracked.in_flight.account.context.counters.bump(passed.counter());
    }
    Either::Left(inner.call(tracked))
}

/// Holds a request, and looks for an answer to it.
async fn looked<S>(mut inner: S, cache: StackCache, tracked: TrackedRequest) -> Answer
where
    S: Service<TrackedRequest, Response = Response<ResponseBody>, Error = Error, Future: Send> + Clone + Send + 'static,
{
    let in_flight = tracked.in_flight.clone();
    let mut held = hold(tracked).await?;
    let began = Stamp::now();
    let Some(question) = cache.question(&mut held, began) else {
        return inner.call(held.into_request()).await;
    };
    let looked = cache.cache.look(question, began);
    let found = Stamp::now();
    in_flight.write_ledger(|ledger| ledger.observe(Stage::Cache, ObservedEvent::Cache, began, found));
    match looked {
        Looked::Answered(answer, None) => Ok(respond(&in_flight, *answer, ServedBy::L1)),
        Looked::Answered(answer, Some(asking)) => {
            refresh(inner, &cache, held.into_request(), asking);
            Ok(respond(&in_flight, *answer, ServedBy::L1))
        }
        Looked::OnlyIfCached => Err(Error::NotCached { is_grpc: is_grpc(held.head().headers()) }),
        Looked::Asked(asking) => ask(inner, &cache, held.into_request(), asking).await,
        Looked::Follows(following) => follow(inner, &cache, held, following, found).await,
    }
}

/// Waits for the answer to the same request.
async fn follow<S>(mut inner: S, cache: &StackCache, held: HeldRequest, mut following: Following, began: Stamp) -> Answer
where
    S: Service<TrackedRequest, Response = Response<ResponseBody>, Error = Error, Future: Send> + Clone + Send + 'static,
{
    let tracked = held.into_request();
    let in_flight = tracked.in_flight.clone();
    let answer = timeout(Duration::from_nanos(following.wait_ns()), following.answer()).await.ok().flatten();
    in_flight.write_ledger(|ledger| ledger.observe(Stage::Queue, ObservedEvent::Coalesce, began, Stamp::now()));
    match (answer, following) {
        (Some(answer), _) => Ok(respond(&in_flight, answer, ServedBy::Coalesced)),
        (None, following) => match following.alone() {
            Some(asking) => ask(inner, cache, tracked, asking).await,
            None => inner.call(tracked).await,
        },
    }
}

/// Asks the upstream. One whom others may follow is asked in a task of its own, so that it comes to its end without its client.
async fn ask<S>(inner: S, cache: &StackCache, tracked: TrackedRequest, asking: Asking) -> Answer
where
    S: Service<TrackedRequest, Response = Response<ResponseBody>, Error = Error, Future: Send> + Clone + Send + 'static,
{
    let (budget, tasks) = (cache.budget.clone(), tracked.in_flight.worker.tasks.clone());
    if !asking.leads() {
        return asked(inner, tracked, asking, (&budget, &tasks)).await;
    }
    let (tell, told) = oneshot::channel();
    tracked.in_flight.account.outlive_client();
    let tasks_of_answer = tasks.clone();
    tasks.spawn(async move {
        let answer = asked(inner, tracked, asking, (&budget, &tasks_of_answer)).await;
        if let Err(Ok(response)) = tell.send(answer) {
            response.into_body().read_out().await;
        }
    });
    told.await.unwrap_or_else(|_| Err(Error::RequestCut("its task ended".to_owned())))
}

/// Asks other processes for an answer, if there are any, and then the upstream.
async fn asked<S>(mut inner: S, tracked: TrackedRequest, mut asking: Asking, parts: (&Arc<CaptureBudget>, &Tasks)) -> Answer
where
    S: Service<TrackedRequest, Response = Response<ResponseBody>, Error = Error, Future: Send> + Send,
{
    if asking.looks_further() {
        let (in_flight, began) = (tracked.in_flight.clone(), Stamp::now());
        let answer = asking.look_further().await;
        in_flight.write_ledger(|ledger| ledger.observe(Stage::Cache, ObservedEvent::Cache, began, Stamp::now()));
        if let Some(answer) = answer {
            return Ok(respond(&in_flight, answer, ServedBy::L2));
        }
    }
    let answer = inner.call(tracked).await;
    answer.map(|response| note_answer(response, asking, parts))
}

/// Asks the upstream beside an answer from here, in a task and an account of its own, unless it may have something else to do: other
/// requests are in flight.
fn refresh<S>(mut inner: S, cache: &StackCache, TrackedRequest { request, in_flight }: TrackedRequest, asking: Asking)
where
    S: Service<TrackedRequest, Response = Response<ResponseBody>, Error = Error, Future: Send> + Send + 'static,
{
    let is_alone = in_flight.account.context.counters.get(Counter::InFlight) <= 1;
    let parts = is_alone.then(|| Some((SecondRequest::of(&request)?, in_flight.leg()?)));
    let Some((request, leg)) = parts.flatten() else { return };
    let (budget, tasks) = (cache.budget.clone(), leg.worker.tasks.clone());
    leg.silence();
    tasks.clone().spawn(async move {
        let tracked = TrackedRequest { request: Box::new(request.into_request()), in_flight: leg.clone() };
        if let Ok(response) = inner.call(tracked).await {
            note_answer(response, asking, (&budget, &tasks)).into_body().read_out().await;
        }
        leg.account.end_window(Stamp::now());
    });
}

/// Gives an answer again.
fn respond(in_flight: &InFlight, again: AnswerAgain, by: ServedBy) -> Response<ResponseBody> {
    let AnswerAgain { status, headers, body, trailers } = again;
    in_flight.account.answer_again(status, by);
    let mut response = Response::new(ResponseBody::again(body, trailers));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}
