//! Requests in flight for tests, without an observer or a connection behind their meter.

use std::sync::Arc;

use http::{HeaderMap, Method};

use super::{ExchangeContext, InFlight, Observer};
use crate::{Config, ConnectionSettings, ShadowRole, TraceSampling, Tracing};
use lapwing_ledger::{Ledger, Stamp, TraceMark};
use lapwing_net::Tasks;
use lapwing_protocol::ExchangeReader;
use lapwing_protocol::trace_context::ContextPolicy;

struct Unobserved;

impl Observer for Unobserved {
    fn request(&self, _: &Method, _: &str, _: &HeaderMap, _: &mut Ledger) -> Option<ExchangeReader> {
        None
    }
    fn response(&self, _: &HeaderMap, _: bool, _: &mut Ledger) {}
    fn model(&self, _: &str, _: &mut Ledger) {}
    fn closed(&self, _: Box<Ledger>) {}
}

/// Settings that nothing observes.
pub(crate) fn settings(config: Config) -> ConnectionSettings {
    let tracing =
        Tracing { sampling: TraceSampling::Off, mark: TraceMark::random(), continued: None, contexts: ContextPolicy::default() };
    ConnectionSettings { config, respond_server_timing: false, tracing, shadow: ShadowRole::Off, observer: Arc::new(Unobserved) }
}

/// A request in flight.
pub(crate) fn in_flight() -> Arc<InFlight> {
    let settings = settings(Config::default());
    let context = ExchangeContext::new(&settings, Arc::default(), Arc::default(), Tasks::default(), Arc::default());
    InFlight::open(Arc::new(context), Arc::default(), Stamp::now(), false)
}
