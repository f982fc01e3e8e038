//! The stack of one client's connection, in request order.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::sync::Arc;

use http::{Request, Response};
use hyper::body::Incoming;
use tower::{Layer, Service, ServiceBuilder};

use super::body::capture::CaptureBudget;
use super::body::{RequestBody, ResponseBody, TrackedRequest};
use super::connection::SocketMeter;
use super::error::Error;
use super::in_flight::{RequestContext, WorkerParts};
use super::layer::cache::{CacheLayer, StackCache};
use super::layer::deadline::{DeadlinePropagation, DeadlinePropagationLayer};
use super::layer::place::{Place, PlaceLayer};
use super::layer::tap::{StackTap, Tapped};
use super::layer::trace::{Trace, Tracing};
use super::layer::usage_request::{self, UsageRequest};
use super::layer::{admission, failure_responses, ledger, tap, trace};
use super::placement::Placement;
use super::upstream::{ClientUpstreams, ConnectionUpstreams};
use lapwing_cache::Cache;
use lapwing_dispatch::Dispatch;
use lapwing_settings::ConfigHandle;

/// What builds the stacks of a worker's connections.
pub(crate) struct StackSource<F> {
    /// What is in force.
    pub(crate) settings: ConfigHandle<StackSettings>,
    /// What chooses between several upstreams.
    pub(crate) placement: Option<ConfigHandle<Placement>>,
    /// Where requests wait.
    pub(crate) dispatch: Option<ConfigHandle<Dispatch>>,
    /// Builds one.
    pub(crate) build: F,
}

impl<S, F: Fn(&StackSettings, Arc<SocketMeter>, ClientUpstreams) -> S> StackSource<F> {
    /// A stack for a connection, of what is in force.
    fn stack(&self, meter: &Arc<SocketMeter>, upstreams: &ConnectionUpstreams) -> S {
        let placement = self.placement.as_ref().map(ConfigHandle::load);
        let dispatch = self.dispatch.as_ref().map(ConfigHandle::load);
        (self.build)(&self.settings.load(), meter.clone(), upstreams.placed_by(placement, dispatch))
    }
}

/// The stack of one client's connection as hyper calls it: built again for the first request after the settings were replaced. Hyper calls
/// by shared reference and tower by exclusive; one task dispatches a connection's requests, one after the other.
pub(crate) struct HyperService<S, F> {
    stack: RefCell<S>,
    /// That of the settings with which it was built.
    version: Cell<u64>,
    source: Arc<StackSource<F>>,
    meter: Arc<SocketMeter>,
    /// What the connection keeps when its stack is built again.
    upstreams: ConnectionUpstreams,
}

impl<S, F: Fn(&StackSettings, Arc<SocketMeter>, ClientUpstreams) -> S> HyperService<S, F> {
    /// Builds the first stack, which must always be ready: its readiness is not polled.
    pub(crate) fn new(source: Arc<StackSource<F>>, meter: Arc<SocketMeter>, upstreams: ConnectionUpstreams) -> Self {
        let version = Cell::new(source.settings.version());
        let stack = source.stack(&meter, &upstreams);
        Self { stack: RefCell::new(stack), version, source, meter, upstreams }
    }

    #[cold]
    fn rebuild(&self, version: u64) {
        self.version.set(version);
        *self.stack.borrow_mut() = self.source.stack(&self.meter, &self.upstreams);
    }
}

impl<S, F> hyper::service::Service<Request<Incoming>> for HyperService<S, F>
where
    S: Service<Request<Incoming>>,
    F: Fn(&StackSettings, Arc<SocketMeter>, ClientUpstreams) -> S,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn call(&self, request: Request<Incoming>) -> S::Future {
        let version = self.source.settings.version();
        if version != self.version.get() {
            self.rebuild(version);
        }
        self.stack.borrow_mut().call(request)
    }
}

/// What the stack of a connection is built with, from its settings.
#[derive(Debug)]
pub(crate) struct StackSettings {
    /// What the accounts of its requests share.
    pub(crate) exchange: Arc<RequestContext>,
    /// What its requests share with all others of the worker.
    pub(crate) worker: Arc<WorkerParts>,
    /// How spans are created.
    pub(crate) tracing: Tracing,
    /// Sees what goes to the upstream.
    pub(crate) tap: Option<StackTap>,
    /// What may answer requests again, and the memory for what passes.
    pub(crate) cache: Option<(Arc<Cache>, Arc<CaptureBudget>)>,
}

/// Builds the stack of one client's connection.
pub(crate) fn stack(
    settings: &StackSettings,
    meter: Arc<SocketMeter>,
    upstreams: ClientUpstreams,
) -> impl Service<Request<Incoming>, Response = Response<ResponseBody>, Error = Infallible, Future: Send> + Send + 'static + use<>
{
    let placement = upstreams.placement().cloned();
    let cache = settings.cache.clone().map(|(cache, budget)| StackCache { cache, budget, placement });
    // around all that goes to an upstream: what it answers has neither span nor copy
    client_side(settings, meter, CacheLayer(cache).layer(upstream_side(settings, upstreams)))
}

/// The layers that know the client, around `admitted`, which takes the requests that are admitted.
pub(crate) fn client_side<S>(
    StackSettings { exchange, worker, .. }: &StackSettings,
    meter: Arc<SocketMeter>,
    admitted: S,
) -> impl Service<Request<Incoming>, Response = Response<ResponseBody>, Error = Infallible, Future: Send> + Send + 'static + use<S>
where
    S: Service<TrackedRequest, Response = Response<ResponseBody>, Error = Error, Future: Send> + Send + 'static,
{
    ServiceBuilder::new()
        .layer(usage_request::BufferedResponseLayer) // gathers bodies that are rewritten whole; outside ledger, whose guard they need
        .layer(ledger::layer::<RequestBody, _>(exchange.clone(), worker.clone(), meter)) // opens Ingress; outside failure_responses, so that refused and failed requests are counted
        .layer(failure_responses::FailureResponsesLayer) // turns any error below into a response that names who failed
        .layer(admission::AdmissionLayer { uploads: worker.uploads.clone() }) // Validation: names the request, reads its head in one way, sheds rather than queues without bound
        .service(admitted)
}

/// The layers that admitted requests pass to the upstream. One that answers by itself belongs around them: its answers have no span.
pub(crate) fn upstream_side(
    StackSettings { tracing, tap, .. }: &StackSettings,
    upstreams: ClientUpstreams,
) -> Tapped<Trace<Place<UsageRequest<DeadlinePropagation<ClientUpstreams>>>>> {
    ServiceBuilder::new()
        .layer(tap::layer(tap.clone())) // lets a tap copy requests; above trace, so that a copy has no trace of its original
        .layer(trace::layer(tracing.clone())) // creates the span, the key of late attribution; after admission: only admitted requests need one
        .layer(PlaceLayer { placement: upstreams.placement().cloned(), dispatch: upstreams.dispatch().cloned() }) // chooses when, and between several upstreams; above what knows one of them
        .layer(usage_request::UsageRequestLayer) // asks for more, if configured; inside the others: only admitted requests are worth reading
        .layer(DeadlinePropagationLayer) // what is left of a request's time, if configured; last, for all above takes time
        .service(upstreams) // the upstream window; reads reports off head and trailers
}
