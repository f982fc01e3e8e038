//! Bytes that wait to go out together: over HTTP/2, where several streams share a connection, each frame with data is written by itself,
//! and a system call costs more than all else that is done for it.
//!
//! What is written is gathered, and sent when the connection's task is polled and adds nothing to it. Until then the connection's task is woken
//! after every other that is ready, so that what these have to say goes out too. Nothing waits for time to pass, and nothing is gathered
//! for a single stream.

use std::io::IoSlice;

/// How much may wait.
const MAX_GATHERED: usize = 32 * 1024;
/// How often a flush is put off because more has come meanwhile.
const MAX_PUT_OFF: u8 = 4;
/// How much room is kept for what comes next.
const KEPT: usize = 8 * 1024;

/// What becomes of the bytes at a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flush {
    /// They are sent.
    Now,
    /// More may be about to come: the task is to be woken.
    Later,
    /// It was woken.
    Waits,
}

/// The bytes that wait on one connection.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    bytes: Vec<u8>,
    /// How many of them were sent.
    sent: usize,
    /// Bytes were added since the last flush.
    is_fresh: bool,
    /// The task was woken to flush again, and has not come to read since.
    is_waiting: bool,
    /// How often it was woken since something was sent.
    put_off: u8,
}

impl Gathered {
    /// Returns whether no byte waits.
    pub(crate) const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// What is to be sent next.
    pub(crate) fn rest(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    /// Adds all of `bufs`, if there is room for them. Returns their length.
    pub(crate) fn add(&mut self, bufs: &[IoSlice<'_>]) -> Option<usize> {
        let length = bufs.iter().map(|buf| buf.len()).sum::<usize>();
        if self.bytes.len() + length > MAX_GATHERED {
            return None;
        }
        bufs.iter().for_each(|buf| self.bytes.extend_from_slice(buf));
        self.is_fresh = true;
        Some(length)
    }

    /// `n` more bytes were sent.
    pub(crate) fn on_sent(&mut self, n: usize) {
        self.sent += n;
        if self.sent == self.bytes.len() {
            (self.sent, self.put_off) = (0, 0);
            self.bytes.clear();
            self.bytes.shrink_to(KEPT);
        }
    }

    /// A flush. Returns what is to be done about it.
    pub(crate) fn on_flush(&mut self) -> Flush {
        match (std::mem::take(&mut self.is_fresh), self.is_waiting) {
            (true, false) if self.put_off < MAX_PUT_OFF => {
                self.put_off += 1;
                self.is_waiting = true;
                Flush::Later
            }
            // each frame with data is flushed, and the last one twice
            (_, true) => Flush::Waits,
            _ => Flush::Now,
        }
    }

    /// The task reads: it was polled anew.
    pub(crate) fn on_polled(&mut self) {
        self.is_waiting = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_keep_their_order_and_what_has_no_room_is_not_taken() {
        let mut gathered = Gathered::default();
        assert_eq!(gathered.add(&[IoSlice::new(b"ab"), IoSlice::new(b"c")]), Some(3));
        assert_eq!(gathered.add(&[IoSlice::new(&[0; MAX_GATHERED])]), None);
        assert_eq!([gathered.on_flush(), gathered.on_flush()], [Flush::Later, Flush::Waits]);
        gathered.on_polled();
        assert_eq!(gathered.add(&[IoSlice::new(b"")]), Some(0));
        assert_eq!(gathered.on_flush(), Flush::Later, "more has come");
        gathered.on_polled();
        assert_eq!(gathered.on_flush(), Flush::Now);
        let flushed: Vec<_> = (0..=MAX_PUT_OFF)
            .map(|_| {
                gathered.add(&[IoSlice::new(b"")]);
                gathered.on_polled();
                gathered.on_flush()
            })
            .collect();
        assert_eq!(flushed.iter().filter(|flush| **flush == Flush::Now).count(), 3, "not for ever: {flushed:?}");
        gathered.on_sent(2);
        assert_eq!(gathered.add(&[IoSlice::new(b"d")]), Some(1));
        assert_eq!(gathered.rest(), b"cd");
        gathered.on_sent(2);
        assert!(gathered.is_empty() && gathered.rest().is_empty());
    }
}
