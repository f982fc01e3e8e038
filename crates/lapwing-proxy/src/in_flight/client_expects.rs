//! What a client waits for in the middle of its request, and what it is told.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// What a client waits for, and is told, in the middle of its request.
#[derive(Debug, Default)]
pub(crate) struct ClientExpects {
    /// It sends its body when it is asked for it (`Expect: 100-continue`), which it was not yet.
    awaits_continue: AtomicBool,
    /// The answer says that its connection ends after it.
    closes: AtomicBool,
}

impl ClientExpects {
    /// It waits until its body is asked for (`Expect: 100-continue`).
    pub(crate) fn await_continue(&self) {
        self.awaits_continue.store(true, Relaxed);
    }

    /// Returns whether it waits until its body is asked for.
    pub(crate) fn awaits_continue(&self) -> bool {
        self.awaits_continue.load(Relaxed)
    }

    /// Its body is asked for: hyper tells it.
    pub(crate) fn on_body_asked(&self) {
        if self.awaits_continue() {
            self.awaits_continue.store(false, Relaxed);
        }
    }

    /// It is told that its connection ends.
    pub(crate) fn close(&self) {
        self.closes.store(true, Relaxed);
    }

    /// Returns whether it is told that its connection ends.
    pub(crate) fn is_closed(&self) -> bool {
        self.closes.load(Relaxed)
    }
}
