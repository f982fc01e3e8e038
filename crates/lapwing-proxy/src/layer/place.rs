//! Places each request at one of several upstreams ([`Placement`]). Where there is one, it does nothing.
//!
//! Stage: validation. It waits only where what the body tells decides (the model, the work): then it holds the request until its body has come,
//! within the bounds of the section `hold`; what passes them is placed by what is known of it.

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
use crate::placement::{AwaitedOfBody, KnownRequest, Placement};
use lapwing_ledger::ObservedEvent;
use lapwing_protocol::ToldByBody;

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
        if let Some(placement) = &self.placement {
            if let Some(awaited) = placement.awaits(&tracked.request)
                && is_held(&tracked, awaited)
            {
                return Either::Right(Box::pin(place_held(self.inner.clone(), placement.clone(), tracked)));
            }
            place(placement, &mut tracked, KnownRequest::default());
        }
        Either::Left(self.inner.call(tracked))
    }
}

/// Places a request by its head and what its body tells.
fn place(placement: &Arc<Placement>, tracked: &mut TrackedRequest, in_body: KnownRequest<'_>) {
    let placed = placement.place(&tracked.request, in_body, &tracked.in_flight.account);
    tracked.request.extensions_mut().insert(placed);
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

async fn place_held<S>(mut inner: S, placement: Arc<Placement>, tracked: TrackedRequest) -> Answer
where
    S: Service<TrackedRequest, Response = Response<ResponseBody>, Error = Error> + Send,
{
    let mut held = hold(tracked).await?;
    let model = held.tracked().in_flight.account.named_model();
    let work = if held.is_whole() { held.tracked().in_flight.account.asked_work() } else { None };
    let key = if held.is_whole() { placement.key_in(held.pieces()) } else { None };
    place(&placement, held.tracked(), KnownRequest { model: model.as_deref(), work, key: key.as_deref() });
    held.note_queue(ObservedEvent::Dispatch);
    inner.call(held.into_request()).await
}
