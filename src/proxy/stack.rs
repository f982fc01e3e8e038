//! The stack of one client connection, in request order.

use std::convert::Infallible;
use std::sync::Arc;

use http::{Request, Response};
use hyper::body::Incoming;
use parking_lot::Mutex;
use tower::{Service, ServiceBuilder};

use super::layer::{admit, amend, buffered_response, classify, ledger, rescue, trace};
use super::upstream::{Shared, Upstream};
use crate::proxy::body::response::ResponseBody;
use crate::proxy::connection::meter::Meter;
use crate::proxy::exchange::in_flight::Recorder;

/// The stack as hyper calls it. Hyper calls by shared reference and tower by exclusive: a lock that is never contended (a
/// connection's requests are dispatched by one task) costs less than a clone of the stack for each request.
#[derive(Debug)]
pub(crate) struct Door<S>(Mutex<S>);

impl<S> Door<S> {
    /// The way into `stack`, which must never hold a request back: nobody asks whether it is ready.
    pub(crate) const fn new(stack: S) -> Self {
        Self(Mutex::new(stack))
    }
}

impl<S: Service<Request<Incoming>>> hyper::service::Service<Request<Incoming>> for Door<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn call(&self, request: Request<Incoming>) -> S::Future {
        self.0.lock().call(request)
    }
}

/// Builds the stack for one client connection.
pub(crate) fn stack(
    recorder: &Arc<Recorder>,
    meter: Arc<Meter>,
    shared: Arc<Shared>,
) -> impl Service<Request<Incoming>, Response = Response<ResponseBody>, Error = Infallible, Future: Send> + Send + use<> {
    ServiceBuilder::new()
        .layer(buffered_response::WholeLayer) // waits for bodies whose length is still to be known; outside ledger, whose guard they need
        .layer(ledger::layer(recorder.clone(), meter)) // opens Ingress; outside rescue, so that refused and failed requests are counted
        .layer(rescue::RescueLayer) // any error below becomes a response that says whose it is
        .layer(classify::ClassifyLayer) // Validation: route and model; before admission, so that shed requests have a name
        .layer(admit::AdmitLayer) // Validation: sheds rather than queues without bound
        .layer(trace::layer(recorder.tracing.clone())) // the key of late attribution; after admission, for only what goes on needs a span
        .layer(amend::AmendLayer) // asks for more, if configured; last, for only what goes on is worth reading first
        .service(Upstream::new(shared)) // the upstream window; reads reports off head and trailers
}
