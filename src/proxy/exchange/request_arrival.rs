//! When the bytes of a request came: over HTTP/1.1 by the reads of its connection, over HTTP/2, where requests share one, by the clock.

use std::sync::atomic::Ordering::Relaxed;

use super::in_flight::InFlight;
use crate::ledger::Stamp;

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
