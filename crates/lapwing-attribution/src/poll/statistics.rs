//! What the poller hands to the aggregator: the differences between polls of the upstream's own statistics, and the server that
//! the upstream is.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use super::evidence::UpstreamEvidence;
use lapwing_ledger::Server;
use lapwing_metrics::{PolledInterval, PolledKey};

/// The results of polls that the aggregator has not taken yet, and the server that the upstream is.
#[derive(Debug, Default)]
pub struct Statistics {
    /// At most one interval for each model.
    found: Mutex<FxHashMap<PolledKey, PolledInterval>>,
    /// Whether there are any. Most upstreams have none, and the aggregator checks every 20 ms, so this avoids the lock.
    has_found: AtomicBool,
    server: Mutex<Option<Server>>,
    requested: AtomicBool,
    /// What the traffic shows of the server, before anything is polled.
    pub evidence: UpstreamEvidence,
    /// Whether the server was ever known. Every request reads it.
    known: AtomicBool,
}

impl Statistics {
    /// Adds the result of a poll.
    pub fn put(&self, key: PolledKey, interval: PolledInterval) {
        self.found.lock().entry(key).or_default().append(interval);
        self.has_found.store(true, Relaxed);
    }

    /// Takes the results of the polls since the last call.
    #[must_use]
    pub fn take(&self) -> FxHashMap<PolledKey, PolledInterval> {
        if self.has_found.swap(false, Relaxed) { std::mem::take(&mut *self.found.lock()) } else { FxHashMap::default() }
    }

    /// The server that the upstream was recognised as.
    #[must_use]
    pub fn server(&self) -> Option<Server> {
        if self.known.load(Relaxed) { *self.server.lock() } else { None }
    }

    /// Stores the server that the upstream is.
    pub fn set_server(&self, server: Option<Server>) {
        *self.server.lock() = server;
        self.known.fetch_or(server.is_some(), Relaxed);
    }

    /// Records that a request was received: a server that is not used is not polled.
    pub fn note_request(&self) {
        self.requested.store(true, Relaxed);
    }

    /// Whether a request was received since the last call.
    pub(crate) fn take_requested(&self) -> bool {
        self.requested.swap(false, Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_is_taken_once_and_intervals_add_up() {
        let (statistics, key) = (Statistics::default(), PolledKey::default());
        assert!(statistics.take().is_empty());
        statistics.put(key, PolledInterval { covered_ns: 5, ..PolledInterval::default() });
        statistics.put(key, PolledInterval { covered_ns: 7, ..PolledInterval::default() });
        assert_eq!(statistics.take()[&key].covered_ns, 12);
        assert!(statistics.take().is_empty());
    }

    #[test]
    fn a_request_is_noted_until_it_is_asked_for() {
        let statistics = Statistics::default();
        assert!(!statistics.take_requested());
        statistics.note_request();
        assert_eq!([statistics.take_requested(), statistics.take_requested()], [true, false]);
    }
}
