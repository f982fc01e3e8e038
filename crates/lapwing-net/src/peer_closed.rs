//! What is known about the other end of a connection without reading.

/// What the other end of a socket has closed, as far as it is known without reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerClosed {
    /// It sends nothing more; what it sent may still wait to be read.
    pub sends: bool,
    /// It takes nothing more: the connection was reset, or both directions are closed.
    pub takes: bool,
}
