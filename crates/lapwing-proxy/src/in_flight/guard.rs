//! The guard that closes a request's ledger when its response is dropped early.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::request::InFlight;
use crate::connection::{ConnectionStamps, SocketMeter};
use lapwing_ledger::Stamp;

/// Closes the ledger if it is dropped before [`InFlight::finish`] was called: as cancelled, unless the response was
/// complete by its own end mark (such as `data: [DONE]`, an error, or the last frame of gRPC-Web and Connect), and the client was
/// given all of it. Clients leave at such a mark, and do not wait for the end of the body.
#[derive(Debug)]
pub(crate) struct AccountGuard<M: ConnectionStamps = SocketMeter>(pub(crate) Arc<InFlight<M>>);

impl<M: ConnectionStamps> Drop for AccountGuard<M> {
    fn drop(&mut self) {
        if self.0.is_finished() {
            return;
        }
        let mut is_complete = false;
        self.0.with_reader(|reader| is_complete = reader.is_complete());
        if is_complete && !self.0.is_cut.load(Relaxed) {
            // the client has all it asked for, and left without waiting for the body's end
            if self.0.held.load(Relaxed) > 0 {
                self.0.finish(); // unless it left before the rest was written
            } else {
                self.0.close(Stamp::now());
            }
        } else {
            self.0.cancel();
        }
    }
}
