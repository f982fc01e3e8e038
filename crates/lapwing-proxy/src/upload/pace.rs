//! How far an upload is behind the rate that it should have.
//!
//! Every nanosecond that the body waits for its client puts the upload behind by one; every byte takes back the time that it may take at
//! `client_min_rate`. It is never ahead: a client that was quick has no more patience later. Time in which nobody asks for the body, because the
//! upstream takes no more of it, is not counted.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use lapwing_ledger::Stamp;

/// So far an upload may be behind, in nanoseconds: 5 s.
const PATIENCE_NS: u64 = 5_000_000_000;

/// The pace of one upload. One task writes it; others read it, and may be late by one event.
#[derive(Debug)]
pub(crate) struct UploadPace {
    /// Bytes a second; not zero.
    rate: u64,
    /// How far it was behind when bytes came last.
    behind_ns: AtomicU64,
    /// Since when the body waits for the client; zero while it does not.
    waits_since: AtomicU64,
}

impl UploadPace {
    /// A pace of at least `rate` bytes a second is kept up.
    pub(crate) fn new(rate: u64) -> Self {
        Self { rate: rate.max(1), behind_ns: AtomicU64::new(0), waits_since: AtomicU64::new(0) }
    }

    /// The body waits for the client, unless it did already.
    pub(crate) fn on_wait(&self, now: Stamp) {
        if self.waits_since.load(Relaxed) == 0 {
            self.waits_since.store(now.as_ns(), Relaxed);
        }
    }

    /// `n` bytes came at `at`, and are handed on.
    pub(crate) fn on_bytes(&self, n: u64, at: Stamp) {
        let waited = self.waits_since().map_or(0, |since| at.since(since));
        let allowed = u128::from(n) * 1_000_000_000 / u128::from(self.rate);
        let behind = self.behind_ns.load(Relaxed).saturating_add(waited);
        self.behind_ns.store(behind.saturating_sub(u64::try_from(allowed).unwrap_or(u64::MAX)), Relaxed);
        self.waits_since.store(0, Relaxed);
    }

    /// How far the upload is behind at `now`, in nanoseconds.
    pub(crate) fn behind_ns(&self, now: Stamp) -> u64 {
        let waited = self.waits_since().map_or(0, |since| now.since(since));
        self.behind_ns.load(Relaxed).saturating_add(waited)
    }

    /// Since when the client is waited for, and for how long it may be; `None` while it is not.
    pub(crate) fn patience(&self) -> Option<(Stamp, Duration)> {
        let left = PATIENCE_NS.saturating_sub(self.behind_ns.load(Relaxed));
        Some((self.waits_since()?, Duration::from_nanos(left)))
    }

    fn waits_since(&self) -> Option<Stamp> {
        Stamp::from_ns(self.waits_since.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn at(seconds: u64) -> Stamp {
        Stamp::from_ns(seconds * S).unwrap()
    }

    #[test]
    fn bytes_take_back_the_time_that_they_may_take() {
        let pace = UploadPace::new(1024);
        pace.on_wait(at(10));
        pace.on_wait(at(12));
        assert_eq!(pace.behind_ns(at(13)), 3 * S, "it has waited since the first time");
        pace.on_bytes(2048, at(14));
        assert_eq!(pace.behind_ns(at(20)), 2 * S, "4 s for what may take 2; then nobody asked");
        pace.on_wait(at(30));
        assert_eq!(pace.patience(), Some((at(30), Duration::from_secs(3))));
        pace.on_bytes(1 << 30, at(31));
        assert_eq!((pace.behind_ns(at(40)), pace.patience()), (0, None), "it is never ahead");
    }

    #[test]
    fn a_stalled_client_has_its_patience_once() {
        let pace = UploadPace::new(1);
        for second in 1..=4 {
            pace.on_wait(at(second * 10));
            pace.on_bytes(1, at(second * 10 + 2));
        }
        pace.on_wait(at(100));
        assert_eq!(pace.patience(), Some((at(100), Duration::from_secs(1))), "each 2 s for what may take 1");
    }
}
