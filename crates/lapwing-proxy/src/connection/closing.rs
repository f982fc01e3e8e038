//! The responses of one connection that end with its next flush, or with the connection.

use std::fmt::Debug;
use std::sync::Arc;

use smallvec::SmallVec;

use lapwing_ledger::Stamp;

/// A response whose last bytes the connection is about to write. It ends when a flush finds them written.
pub(crate) trait OnFlush: Debug + Send + Sync {
    /// Returns whether hyper still holds some of its bytes. Then this flush did not write them.
    fn is_held(&self) -> bool;
    /// The socket took its last bytes in a write stamped `at`.
    fn on_flushed(&self, at: Stamp);
    /// The connection ended before the last bytes were flushed.
    fn on_lost(&self);
}

/// Those that have ended but for a flush.
#[derive(Debug, Default)]
pub(crate) struct Closing {
    pub(crate) responses: SmallVec<[Arc<dyn OnFlush>; 2]>,
    /// The connection has ended: no flush comes.
    is_gone: bool,
}

impl Closing {
    /// Adds `response`; gives it back if the connection has ended. Over HTTP/2 a task of its own makes it, which may not know that yet.
    pub(crate) fn push(&mut self, response: Arc<dyn OnFlush>) -> Option<Arc<dyn OnFlush>> {
        if self.is_gone {
            return Some(response);
        }
        self.responses.push(response);
        None
    }

    /// The connection ended. Returns what it did not flush.
    pub(crate) fn end(&mut self) -> SmallVec<[Arc<dyn OnFlush>; 2]> {
        self.is_gone = true;
        std::mem::take(&mut self.responses)
    }
}
