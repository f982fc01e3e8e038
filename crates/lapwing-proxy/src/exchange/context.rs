//! What the requests of a connection share: configuration, counters, and the observer of their traffic.
//!
//! An observer may fail: every call is fenced, so that a panic there costs the record and never the request.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use http::{HeaderMap, Method};

use super::in_flight::InFlight;
use crate::body::EvenDraw;
use crate::config::Config;
use crate::connection::{ClientTimeouts, OnRefusal, SocketMeter};
use crate::error::response::refusal;
use crate::settings::{ConnectionSettings, ShadowRole, Tracing};
use crate::upload::UploadPlaces;
use crate::upstream::UpstreamHealth;
use lapwing_ledger::{Ledger, Outcome, Stamp};
use lapwing_metrics::{Counter, Counters};
use lapwing_net::Tasks;
use lapwing_protocol::ExchangeReader;

/// Observes the traffic. It is called on the request path: it must be quick, and must not wait.
pub trait Observer: Send + Sync {
    /// Names route and model of a request by its head. Returns a reader of the bodies if there is anything to read.
    fn request(&self, method: &Method, path: &str, headers: &HeaderMap, ledger: &mut Ledger) -> Option<ExchangeReader>;
    /// Returns a reader of an answer of which nothing else is read, that looks for an error; `None` if bodies are not to be read.
    fn error_reader(&self) -> Option<ExchangeReader> {
        None
    }
    /// Reads the upstream's own reports in a response's head, or (`trailing`) in its trailers.
    fn response(&self, fields: &HeaderMap, trailing: bool, ledger: &mut Ledger);
    /// Names the model that the bodies name.
    fn model(&self, name: &str, ledger: &mut Ledger);
    /// Takes the closed ledger.
    fn closed(&self, ledger: Box<Ledger>);
}

/// What the requests of a connection share: the settings in force when it was accepted, the counters, and the observer.
pub(crate) struct ExchangeContext {
    pub(crate) config: Config,
    /// Whether responses carry `Server-Timing`.
    pub(crate) respond_server_timing: bool,
    /// How spans are created.
    pub(crate) tracing: Tracing,
    /// What is copied.
    pub(crate) shadow: ShadowRole,
    pub(crate) counters: Arc<Counters>,
    /// The slow uploads of this worker.
    pub(crate) uploads: Arc<UploadPlaces>,
    /// Which split writes are left without help.
    pub(crate) unhelped: EvenDraw,
    pub(crate) observer: Arc<dyn Observer>,
    /// Carry what outlives its request.
    pub(crate) tasks: Tasks,
    /// What is known of the upstream.
    pub(crate) health: Arc<UpstreamHealth>,
}

impl std::fmt::Debug for ExchangeContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExchangeContext").finish_non_exhaustive()
    }
}

impl ExchangeContext {
    /// The context of connections that are accepted under `settings`.
    pub(crate) fn new(
        settings: &ConnectionSettings,
        counters: Arc<Counters>,
        uploads: Arc<UploadPlaces>,
        tasks: Tasks,
        health: Arc<UpstreamHealth>,
    ) -> Self {
        let ConnectionSettings { config, respond_server_timing, tracing, shadow, observer } = settings.clone();
        let unhelped = EvenDraw::default();
        Self { config, respond_server_timing, tracing, shadow, counters, uploads, unhelped, observer, tasks, health }
    }

    /// Calls the observer. A panic is caught and counted by `panicked`.
    pub(crate) fn observe(&self, panicked: Counter, look: impl FnOnce(&dyn Observer)) {
        if catch_unwind(AssertUnwindSafe(|| look(&*self.observer))).is_err() {
            self.counters.bump(panicked);
        }
    }

    /// How long a client's connection may stand still.
    pub(crate) fn client_timeouts(&self) -> ClientTimeouts {
        ClientTimeouts {
            head: self.config.client_header_timeout.get(),
            idle: self.config.client_idle_timeout.get(),
            write: self.config.client_stall_timeout.get(),
        }
    }
}

/// Counts heads that hyper refuses: they never reach the stack, and are rejected requests.
#[derive(Debug)]
pub(crate) struct CountRefusals(pub(crate) Arc<ExchangeContext>);

impl CountRefusals {
    /// The account of a head that was refused with `status`, and `began` then.
    fn open(&self, status: u16, meter: &Arc<SocketMeter>, began: Stamp, is_multiplexed: bool) -> Arc<InFlight> {
        let in_flight = InFlight::open(self.0.clone(), meter.clone(), began, is_multiplexed);
        in_flight.with(|ledger| {
            ledger.status = status;
            ledger.outcome = Outcome::Rejected;
        });
        in_flight
    }
}

impl OnRefusal for CountRefusals {
    fn on_refusal(&self, status: u16, meter: &Arc<SocketMeter>) -> Vec<u8> {
        self.open(status, meter, meter.head_began(), false).finish();
        refusal(status)
    }

    fn on_refused_stream(&self, status: u16, meter: &Arc<SocketMeter>) {
        let now = Stamp::now();
        self.open(status, meter, meter.last_read().unwrap_or(now), true).close(now);
    }
}
