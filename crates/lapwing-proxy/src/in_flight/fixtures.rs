//! Requests in flight for tests, without an observer or a connection behind their meter.

use std::sync::Arc;

use http::{HeaderMap, Method};

use super::{EvenDraw, FencedObserver, InFlight, Observer, RequestContext};
use crate::config::Config;
use lapwing_ledger::{Ledger, Stamp};
use lapwing_metrics::Counters;
use lapwing_net::Tasks;
use lapwing_protocol::ExchangeReader;

/// Observes nothing.
pub(crate) struct Unobserved;

impl Observer for Unobserved {
    fn request(&self, _: &Method, _: &str, _: &HeaderMap, _: &mut Ledger) -> Option<ExchangeReader> {
        None
    }
    fn response(&self, _: &HeaderMap, _: bool, _: &mut Ledger) {}
    fn model(&self, _: &str, _: &mut Ledger) {}
    fn closed(&self, _: Box<Ledger>) {}
}

/// What the requests of a connection share that nothing observes.
pub(crate) fn context() -> RequestContext {
    let counters = Arc::<Counters>::default();
    RequestContext {
        config: Config::default(),
        respond_server_timing: false,
        counters: counters.clone(),
        uploads: Arc::default(),
        unhelped: EvenDraw::default(),
        observer: FencedObserver::new(Arc::new(Unobserved), counters),
        tasks: Tasks::default(),
        health: Arc::default(),
    }
}

/// A request in flight.
pub(crate) fn in_flight() -> Arc<InFlight> {
    InFlight::open(Arc::new(context()), Arc::default(), Stamp::now(), false)
}
