//! The uploads of one worker that have waited for their clients: if requests fill `max_in_flight`, the slowest gives way to the next one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use super::Upload;
use lapwing_ledger::Stamp;

/// An upload gives way only if it is behind by more than this, in nanoseconds: 1 s.
const GRACE_NS: u64 = 1_000_000_000;
/// For so long after a search in vain, no other is made, in nanoseconds: each looks at all uploads.
const PAUSE_NS: u64 = 10_000_000;

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
    pub(crate) fn insert(&self, upload: &Arc<Upload>) {
        self.open.lock().by_key.insert(Arc::as_ptr(upload).addr(), upload.clone());
    }

    pub(crate) fn remove(&self, upload: &Upload) {
        let removed = self.open.lock().by_key.remove(&std::ptr::from_ref(upload).addr());
        drop(removed); // after the lock: it may be the last one
    }

    /// An upload that gave way has left.
    pub(crate) fn on_left(&self) {
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
