//! The guard that closes a request's ledger when its response is dropped early.

use std::sync::Arc;

use super::in_flight::InFlight;
use crate::ledger::Stamp;

/// Closes the ledger if it is dropped before [`InFlight::finish`] was called: as cancelled, unless the response was
/// complete by its own end mark (such as `data: [DONE]`).
#[derive(Debug)]
pub(crate) struct ExchangeGuard(pub(crate) Arc<InFlight>);

impl Drop for ExchangeGuard {
    fn drop(&mut self) {
        if self.0.is_finished() {
            return;
        }
        let mut is_complete = false;
        self.0.with_reader(|reader, _| is_complete = reader.is_complete());
        if is_complete {
            self.0.close(Stamp::now()); // the client has all it asked for, and left without waiting for the body's end
        } else {
            self.0.cancel();
        }
    }
}
