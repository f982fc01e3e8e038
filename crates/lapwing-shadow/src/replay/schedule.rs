//! When each request is due, and the thread that waits for these times; and by how much they were missed: how late requests were sent
//! (what a slow generator, a busy machine or `--max-in-flight` adds), and what they took from the time at which they were due.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use hdrhistogram::Histogram;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::mpsc;

use lapwing_ledger::Stamp;

/// How fast requests are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// At the recorded times, so many times as fast.
    Speed(f64),
    /// So many per second, evenly.
    Rate(f64),
    /// By so many clients, each of which waits for its answers.
    Closed(usize),
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Speed(1.0) => f.write_str("at the recorded times"),
            Self::Speed(factor) => write!(f, "{factor}× as fast as recorded"),
            Self::Rate(rate) => write!(f, "at {rate} requests/s"),
            Self::Closed(clients) => write!(f, "by {clients} clients in a closed loop"),
        }
    }
}

impl Pace {
    /// When each request is due, from the start, in nanoseconds. `arrivals` are the recorded ones, in ascending order. `None` for a
    /// closed loop.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "times of days")]
    pub(crate) fn due_ns(self, arrivals: &[u64]) -> Option<Vec<u64>> {
        let first = arrivals.first().copied().unwrap_or(0);
        match self {
            Self::Speed(factor) => Some(arrivals.iter().map(|at| ((at - first) as f64 / factor) as u64).collect()),
            Self::Rate(rate) => Some((0..arrivals.len()).map(|n| (n as f64 * 1e9 / rate) as u64).collect()),
            Self::Closed(_) => None,
        }
    }
}

/// When each request was due, by its place; empty until it is.
#[derive(Clone, Debug)]
pub(crate) struct DueTimes(Arc<[AtomicU64]>);

impl DueTimes {
    pub(crate) fn new(requests: usize) -> Self {
        Self((0..requests).map(|_| AtomicU64::new(0)).collect())
    }

    pub(crate) fn set(&self, at: usize, due: Stamp) {
        if let Some(place) = self.0.get(at) {
            place.store(due.as_ns(), Relaxed);
        }
    }

    pub(crate) fn get(&self, at: usize) -> Option<Stamp> {
        Stamp::from_ns(self.0.get(at)?.load(Relaxed))
    }
}

/// Sends the place of each request when it is due. It sleeps on a separate thread: timers of the runtime are a millisecond coarse.
pub(crate) fn send_when_due(due_ns: &[u64], start: Stamp, due: &DueTimes, sender: &mpsc::UnboundedSender<usize>) {
    for (at, offset) in due_ns.iter().enumerate() {
        let time = start.plus(*offset);
        let left = time.since(Stamp::now());
        if left > 0 {
            std::thread::sleep(Duration::from_nanos(left));
        }
        due.set(at, time);
        if sender.send(at).is_err() {
            return;
        }
    }
}

/// The longest duration that is distinguished: an hour, in nanoseconds.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_due_as_the_pace_has_it() {
        let arrivals = [5_000, 6_000, 9_000];
        assert_eq!(Pace::Speed(1.0).due_ns(&arrivals), Some(vec![0, 1_000, 4_000]));
        assert_eq!(Pace::Speed(2.0).due_ns(&arrivals), Some(vec![0, 500, 2_000]));
        assert_eq!(Pace::Rate(500.0).due_ns(&arrivals), Some(vec![0, 2_000_000, 4_000_000]));
        assert_eq!(Pace::Closed(3).due_ns(&arrivals), None);
    }

    #[test]
    fn nothing_is_sent_before_it_is_due() {
        let (sender, mut places) = mpsc::unbounded_channel();
        let (due, start) = (DueTimes::new(3), Stamp::now());
        send_when_due(&[0, 2_000_000, 3_000_000], start, &due, &sender);
        assert!(Stamp::now().since(start) >= 3_000_000);
        assert_eq!(std::iter::from_fn(|| places.try_recv().ok()).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(due.get(1), Some(start.plus(2_000_000)));
        assert_eq!((due.get(3), DueTimes::new(1).get(0)), (None, None));
    }
}
