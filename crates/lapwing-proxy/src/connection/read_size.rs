//! How many bytes one read of a client's connection takes, in bytes: fewer than there is room for, where that serves the upstream.

use std::sync::atomic::Ordering::Relaxed;

use super::meter::SocketMeter;

/// Of a body that the upstream does not wait for yet: what it does not take should wait in the client.
const AHEAD: usize = 64 * 1024;
/// Where a request begins. A small request is whole then; of a larger one the upstream has the beginning, and wakes up, while the rest is
/// copied.
const BEGINNING: usize = 16 * 1024;

/// Returns how many bytes the next read of a client's connection takes at most. HTTP/2 has windows for that.
pub(crate) fn read_size(meter: &SocketMeter) -> usize {
    if meter.is_multiplexed.load(Relaxed) {
        usize::MAX
    } else if meter.is_ahead() {
        AHEAD
    } else if meter.first_read().is_none() {
        BEGINNING
    } else {
        usize::MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_is_small_where_a_request_begins_and_where_nobody_waits() {
        let meter = SocketMeter::default();
        assert_eq!(read_size(&meter), BEGINNING);
        meter.on_read();
        assert_eq!(read_size(&meter), usize::MAX, "the head goes on");
        meter.on_body_left(Some(1 << 20));
        assert_eq!(read_size(&meter), AHEAD, "nobody waits for the body yet");
        meter.on_body_awaited(true);
        assert_eq!(read_size(&meter), usize::MAX);
        meter.on_message_read();
        assert_eq!(read_size(&meter), BEGINNING, "the next request");
        meter.is_multiplexed.store(true, Relaxed);
        assert_eq!(read_size(&meter), usize::MAX);
    }
}
