//! Uploads that come too slowly: what `client_min_rate` asks of a request's body, and which upload gives way when requests fill their
//! places.
//!
//! An upload is known here from the first time that its body waits for the client, so a body that comes at once costs nothing, and with
//! `client_min_rate` off nothing does. It is left alone once the upstream has begun to answer: no other answer can be given then.
//!
//! Every nanosecond that the body waits for its client puts the upload behind by one; every byte takes back the time that it may take at
//! `client_min_rate`. It is never ahead: a client that was quick has no more patience later. Time in which nobody asks for the body, because the
//! upstream takes no more of it, is not counted.
//!
//! If requests fill `max_in_flight`, the slowest upload of the worker gives way to the next request.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::task::Context;
use std::time::Duration;

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use lapwing_ledger::Stamp;
use lapwing_settings::Size;

/// So far an upload may be behind, in nanoseconds: 5 s.
const PATIENCE_NS: u64 = 5_000_000_000;

/// An upload gives way only if it is behind by more than this, in nanoseconds: 1 s.
const GRACE_NS: u64 = 1_000_000_000;
/// For so long after a search in vain, no other is made, in nanoseconds: each looks at all uploads.
const PAUSE_NS: u64 = 10_000_000;

/// How the body of one request comes.
#[derive(Debug, Default)]
pub(crate) struct UploadProgress {
    /// It waits for the client, not for the upstream.
    awaits_client: AtomicBool,
    /// It has waited for the client, and `client_min_rate` is on.
    slow: OnceLock<Arc<Upload>>,
}

impl UploadProgress {
    /// The body was asked for, and waits for the client or does not.
    pub(crate) fn set_awaits_client(&self, awaits_client: bool) {
        self.awaits_client.store(awaits_client, Relaxed);
    }

    /// Whether the body waits for the client, not for the upstream.
    pub(crate) fn awaits_client(&self) -> bool {
        self.awaits_client.load(Relaxed)
    }

    /// The body is an upload of which a rate is asked. A request has one body.
    pub(crate) fn set_upload(&self, upload: Arc<Upload>) {
        drop(self.slow.set(upload));
    }

    /// The upload, once it has waited for the client.
    pub(crate) fn upload(&self) -> Option<&Arc<Upload>> {
        self.slow.get()
    }

    /// The upstream has begun to answer: the upload is left alone.
    pub(crate) fn on_answered(&self) {
        if let Some(upload) = self.upload() {
            upload.leave_places();
        }
    }
}

/// An upload that has waited for its client.
#[derive(Debug)]
pub(crate) struct Upload {
    pub(crate) pace: UploadPace,
    rate: Size,
    gives_way: AtomicBool,
    task: AtomicWaker,
    places: Arc<UploadPlaces>,
}

impl Upload {
    /// An upload that begins to wait, and shall come at `rate`; it has a place among `places`.
    pub(crate) fn begin(rate: Size, places: Arc<UploadPlaces>) -> Arc<Self> {
        let (pace, gives_way) = (UploadPace::new(rate.get()), AtomicBool::new(false));
        let upload = Arc::new(Self { pace, rate, gives_way, task: AtomicWaker::new(), places });
        upload.places.insert(&upload);
        upload
    }

    /// The rate that it should have.
    pub(crate) const fn rate(&self) -> Size {
        self.rate
    }

    /// Whether it was told to give way; if it is later, the task of `cx` is woken.
    pub(crate) fn gives_way(&self, cx: &Context<'_>) -> bool {
        self.task.register(cx.waker());
        self.gives_way.load(Relaxed)
    }

    /// The upload is over, or has an answer: it is told nothing any more.
    pub(crate) fn leave_places(&self) {
        self.places.remove(self);
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if *self.gives_way.get_mut() {
            self.places.on_left();
        }
    }
}

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

/// The uploads of one worker.
#[derive(Debug, Default)]
pub(crate) struct UploadPlaces {
    open: Mutex<OpenUploads>,
    /// How many were told to give way and have not left.
    leaving: AtomicU64,
}

#[derive(Debug, Default)]
struct OpenUploads {
    /// By address.
    by_key: FxHashMap<usize, Arc<Upload>>,
    searched_in_vain: Option<Stamp>,
}

impl UploadPlaces {
    fn insert(&self, upload: &Arc<Upload>) {
        self.open.lock().by_key.insert(Arc::as_ptr(upload).addr(), upload.clone());
    }

    fn remove(&self, upload: &Upload) {
        let removed = self.open.lock().by_key.remove(&std::ptr::from_ref(upload).addr());
        drop(removed); // after the lock: it may be the last one
    }

    /// An upload that gave way has left.
    fn on_left(&self) {
        self.leaving.fetch_sub(1, Relaxed);
    }

    /// Returns whether a request has a place, of which there are `limit`, if it is one of `in_flight`. If there is none, the upload
    /// gives way that is furthest behind its rate; at most as many leave at once as there are places.
    pub(crate) fn make_room(&self, in_flight: u64, limit: u64) -> bool {
        let leaving = self.leaving.load(Relaxed);
        if in_flight.saturating_sub(leaving) <= limit {
            return leaving <= limit;
        }
        if leaving >= limit {
            return false;
        }
        let Some(slowest) = self.take_slowest(Stamp::now()) else { return false };
        self.leaving.fetch_add(1, Relaxed);
        slowest.gives_way.store(true, Relaxed);
        slowest.task.wake();
        true
    }

    fn take_slowest(&self, now: Stamp) -> Option<Arc<Upload>> {
        let mut open = self.open.lock();
        if open.by_key.is_empty() || open.searched_in_vain.is_some_and(|at| now.since(at) < PAUSE_NS) {
            return None;
        }
        let slowest = open.by_key.iter().map(|(key, upload)| (upload.pace.behind_ns(now), *key)).max();
        let slowest = slowest.filter(|(behind, _)| *behind > GRACE_NS).and_then(|(_, key)| open.by_key.remove(&key));
        open.searched_in_vain = slowest.is_none().then_some(now);
        slowest
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
