//! The upstream's own statistics of a model's requests, averaged between two polls: an estimate for stages that no request
//! reports, and the only source of batch statistics.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use super::poll::UpstreamEvidence;
use crate::ledger::{BatchStatistics, LabelId, Ledger, Report, Server, Stamp};

/// The latest statistics of one model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Polled {
    /// Mean durations per request, in chronological order.
    pub reports: Vec<Report>,
    /// Batch statistics.
    pub batch: Option<BatchStatistics>,
    /// When they were polled.
    pub at: Stamp,
}

/// The latest statistics of every model of the upstream, by the model's interned name, and the server that the upstream is.
#[derive(Debug, Default)]
pub struct Statistics {
    by_model: Mutex<FxHashMap<LabelId, Polled>>,
    whole: Mutex<Option<Polled>>,
    server: Mutex<Option<Server>>,
    requested: AtomicBool,
    /// What the traffic shows of the server, before anything is polled.
    pub evidence: UpstreamEvidence,
    /// Whether anything was ever found. Most upstreams have no statistics, and every request looks here, so this avoids the lock.
    known: AtomicBool,
}

impl Statistics {
    /// Stores the result of a poll, replacing what was known of the model.
    pub fn put(&self, model: LabelId, polled: Polled) {
        self.by_model.lock().insert(model, polled);
        self.known.store(true, Relaxed);
    }

    /// Stores the result of a poll for the server as a whole, which applies to models without their own statistics.
    pub fn put_whole(&self, polled: Polled) {
        *self.whole.lock() = Some(polled);
        self.known.store(true, Relaxed);
    }

    /// What is known of `model`, if it was polled within `max_age_ns` before `now`.
    #[must_use]
    pub fn get(&self, model: LabelId, now: Stamp, max_age_ns: u64) -> Option<Polled> {
        let is_fresh = |polled: &&Polled| now.since(polled.at) <= max_age_ns;
        let own = self.by_model.lock().get(&model).filter(is_fresh).cloned();
        own.or_else(|| self.whole.lock().as_ref().filter(is_fresh).cloned())
    }

    /// The statistics for requests like this one, if it was answered and had a body. The means of a model do not describe other
    /// requests (health checks, refusals).
    #[must_use]
    pub fn of(&self, ledger: &Ledger, now: Stamp, max_age_ns: u64) -> Option<Polled> {
        let is_work = self.known.load(Relaxed) && ledger.request_bytes > 0 && (200..300).contains(&ledger.status);
        is_work.then(|| self.get(ledger.series.model, now, max_age_ns)).flatten()
    }

    /// The server that the upstream was found to be.
    #[must_use]
    pub fn server(&self) -> Option<Server> {
        if self.known.load(Relaxed) { *self.server.lock() } else { None }
    }

    /// Stores the server that the upstream is.
    pub fn set_server(&self, server: Option<Server>) {
        *self.server.lock() = server;
        self.known.fetch_or(server.is_some(), Relaxed);
    }

    /// Records that a request was received: a server without clients is not polled.
    pub fn note_request(&self) {
        self.requested.store(true, Relaxed);
    }

    /// Whether a request was received since the last call.
    pub(super) fn take_requested(&self) -> bool {
        self.requested.swap(false, Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn polled(at_ns: u64) -> Polled {
        Polled { at: Stamp::default().plus(at_ns), ..Polled::default() }
    }

    #[test]
    fn the_models_own_word_counts_while_it_is_fresh_then_the_servers() {
        let statistics = Statistics::default();
        let model = LabelId::OTHER;
        let get = |now_ns| statistics.get(model, Stamp::default().plus(now_ns), 10).map(|p| p.at.as_ns());
        assert_eq!(get(5), None);
        statistics.put(model, polled(5));
        statistics.put_whole(polled(12));
        assert_eq!([get(15), get(16), get(22), get(23)], [Some(5), Some(12), Some(12), None]);
    }

    #[test]
    fn only_answered_requests_with_something_to_work_on_are_spoken_of() {
        let statistics = Statistics::default();
        statistics.put_whole(polled(1));
        let of = |request_bytes, status| {
            let mut ledger = Ledger::open(Stamp::default(), 0);
            (ledger.request_bytes, ledger.status) = (request_bytes, status);
            statistics.of(&ledger, Stamp::default(), 10).is_some()
        };
        assert_eq!([of(9, 200), of(0, 200), of(9, 404), of(9, 0)], [true, false, false, false]);
    }

    #[test]
    fn a_request_is_noted_until_it_is_asked_for() {
        let statistics = Statistics::default();
        assert!(!statistics.take_requested());
        statistics.note_request();
        assert_eq!([statistics.take_requested(), statistics.take_requested()], [true, false]);
    }
}
