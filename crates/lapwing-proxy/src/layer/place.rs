//! Chooses where each request goes ([`Placement`]), and when ([`Dispatch`]). Where there is one upstream, and no queue in front of it, it does
//! nothing.
//!
//! Stage: validation, and queue while it waits. It waits for its turn, and for its body where that decides (the model, the work): then it holds the
//! request until its body has come, within the bounds of the section `hold`; what passes them goes by what is known of it, at once.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::Either;
use http::Response;
use tower::Service;

use crate::body::{ResponseBody, TrackedRequest, hold, passes_unheld};
use crate::error::Error;
use crate::hold::HoldPassed;
use crate::in_flight::RequestAccount;
use crate::placement::Placement;
use lapwing_dispatch::{Answered, AskingAccount, Dispatch, Dispatched, Overdue, UpstreamSet};
use lapwing_ledger::ObservedEvent;
use lapwing_metrics::Counter;
use lapwing_protocol::request_match::{AwaitedOfBody, KnownRequest};
use lapwing_protocol::{ToldByBody, is_grpc};

/// Applies [`Place`].
#[derive(Clone, Debug)]
pub(crate) struct PlaceLayer {
    /// What chooses, if there are several.
    pub(crate) placement: Option<Arc<Placement>>,
    /// Where requests wait, if they may.
    pub(crate) dispatch: Option<Arc<Dispatch>>,
}

impl<S> tower::Layer<S> for PlaceLayer {
    type Service = Place<S>;

    fn layer(&self, inner: S) -> Place<S> {
        let choice = Choice { placement: self.placement.clone(), dispatch: self.dispatch.clone() };
        Place { inner, choice }
    }
}

/// Notes in the request's extensions where it goes.
#[derive(Clone, Debug)]
pub(crate) struct Place<S> {
    inner: S,
    choice: Choice,
}

/// What chooses where and when a request goes.
#[derive(Clone, Debug)]
struct Choice {
    placement: Option<Arc<Placement>>,
    dispatch: Option<Arc<Dispatch>>,
}

type Answer = Result<Response<ResponseBody>, Error>;

impl<S> Service<TrackedRequest> for Place<S>
where
    S: Service<TrackedRequest, Response = Response<ResponseBody>, Error = Error, Future: Send> + Clone + Send + 'static,
{
    type Response = Response<ResponseBody>;
    type Error = Error;
    type Future = Either<S::Future, Pin<Box<dyn Future<Output = Answer> + Send>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut tracked: TrackedRequest) -> Self::Future {
        let Choice { placement, dispatch } = &self.choice;
        let dispatch = dispatch.as_ref().filter(|dispatch| dispatch.may_hold(&tracked.request));
        // only a call of a known protocol waits: of others nobody knows what they take
        let dispatch = dispatch.filter(|_| tracked.in_flight.account.told_by_body(true) != ToldByBody::Nothing);
        let awaited = placement.as_ref().and_then(|placement| placement.awaits(&tracked.request));
        let awaited = match dispatch {
            Some(dispatch) => Some(awaited.unwrap_or_default().and_work(dispatch.asks_models())),
            None => awaited,
        };
        if awaited.is_some_and(|awaited| is_held(&tracked, awaited)) {
            let choice = Choice { placement: placement.clone(), dispatch: dispatch.cloned() };
            return Either::Right(Box::pin(place_held(self.inner.clone(), choice, tracked)));
        }
        let at = placement.as_ref().map(|placement| place(placement, &mut tracked, KnownRequest::default()));
        dispatch.iter().for_each(|dispatch| go_unheld(dispatch, at, &tracked.in_flight.account));
        Either::Left(self.inner.call(tracked))
    }
}

/// Places a request by its head and what its body tells. Returns where.
fn place(placement: &Arc<Placement>, tracked: &mut TrackedRequest, in_body: KnownRequest<'_>) -> usize {
    let placed = placement.place(&tracked.request, in_body, &tracked.in_flight.account);
    tracked.request.extensions_mut().insert(placed);
    placed.at
}

/// Whether a request is held until its body tells what is awaited of it. If it cannot be, that is counted.
fn is_held(tracked: &TrackedRequest, awaited: AwaitedOfBody) -> bool {
    let account = &tracked.in_flight.account;
    let told = |is_awaited: bool, tells: &dyn Fn() -> ToldByBody| if is_awaited { tells() } else { ToldByBody::Nothing };
    let all = [
        told(awaited.model, &|| account.told_by_body(false)),
        told(awaited.work, &|| account.told_by_body(true)),
        told(awaited.key, &|| ToldByBody::of_json(tracked.request.method(), tracked.request.headers())),
    ];
    let passed = if all.contains(&ToldByBody::Read) {
        passes_unheld(tracked)
    } else if all.contains(&ToldByBody::Unread) {
        Some(HoldPassed::Unread)
    } else {
        return false;
    };
    if let Some(passed) = passed {
        account.context.counters.bump(passed.counter());
    }
    passed.is_none()
}

async fn place_held<S>(mut inner: S, choice: Choice, tracked: TrackedRequest) -> Answer
where
    S: Service<TrackedRequest, Response = Response<ResponseBody>, Error = Error> + Send,
{
    let mut held = hold(tracked).await?;
    let model = held.tracked().in_flight.account.named_model();
    let work = if held.is_whole() { held.tracked().in_flight.account.asked_work() } else { None };
    let known = KnownRequest { model: model.as_deref(), work, key: None };
    let key = match &choice.placement {
        Some(placement) if held.is_whole() => placement.key_in(held.head(), known, held.pieces()),
        _ => None,
    };
    let known = KnownRequest { key: key.as_deref(), ..known };
    let Choice { placement, dispatch } = &choice;
    match dispatch {
        Some(dispatch) if held.is_whole() => dispatched(dispatch, placement.as_ref(), held.tracked(), known).await?,
        _ => {
            let at = placement.as_ref().map(|placement| place(placement, held.tracked(), known));
            dispatch.iter().for_each(|dispatch| go_unheld(dispatch, at, &held.tracked().in_flight.account));
        }
    }
    held.note_queue(ObservedEvent::Dispatch);
    inner.call(held.into_request()).await
}

/// Waits until it is a request's turn, and notes where it goes.
async fn dispatched(
    dispatch: &Dispatch,
    placement: Option<&Arc<Placement>>,
    tracked: &mut TrackedRequest,
    known: KnownRequest<'_>,
) -> Result<(), Error> {
    let in_flight = tracked.in_flight.clone();
    let account = &in_flight.account;
    if let Some(model) = known.model {
        account.count_under(model);
    }
    account.note_asked_deadline();
    let pool = placement.and_then(|placement| placement.pool_of(&tracked.request, known));
    // where a split has chosen, only the time is left to choose
    let placed = match (placement, pool) {
        (Some(placement), None) => Some(place(placement, tracked, known)),
        _ => None,
    };
    let upstreams = match (placed, pool) {
        (Some(at), _) => [at].into_iter().collect(),
        (None, Some((_, members))) => members,
        (None, None) => UpstreamSet::first(1),
    };
    let is_grpc = is_grpc(tracked.request.headers());
    // an account that was handed over is of nobody any more
    let is_stateful = account.is_stateful(tracked.request.headers());
    let asking = account
        .read_ledger(|ledger| AskingAccount::of(ledger, is_stateful))
        .ok_or(Error::RequestCut("its account is closed".to_owned()))?;
    let goes = match dispatch.ask(&tracked.request, known, upstreams, &asking, &account.context.counters) {
        Answered::Goes(goes) => Some(goes),
        Answered::Waits(queued) => match queued.turn().await {
            Ok(goes) => Some(goes),
            Err(Overdue::Deadline) => {
                account.context.counters.bump(Counter::DispatchExpired);
                return Err(Error::Overdue { is_grpc });
            }
            Err(Overdue::Wait) => {
                account.context.counters.bump(Counter::DispatchWaitedLong);
                None
            }
        },
        Answered::Late { wait_ns, drain_ns } => {
            return Err(Error::WouldBeLate { wait_ns, retry_ns: drain_ns, is_grpc });
        }
        Answered::Passes => None,
    };
    let at = match (goes.as_ref().map(Dispatched::at), placement, pool) {
        (Some(at), Some(placement), Some((pool, _))) => {
            let placed = placement.place_at(pool, at, known.work, account);
            tracked.request.extensions_mut().insert(placed);
            at
        }
        (None, Some(placement), Some(_)) => place(placement, tracked, known),
        _ => placed.unwrap_or(0),
    };
    // what a split has placed stays on its side
    if pool.is_some()
        && let Some(turn) = goes.as_ref().and_then(|goes| dispatch.second(goes, upstreams, &asking, known.work))
    {
        tracked.request.extensions_mut().insert(turn);
    }
    account.take_place(goes.unwrap_or_else(|| pass(dispatch, at, account, known.work)));
    Ok(())
}

/// A request that could not be held goes to the upstream at this place, or to the only one.
fn go_unheld(dispatch: &Dispatch, at: Option<usize>, account: &RequestAccount) {
    account.context.counters.bump(Counter::DispatchPassedUnheld);
    account.take_place(pass(dispatch, at.unwrap_or(0), account, None));
}

/// A request goes to the upstream at this place without having asked.
fn pass(dispatch: &Dispatch, at: usize, account: &RequestAccount, work: Option<u64>) -> Dispatched {
    let series = account.read_ledger(|ledger| ledger.series).unwrap_or_default();
    dispatch.pass(at, series.into(), work)
}
