//! Requests in flight for tests, without an observer or a connection behind their meter.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use http::{HeaderMap, Method};
use parking_lot::Mutex;

use super::{FencedObserver, InFlight, Observer, RequestAccount, RequestContext};
use crate::config::Config;
use crate::connection::{ConnectionStamps, OnFlush};
use crate::hold;
use lapwing_ledger::{Ledger, Stamp};
use lapwing_metrics::Counters;
use lapwing_protocol::ExchangeReader;
use lapwing_settings::EvenDraw;
use lapwing_settings::LeverSwitch;
use lapwing_tower::RecordLedger;

/// Observes nothing.
pub(crate) struct Unobserved;

impl Observer for Unobserved {
    fn request(&self, _: &Method, _: &str, _: &HeaderMap, _: &mut Ledger) -> Option<ExchangeReader> {
        None
    }
    fn response(&self, _: &HeaderMap, _: bool, _: &mut Ledger) {}
    fn model(&self, _: &str, _: &mut Ledger) {}
}

impl RecordLedger for Unobserved {
    fn record(&self, _: Box<Ledger>) {}
}

/// What the requests of a connection share that nothing observes.
pub(crate) fn context() -> RequestContext {
    let counters = Arc::<Counters>::default();
    RequestContext {
        config: Config::default(),
        hold: hold::Config::default(),
        respond_server_timing: false,
        counters: counters.clone(),
        unhelped: EvenDraw::default(),
        quick_ack: LeverSwitch::default(),
        observer: FencedObserver::new(Arc::new(Unobserved), counters),
    }
}

/// A request in flight.
pub(crate) fn in_flight() -> Arc<InFlight> {
    InFlight::open(Arc::new(context()), Arc::default(), Arc::default(), Stamp::now(), false)
}

/// The account of a request that nothing carries.
pub(crate) fn account() -> RequestAccount {
    let now = Stamp::now();
    RequestAccount::new(Arc::new(context()), Box::new(Ledger::open(now, 0)), now)
}

/// Stamps of a test's own.
#[derive(Debug, Default)]
pub(crate) struct GivenStamps {
    began: Stamp,
    has_carried: AtomicBool,
    closing: Mutex<Vec<Arc<dyn OnFlush>>>,
}

impl GivenStamps {
    /// Each head begins at `began`.
    pub(crate) fn beginning(began: Stamp) -> Self {
        Self { began, ..Self::default() }
    }

    /// The last bytes of what has ended were taken at `at`, or were lost.
    pub(crate) fn flush(&self, at: Option<Stamp>) {
        let closing = std::mem::take(&mut *self.closing.lock());
        closing.iter().for_each(|response| at.map_or_else(|| response.on_lost(), |at| response.on_flushed(at)));
    }
}

impl ConnectionStamps for GivenStamps {
    fn head_began(&self, _: bool) -> Stamp {
        self.began
    }
    fn last_read(&self) -> Option<Stamp> {
        Some(self.began)
    }
    fn close_at_flush(&self, response: Arc<dyn OnFlush>) {
        self.closing.lock().push(response);
    }
    fn on_request_opened(&self) -> bool {
        !self.has_carried.swap(true, Relaxed)
    }
}
