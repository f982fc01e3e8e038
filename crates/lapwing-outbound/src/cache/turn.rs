//! What passes between a connection and what reads it.

use lapwing_ledger::Stamp;

/// What is to be done with what a client sent.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    pub(crate) to_store: Vec<u8>,
    pub(crate) answers: Vec<u8>,
}

impl Outgoing {
    pub(crate) fn clear(&mut self) {
        // a connection that stands still needs no buffer
        (self.to_store, self.answers) = (Vec::new(), Vec::new());
    }
}

/// When something came, and how many bytes of answers the client has room for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    pub(crate) now: Stamp,
    pub(crate) room: usize,
}
