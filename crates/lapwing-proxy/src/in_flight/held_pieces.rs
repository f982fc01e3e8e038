//! The pieces of a response that hyper still holds, over HTTP/2: what became of the last one tells how the exchange ended.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::request::InFlight;
use lapwing_ledger::Stamp;

impl InFlight {
    /// Hyper is given a piece of the response. It drops the returned handle with the piece.
    pub(crate) fn hold_piece(self: &Arc<Self>) -> Arc<Self> {
        self.held.fetch_add(1, Relaxed);
        self.clone()
    }

    /// Hyper dropped a piece. The last piece of a finished response ends the exchange: now, if the socket took it; at the
    /// next flush, if a buffer did. A piece that is not `whole` was thrown away: the client reset the stream.
    pub(crate) fn release_piece(&self, whole: bool, written: bool) {
        let is_last = self.held.fetch_sub(1, Relaxed) == 1;
        if !whole {
            self.is_cut.store(true, Relaxed);
        }
        if !self.is_finished() {
            return;
        }
        if !whole {
            self.cancel();
        } else if !is_last {
            return;
        } else if written {
            self.close(self.meter.last_write().unwrap_or_else(Stamp::now));
        } else {
            return self.meter.close_released();
        }
        self.meter.forget(self);
    }
}
