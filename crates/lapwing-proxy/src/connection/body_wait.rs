//! Whether the body of a message made its reader wait after the head: then its sender wrote the two apart.
//!
//! A sender with Nagle's algorithm on does not send the second of two small writes until the first is acknowledged, and Linux delays that
//! acknowledgement by up to 40 ms. So the socket is asked to acknowledge at once (`TCP_QUICKACK`) when a body is awaited and there is
//! nothing to read: once for a message, and never if head and body came together.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// No body is awaited.
const IDLE: u8 = 0;
/// The head was read, and the body's first byte was not.
const AWAITED: u8 = 1;
/// The same, and the socket is to be asked.
const AWAITED_ASKING: u8 = 2;
/// There was nothing to read.
const APART: u8 = 3;
/// There was nothing to read, and the socket acknowledged the head.
const ACKNOWLEDGED: u8 = 4;

/// How the first byte of a body came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyArrival {
    /// With its head, or before anybody waited for it.
    WithHead,
    /// After its head.
    Apart {
        /// Whether the socket was asked to acknowledge the head at once, and did.
        is_acknowledged: bool,
    },
}

/// The wait for a body's first byte on one connection. Only the connection's task changes it.
#[derive(Debug, Default)]
pub(crate) struct BodyWait(AtomicU8);

impl BodyWait {
    /// The head was read, and its body is to be read now. With `asks`, the socket is asked to acknowledge the head if there is nothing to
    /// read.
    pub(crate) fn begin(&self, asks: bool) {
        self.0.store(if asks { AWAITED_ASKING } else { AWAITED }, Relaxed);
    }

    /// The socket has nothing to read. `acknowledge` asks it to acknowledge what was read, and returns whether it does.
    pub(crate) fn on_nothing_read(&self, acknowledge: impl FnOnce() -> bool) {
        let next = match self.0.load(Relaxed) {
            AWAITED => APART,
            AWAITED_ASKING if acknowledge() => ACKNOWLEDGED,
            AWAITED_ASKING => APART,
            _ => return,
        };
        self.0.store(next, Relaxed);
    }

    /// The wait is over. Returns how the body came.
    pub(crate) fn end(&self) -> BodyArrival {
        let was = self.0.load(Relaxed);
        self.0.store(IDLE, Relaxed);
        match was {
            APART => BodyArrival::Apart { is_acknowledged: false },
            ACKNOWLEDGED => BodyArrival::Apart { is_acknowledged: true },
            _ => BodyArrival::WithHead,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_is_asked_once_and_only_while_a_body_is_awaited() {
        let (wait, mut asked) = (BodyWait::default(), 0);
        let mut nothing_read = |wait: &BodyWait, does: bool| {
            wait.on_nothing_read(|| {
                asked += 1;
                does
            });
            asked
        };
        assert_eq!(nothing_read(&wait, true), 0, "between messages");
        wait.begin(true);
        assert_eq!(wait.end(), BodyArrival::WithHead);
        assert_eq!(nothing_read(&wait, true), 0, "the body streams");
        wait.begin(true);
        assert_eq!((nothing_read(&wait, true), nothing_read(&wait, true)), (1, 1));
        assert_eq!(wait.end(), BodyArrival::Apart { is_acknowledged: true });
        wait.begin(true);
        assert_eq!((nothing_read(&wait, false), nothing_read(&wait, false)), (2, 2), "the socket refuses");
        assert_eq!(wait.end(), BodyArrival::Apart { is_acknowledged: false });
        wait.begin(false);
        assert_eq!(nothing_read(&wait, true), 2, "it is not to be asked");
        assert_eq!(wait.end(), BodyArrival::Apart { is_acknowledged: false });
    }
}
