//! A response that has ended is closed by the flush of its last bytes.

use std::sync::atomic::Ordering::Relaxed;

use super::request::InFlight;
use crate::connection::{ConnectionStamps, OnFlush};
use lapwing_ledger::Stamp;

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
