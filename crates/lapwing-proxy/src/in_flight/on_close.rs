//! What else is called when a request's account closes.

use std::fmt::Debug;

use lapwing_ledger::Ledger;

/// Called once when a request's ledger closes, before it is handed over: its work is known, and its answer has left. It must be quick,
/// must not wait, and must not touch the request in flight, whose lock is held.
pub trait OnClose: Debug + Send {
    /// The ledger closes.
    fn on_close(self: Box<Self>, ledger: &mut Ledger);
}
