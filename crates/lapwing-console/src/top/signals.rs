//! The signals that end `lapwing top`.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that end the command: the terminal is restored before it ends.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    /// Listens from now on.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for one, and returns the exit code that a shell reports for it.
    pub(crate) async fn first(&mut self) -> u8 {
        tokio::select! {
            _ = self.terminate.recv() => 128 + 15,
            _ = self.interrupt.recv() => 128 + 2,
            _ = self.hang_up.recv() => 128 + 1,
        }
    }
}
