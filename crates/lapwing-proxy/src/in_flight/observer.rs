//! Who observes the traffic, behind a fence: an observer may fail, and a panic there costs the record and never the request. And what else is
//! called when a request's account closes.

use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use http::{HeaderMap, Method};

use lapwing_ledger::Ledger;
use lapwing_metrics::{Counter, Counters};
use lapwing_protocol::ExchangeReader;
use lapwing_tower::RecordLedger;

/// Observes the traffic, and takes the closed ledgers. It is called on the request path: it must be quick, and must not wait.
pub trait Observer: RecordLedger + Send + Sync {
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
}

/// Called once when a request's ledger closes, before it is handed over: its work is known, and its answer has left. It must be quick,
/// must not wait, and must not touch the request in flight, whose lock is held.
pub trait OnClose: Debug + Send {
    /// The ledger closes.
    fn on_close(self: Box<Self>, ledger: &mut Ledger);
}

/// An observer behind a fence.
#[derive(Clone)]
pub(crate) struct FencedObserver {
    observer: Arc<dyn Observer>,
    counters: Arc<Counters>,
}

impl Debug for FencedObserver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FencedObserver").finish_non_exhaustive()
    }
}

impl FencedObserver {
    /// Panics of `observer` are counted in `counters`.
    pub(crate) const fn new(observer: Arc<dyn Observer>, counters: Arc<Counters>) -> Self {
        Self { observer, counters }
    }

    /// Calls the observer. A panic is caught and counted by `panicked`.
    pub(crate) fn call(&self, panicked: Counter, call: impl FnOnce(&dyn Observer)) {
        if catch_unwind(AssertUnwindSafe(|| call(&*self.observer))).is_err() {
            self.counters.bump(panicked);
        }
    }
}
