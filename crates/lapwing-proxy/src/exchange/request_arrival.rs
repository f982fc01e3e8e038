//! When the bytes of a request came: over HTTP/1.1 by the reads of its connection, over HTTP/2, where requests share one, by the clock.

use std::sync::atomic::Ordering::Relaxed;

use super::in_flight::InFlight;
use lapwing_ledger::Stamp;

impl InFlight {
    /// `n` bytes of the request body were read. Returns when.
    pub(crate) fn on_request_bytes(&self, n: usize) -> Stamp {
        // only one task reads the request, so a load and a store are enough
        self.request_bytes.store(self.request_bytes.load(Relaxed) + n as u64, Relaxed);
        let read = self.request_read();
        self.request_last.store(read.as_ns(), Relaxed);
        read
    }

    /// The request body was read to its end, with its last bytes `at`; `None`: its end came alone, now.
    pub(crate) fn on_request_end(&self, at: Option<Stamp>) {
        self.request_end.store(at.unwrap_or_else(|| self.request_read()).as_ns(), Relaxed);
        self.meter.on_message_read();
    }

    /// The client waits until its body is asked for (`Expect: 100-continue`).
    pub(crate) fn await_continue(&self) {
        self.client.await_continue();
    }

    /// Returns whether the client waits until its body is asked for.
    pub(crate) fn awaits_continue(&self) -> bool {
        self.client.awaits_continue()
    }

    /// The request's body is asked for: hyper tells the client.
    pub(crate) fn on_body_asked(&self) {
        if self.awaits_continue() {
            self.client.on_body_asked();
        }
    }

    /// The answer says that the client's connection ends after it.
    pub(crate) fn close_client(&self) {
        self.client.close();
        if self.is_multiplexed {
            self.meter.has_failed.store(true, Relaxed);
        }
    }

    /// Returns whether the answer says that the client's connection ends.
    pub(crate) fn closes_client(&self) -> bool {
        self.client.is_closed()
    }

    /// What was left of the request after its answer was read and thrown away.
    pub(crate) fn on_rest_drained(&self) {
        // the next request's head may have been read meanwhile
        if !self.closed.load(Relaxed) || self.meter.open.load(Relaxed) == 0 {
            self.on_request_end(None);
        }
    }

    /// When what was just given of the request was read.
    fn request_read(&self) -> Stamp {
        let read = if self.is_multiplexed { None } else { self.meter.last_read() };
        read.unwrap_or_else(Stamp::now)
    }

    /// When the request was read to its end; `None` before that.
    pub(crate) fn request_end(&self) -> Option<Stamp> {
        Stamp::from_ns(self.request_end.load(Relaxed))
    }

    /// When bytes of the request were last read.
    pub(crate) fn request_last(&self) -> Stamp {
        Stamp::from_ns(self.request_last.load(Relaxed)).unwrap_or(self.called)
    }
}
