//! Looks up the features that a request needs, and writes them into its body (the list `hydrate`, lapwing-hydrate).
//!
//! Stage: hydration, from the question to the store to its answer, or the deadline. A request that a rule may take is held until its body has
//! come, within the bounds of the section `hold`; what is not understood goes on as it came, which is counted.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::Either;
use http::Response;
use tower::Service;

use crate::body::{HeldRequest, ResponseBody, TrackedRequest, hold, passes_unheld};
use crate::error::Error;
use lapwing_hydrate::{HydratePassed, HydrateRefused, HydratedBody, Hydration, Hydrator};
use lapwing_ledger::{ObservedEvent, Stage, Stamp, WallClock};
use lapwing_metrics::{Counter, Counters};
use lapwing_protocol::request_match::KnownRequest;

/// Applies [`Hydrate`].
#[derive(Clone, Debug)]
pub(crate) struct HydrateLayer(pub(crate) Option<Arc<Hydrator>>);

impl<S> tower::Layer<S> for HydrateLayer {
    type Service = Hydrate<S>;

    fn layer(&self, inner: S) -> Hydrate<S> {
        Hydrate { inner, hydrator: self.0.clone() }
    }
}

/// Writes features into requests.
#[derive(Clone, Debug)]
pub(crate) struct Hydrate<S> {
    inner: S,
    hydrator: Option<Arc<Hydrator>>,
}

type Answer = Result<Response<ResponseBody>, Error>;

impl<S> Service<TrackedRequest> for Hydrate<S>
where
    S: Service<TrackedRequest, Response = Response<ResponseBody>, Error = Error, Future: Send> + Clone + Send + 'static,
{
    type Response = Response<ResponseBody>;
    type Error = Error;
    type Future = Either<S::Future, Pin<Box<dyn Future<Output = Answer> + Send>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, tracked: TrackedRequest) -> Self::Future {
        if let Some(hydrator) = self.hydrator.as_ref().filter(|hydrator| hydrator.may_take(&tracked.request)) {
            let counters = &tracked.in_flight.account.context.counters;
            let unheld = passes_unheld(&tracked);
            if let Some(unheld) = unheld {
                counters.bump(unheld.counter());
            }
            match Hydration::passes(&tracked.request).or(unheld.map(|_| HydratePassed::Unheld)) {
                Some(passed) => counters.bump(passed_counter(passed)),
                None => return Either::Right(Box::pin(hydrated(self.inner.clone(), hydrator.clone(), tracked))),
            }
        }
        Either::Left(self.inner.call(tracked))
    }
}

async fn hydrated<S>(mut inner: S, hydrator: Arc<Hydrator>, tracked: TrackedRequest) -> Answer
where
    S: Service<TrackedRequest, Response = Response<ResponseBody>, Error = Error> + Send,
{
    let mut held = hold(tracked).await?;
    match look_up(&hydrator, &mut held).await {
        Ok(Some(body)) => held.replace_body(body.body),
        Ok(None) => {}
        Err(refused) => return Err(Error::NotHydrated(refused)),
    }
    inner.call(held.into_request()).await
}

/// The body with its features; `None` if the request goes on as it came.
async fn look_up(hydrator: &Hydrator, held: &mut HeldRequest) -> Result<Option<HydratedBody>, HydrateRefused> {
    let in_flight = held.tracked().in_flight.clone();
    let (account, counters) = (&in_flight.account, &in_flight.account.context.counters);
    let Some(body) = held.body() else {
        counters.bump(Counter::HydratePassedUnheld);
        return Ok(None);
    };
    let model = account.named_model();
    let known = KnownRequest { model: model.as_deref(), work: account.asked_work(), key: None };
    let Some((at, rule)) = hydrator.find(held.head(), known) else { return Ok(None) };
    let request = match rule.read(body) {
        Ok(request) => request,
        Err(passed) => {
            counters.bump(passed_counter(passed));
            return Ok(None);
        }
    };
    let asked = Stamp::now();
    let now_s = i64::try_from(WallClock::read().unix_ns(asked) / 1_000_000_000).unwrap_or(i64::MAX);
    let result = hydrator.hydrate((at, &rule), &request, now_s).await;
    in_flight.write_ledger(|ledger| ledger.observe(Stage::Hydration, ObservedEvent::Hydrate, asked, Stamp::now()));
    count(counters, &result);
    result.map(Some)
}

fn count(counters: &Counters, result: &Result<HydratedBody, HydrateRefused>) {
    let add = |entities: usize, missed: usize| {
        counters.add(Counter::HydrateEntitiesFound, entities.saturating_sub(missed) as u64);
        counters.add(Counter::HydrateEntitiesMissed, missed as u64);
    };
    match result {
        Ok(HydratedBody { entities, defaulted, .. }) => {
            add(*entities, *defaulted);
            counters.bump(if *defaulted > 0 { Counter::HydratedByDefault } else { Counter::Hydrated });
        }
        Err(HydrateRefused::Missing { entities, missed, .. }) => {
            add(*entities, *missed);
            counters.bump(Counter::HydrateMissing);
        }
        Err(HydrateRefused::Failed(_)) => counters.bump(Counter::HydrateFailed),
        Err(HydrateRefused::Late(_)) => counters.bump(Counter::HydrateLate),
    }
}

/// Where it is counted that a request goes on as it came.
const fn passed_counter(passed: HydratePassed) -> Counter {
    match passed {
        HydratePassed::Unheld => Counter::HydratePassedUnheld,
        HydratePassed::Coded => Counter::HydratePassedCoded,
        HydratePassed::Binary => Counter::HydratePassedBinary,
        HydratePassed::Format => Counter::HydratePassedFormat,
        HydratePassed::Entity => Counter::HydratePassedEntity,
        HydratePassed::Present => Counter::HydratePassedPresent,
        HydratePassed::TooMany => Counter::HydratePassedTooMany,
    }
}
