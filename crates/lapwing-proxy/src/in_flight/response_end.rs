//! How a response ends: by the flush of its last bytes, by the last piece that hyper drops (HTTP/2), or by the guard of one that was dropped
//! early.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::request::InFlight;
use crate::connection::{ConnectionStamps, OnFlush};
use lapwing_ledger::Stamp;
use lapwing_tower::account::GuardedAccount;

impl<M: ConnectionStamps> OnFlush for InFlight<M> {
    fn is_held(&self) -> bool {
        self.held.load(Relaxed) > 0
    }

    fn on_flushed(&self, at: Stamp) {
        self.close(at);
    }

    fn on_lost(&self) {
        self.cancel();
    }
}

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

impl<M: ConnectionStamps> GuardedAccount for InFlight<M> {
    /// Closes the ledger if the guard is dropped before [`InFlight::finish`] was called: as cancelled, unless the response was
    /// complete by its own end mark (such as `data: [DONE]`, an error, or the last frame of gRPC-Web and Connect), and the client was
    /// given all of it. Clients leave at such a mark, and do not wait for the end of the body.
    fn on_abandoned(self: &Arc<Self>, _: bool) {
        if self.is_finished() {
            return;
        }
        let mut is_complete = false;
        self.with_reader(|reader| is_complete = reader.is_complete());
        if is_complete && !self.is_cut.load(Relaxed) {
            // the client has all it asked for, and left without waiting for the body's end
            if self.held.load(Relaxed) > 0 {
                self.finish(); // unless it left before the rest was written
            } else {
                self.close(Stamp::now());
            }
        } else {
            self.cancel();
        }
    }
}
