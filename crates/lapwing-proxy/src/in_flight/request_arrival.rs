//! When the bytes of a request came: over HTTP/1.1 by the reads of its connection, over HTTP/2, where requests share one, by the clock.

use std::sync::atomic::Ordering::Relaxed;

use super::request::InFlight;
use crate::connection::ConnectionStamps;
use lapwing_ledger::Stamp;

impl<M: ConnectionStamps> InFlight<M> {
    /// `n` bytes of the request body were read. Returns when.
    pub(crate) fn on_request_bytes(&self, n: usize) -> Stamp {
        let read = self.request_read();
        self.stamps.on_request_bytes(n, read);
        read
    }

    /// The request body was read to its end, with its last bytes `at`; `None`: its end came alone, now.
    pub(crate) fn on_request_end(&self, at: Option<Stamp>) {
        self.stamps.on_request_end(at.unwrap_or_else(|| self.request_read()));
        self.meter.on_message_read();
    }

    /// When what was just given of the request was read.
    fn request_read(&self) -> Stamp {
        let read = if self.is_multiplexed { None } else { self.meter.last_read() };
        read.unwrap_or_else(Stamp::now)
    }
}

impl InFlight {
    /// The answer says that the client's connection ends after it.
    pub(crate) fn close_client(&self) {
        self.client.close();
        if self.is_multiplexed {
            self.meter.has_failed.store(true, Relaxed);
        }
    }

    /// What was left of the request after its answer was read and thrown away.
    pub(crate) fn on_rest_drained(&self) {
        // the next request's head may have been read meanwhile
        if !self.closed.load(Relaxed) || self.meter.open.load(Relaxed) == 0 {
            self.on_request_end(None);
        }
    }
}
