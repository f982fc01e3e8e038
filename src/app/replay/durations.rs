//! Durations of a replay: how late requests were sent (what a slow generator, a busy machine or `--max-in-flight` adds), and what
//! they took from the time at which they were due.

use hdrhistogram::Histogram;
use parking_lot::Mutex;
use serde::Serialize;

/// The greatest duration that is told apart: an hour, in nanoseconds.
const MAX_NS: u64 = 3_600_000_000_000;

/// A histogram of durations, to three digits.
pub(crate) struct Durations(Mutex<Histogram<u64>>);

/// What it says, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct DurationsSnapshot {
    pub(crate) count: u64,
    pub(crate) p50_ns: u64,
    pub(crate) p90_ns: u64,
    pub(crate) p99_ns: u64,
    pub(crate) max_ns: u64,
}

impl Durations {
    /// # Errors
    ///
    /// Never: the bounds are constants that a histogram allows.
    pub(crate) fn new() -> Result<Self, hdrhistogram::CreationError> {
        Histogram::new_with_bounds(1_000, MAX_NS, 3).map(|histogram| Self(Mutex::new(histogram)))
    }

    pub(crate) fn record(&self, ns: u64) {
        self.0.lock().saturating_record(ns);
    }

    pub(crate) fn snapshot(&self) -> DurationsSnapshot {
        let histogram = self.0.lock();
        let at = |quantile| histogram.value_at_quantile(quantile);
        DurationsSnapshot { count: histogram.len(), p50_ns: at(0.5), p90_ns: at(0.9), p99_ns: at(0.99), max_ns: histogram.max() }
    }
}
