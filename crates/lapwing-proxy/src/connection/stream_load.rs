//! How many HTTP/2 streams are open, and how many of their requests wait for the other side's window: of a connection to the upstream, or
//! of a client.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The streams of one connection, or of one client.
#[derive(Debug, Default)]
pub(crate) struct StreamLoad {
    open: AtomicU32,
    waiting: AtomicU32,
}

impl StreamLoad {
    /// Streams that are open.
    pub(crate) fn open(&self) -> u32 {
        self.open.load(Relaxed)
    }

    /// Requests that wait until the upstream takes more of their bodies.
    pub(crate) fn waiting(&self) -> u32 {
        self.waiting.load(Relaxed)
    }
}

/// A stream's place on a connection, until it is dropped.
#[derive(Debug)]
pub(crate) struct StreamPlace {
    on: Arc<StreamLoad>,
    /// The client's streams on connections that others use too.
    by: Arc<StreamLoad>,
    is_shared: bool,
}

impl StreamPlace {
    /// Takes a place on a connection with the load `on`, for a client whose load is `by`.
    pub(crate) fn take(on: &Arc<StreamLoad>, by: &Arc<StreamLoad>, is_shared: bool) -> Self {
        on.open.fetch_add(1, Relaxed);
        if is_shared {
            by.open.fetch_add(1, Relaxed);
        }
        Self { on: on.clone(), by: by.clone(), is_shared }
    }

    /// For the upload of its request.
    pub(crate) fn upload(&self) -> UploadWait {
        UploadWait { loads: [self.on.clone(), self.by.clone()], is_waiting: false }
    }
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        self.on.open.fetch_sub(1, Relaxed);
        if self.is_shared {
            self.by.open.fetch_sub(1, Relaxed);
        }
    }
}

/// Says whether an upload waits for the upstream's window.
#[derive(Debug)]
pub(crate) struct UploadWait {
    loads: [Arc<StreamLoad>; 2],
    is_waiting: bool,
}

impl UploadWait {
    /// It waits, or no more.
    pub(crate) fn set(&mut self, is_waiting: bool) {
        if is_waiting == self.is_waiting {
            return;
        }
        self.is_waiting = is_waiting;
        for load in &self.loads {
            if is_waiting {
                load.waiting.fetch_add(1, Relaxed);
            } else {
                load.waiting.fetch_sub(1, Relaxed);
            }
        }
    }
}

impl Drop for UploadWait {
    fn drop(&mut self) {
        self.set(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dropped_is_no_load() {
        let (on, by) = (Arc::<StreamLoad>::default(), Arc::<StreamLoad>::default());
        let (shared, own) = (StreamPlace::take(&on, &by, true), StreamPlace::take(&on, &by, false));
        assert_eq!((on.open(), by.open()), (2, 1));
        let mut wait = shared.upload();
        wait.set(true);
        wait.set(true);
        assert_eq!((on.waiting(), by.waiting()), (1, 1));
        drop((shared, own));
        assert_eq!((on.open(), by.open(), on.waiting()), (0, 0, 1));
        drop(wait);
        assert_eq!((on.waiting(), by.waiting()), (0, 0));
    }
}
