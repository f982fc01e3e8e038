//! What the account of a request needs of the connection that it comes over.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::client_waits::ClientWaits;
use super::closing::OnFlush;
use super::meter::SocketMeter;
use lapwing_ledger::Stamp;

/// Where the stamps of a client's requests come from, and what says that the last bytes of a response were taken: a metered socket, or
/// anything else that can tell. What it cannot tell it leaves out.
pub(crate) trait ConnectionStamps: Debug + Send + Sync + 'static {
    /// When the first byte was read of the head that has just come, over a connection that requests share or do not share.
    fn head_began(&self, is_multiplexed: bool) -> Stamp;

    /// When bytes were last read.
    fn last_read(&self) -> Option<Stamp>;

    /// Has `response`, which has ended, told when its last bytes were taken.
    fn close_at_flush(&self, response: Arc<dyn OnFlush>);

    /// When the latest response before was taken whole.
    fn last_closed(&self) -> Option<Stamp> {
        None
    }

    /// A request came. Returns whether it is the connection's first.
    fn on_request_opened(&self) -> bool;

    /// The account of a request was closed.
    fn on_request_closed(&self) {}

    /// A request was read to its end: the next byte begins another.
    fn on_message_read(&self) {}

    /// A request was given up before it was read to its end.
    fn on_message_abandoned(&self) {}

    /// Takes the waits for a slow client since the last call.
    fn take_blocked(&self) -> Option<ClientWaits> {
        None
    }

    /// Returns whether bytes handed over at `handed` waited until `now` for the client's window, and not for its socket (HTTP/2).
    fn was_quiet(&self, handed: Stamp, now: Stamp) -> bool {
        let _ = (handed, now);
        false
    }
}

impl ConnectionStamps for SocketMeter {
    fn head_began(&self, is_multiplexed: bool) -> Stamp {
        if is_multiplexed { Self::last_read(self) } else { None }.unwrap_or_else(|| Self::head_began(self))
    }

    fn last_read(&self) -> Option<Stamp> {
        Self::last_read(self)
    }

    fn close_at_flush(&self, response: Arc<dyn OnFlush>) {
        Self::close_at_flush(self, response);
    }

    fn last_closed(&self) -> Option<Stamp> {
        Self::last_closed(self)
    }

    fn on_request_opened(&self) -> bool {
        let is_first = self.is_first_request();
        self.open.fetch_add(1, Relaxed);
        is_first
    }

    fn on_request_closed(&self) {
        self.open.fetch_sub(1, Relaxed);
    }

    fn on_message_read(&self) {
        Self::on_message_read(self);
    }

    fn on_message_abandoned(&self) {
        Self::on_message_abandoned(self);
    }

    fn take_blocked(&self) -> Option<ClientWaits> {
        Self::take_blocked(self)
    }

    fn was_quiet(&self, handed: Stamp, now: Stamp) -> bool {
        Self::was_quiet(self, handed, now)
    }
}
