//! Durations of a replay: how late requests were sent (what a slow generator, a busy machine or `--max-in-flight` adds), and what
//! they took from the time at which they were due.

use hdrhistogram::Histogram;
use parking_lot::Mutex;
use serde::Serialize;

/// The greatest duration that is told apart: an hour, in nanoseconds.
const MAX_NS: u64 = 3_600_000_000_000;

/// A histogram of durations, to three digits.
pub(super) struct Durations(Mutex<Histogram<u64>>);

/// What it says, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct DurationsSnapshot {
    pub(super) count: u64,
    pub(super) p50_ns: u64,
    pub(super) p90_ns: u64,
    pub(super) p99_ns: u64,
    pub(super) max_ns: u64,
}

impl Durations {
    /// # Errors
    ///
    /// Never: the bounds are constants that a histogram allows.
    pub(super) fn new() -> Result<Self, hdrhistogram::CreationError> {
        Histogram::new_with_bounds(1_000, MAX_NS, 3).map(|histogram| Self(Mutex::new(histogram)))
    }

    pub(super) fn record(&self, ns: u64) {
        self.0.lock().saturating_record(ns);
    }

    pub(super) fn snapshot(&self) -> DurationsSnapshot {
        let histogram = self.0.lock();
        let at = |quantile| histogram.value_at_quantile(quantile);
        DurationsSnapshot { count: histogram.len(), p50_ns: at(0.5), p90_ns: at(0.9), p99_ns: at(0.99), max_ns: histogram.max() }
    }
}
