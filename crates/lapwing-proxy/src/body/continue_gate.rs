//! Holds a request body back if the client asked for that (`Expect: 100-continue`), until the upstream answers 100 or
//! a second has passed (RFC 9110, 10.1.1: a client must not wait indefinitely).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Waker};
use std::time::Duration;

use parking_lot::Mutex;

use crate::connection::LazyDeadline;
use lapwing_ledger::Stamp;

/// How long a body waits for the upstream's "100 Continue".
const CONTINUE_TIMEOUT: Duration = Duration::from_secs(1);

/// Opens when the upstream says "100 Continue".
#[derive(Debug)]
pub(crate) struct ContinueGate {
    since: Stamp,
    is_open: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl ContinueGate {
    /// A closed gate.
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { since: Stamp::now(), is_open: AtomicBool::new(false), waker: Mutex::new(None) })
    }

    /// Lets the body go.
    pub(crate) fn open(&self) {
        self.is_open.store(true, Relaxed);
        if let Some(waker) = self.waker.lock().take() {
            waker.wake();
        }
    }

    /// Returns whether the body may go. If not, the task is woken when it may.
    pub(crate) fn is_passable(&self, cx: &mut Context<'_>, deadline: &mut LazyDeadline) -> bool {
        if self.is_open.load(Relaxed) || deadline.has_expired(cx, self.since, CONTINUE_TIMEOUT) {
            return true;
        }
        *self.waker.lock() = Some(cx.waker().clone());
        false
    }
}
