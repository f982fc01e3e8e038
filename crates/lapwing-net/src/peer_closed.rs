//! What is known about the other end of a connection without reading.

use tokio::io::Ready;

/// What the other end of a socket has closed, as far as it is known without reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerClosed {
    /// It sends nothing more; what it sent may still wait to be read.
    pub sends: bool,
    /// It takes nothing more: the connection was reset, or both directions are closed.
    pub takes: bool,
}

impl PeerClosed {
    /// What the system says of a socket, if it says anything.
    pub(crate) fn of(ready: Option<std::io::Result<Ready>>) -> Self {
        let Some(Ok(ready)) = ready else { return Self::default() };
        Self { sends: ready.is_read_closed(), takes: ready.is_write_closed() }
    }
}
