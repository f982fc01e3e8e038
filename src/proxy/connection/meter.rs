//! A connection's stamps: when bytes were last read, first read since idle, last written; and who waits for the next flush.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Waker};

use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::ledger::Stamp;
use crate::proxy::connection::client_waits::Waits;
use crate::proxy::exchange::in_flight::Live;

/// Stamps of one connection. One task writes them; others read them a moment later, so relaxed order will do.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    first_read: AtomicU64,
    last_read: AtomicU64,
    last_write: AtomicU64,
    /// The latest thing that happened to the socket is that it took bytes.
    is_writing: AtomicBool,
    flushes: AtomicU32,
    has_waiting: AtomicBool,
    waiting: Mutex<SmallVec<[Waker; 2]>>,
    /// Requests between their head and their last flushed byte.
    pub(crate) open: AtomicU32,
    /// The latest request was answered before it was read to its end.
    is_unread: AtomicBool,
    /// The connection speaks HTTP/2: bytes between requests are no head that begins.
    pub(crate) multiplexed: AtomicBool,
    has_closing: AtomicBool,
    closing: Mutex<SmallVec<[Arc<Live>; 2]>>,
    last_closed: AtomicU64,
    has_blocked: AtomicBool,
    blocked: Mutex<Waits>,
    has_interim: AtomicBool,
    interim: Mutex<Vec<u8>>,
}

impl Meter {
    /// Bytes came.
    pub(crate) fn on_read(&self) {
        let now = Stamp::now().as_ns();
        if self.first_read.load(Relaxed) == 0 {
            self.first_read.store(now, Relaxed);
        }
        self.last_read.store(now, Relaxed);
    }

    /// Bytes were taken by the socket, in a write stamped `at`.
    pub(crate) fn on_write(&self, at: Stamp) {
        self.last_write.store(at.as_ns(), Relaxed);
        self.is_writing.store(true, Relaxed);
    }

    /// The socket takes no bytes.
    pub(crate) fn on_blocked(&self) {
        self.is_writing.store(false, Relaxed);
    }

    /// Whether the socket has just taken bytes, and neither stopped nor been flushed since.
    pub(crate) fn is_writing(&self) -> bool {
        self.is_writing.load(Relaxed)
    }

    /// How often the connection was flushed; wraps.
    pub(crate) fn flushes(&self) -> u32 {
        self.flushes.load(Relaxed)
    }

    /// Wakes the task at the next flush.
    pub(crate) fn wake_at_flush(&self, cx: &Context<'_>) {
        let mut waiting = self.waiting.lock();
        if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
            waiting.push(cx.waker().clone());
        }
        self.has_waiting.store(true, Relaxed);
    }

    /// The read that brought the first byte since [`Self::settle`].
    pub(crate) fn first_read(&self) -> Option<Stamp> {
        Stamp::from_ns(self.first_read.load(Relaxed))
    }

    /// The latest read that brought bytes.
    pub(crate) fn last_read(&self) -> Option<Stamp> {
        Stamp::from_ns(self.last_read.load(Relaxed))
    }

    /// The latest write that took bytes.
    pub(crate) fn last_write(&self) -> Option<Stamp> {
        Stamp::from_ns(self.last_write.load(Relaxed))
    }

    /// A message has been read whole: the next byte begins another.
    pub(crate) fn settle(&self) {
        self.first_read.store(0, Relaxed);
        self.is_unread.store(false, Relaxed);
    }

    /// A message was given up before it had been read whole: what comes of it still is not the head of the next.
    pub(crate) fn leave_unread(&self) {
        self.first_read.store(0, Relaxed);
        self.is_unread.store(true, Relaxed);
    }

    /// Whether the latest message was given up before it had been read whole.
    pub(crate) fn is_unread(&self) -> bool {
        self.is_unread.load(Relaxed)
    }

    /// When the head began that has just been read: at the first byte since the last message, or, if that byte came
    /// along with the last message (pipelining), at the latest read.
    pub(crate) fn head_began(&self) -> Stamp {
        self.first_read().or_else(|| self.last_read()).unwrap_or_else(Stamp::now)
    }

    /// `live` is done but for its last bytes, which the connection is about to write.
    pub(crate) fn close_at_flush(&self, live: Arc<Live>) {
        self.closing.lock().push(live);
        self.has_closing.store(true, Relaxed);
    }

    /// All that was written has been taken by the socket.
    pub(crate) fn on_flushed(&self) {
        self.is_writing.store(false, Relaxed);
        // a count that one task keeps needs no exchange
        self.flushes.store(self.flushes().wrapping_add(1), Relaxed);
        if self.has_closing.swap(false, Relaxed) {
            let mut done = SmallVec::<[Arc<Live>; 2]>::new();
            self.closing.lock().retain(|live| {
                let held = live.is_held();
                if !held {
                    done.push(live.clone());
                }
                held
            });
            // the write that took the last byte has just been stamped
            let now = self.last_write().unwrap_or_else(Stamp::now);
            self.last_closed.store(now.as_ns(), Relaxed);
            done.into_iter().for_each(|live| live.close(now));
        }
        if self.has_waiting.load(Relaxed) && self.has_waiting.swap(false, Relaxed) {
            std::mem::take(&mut *self.waiting.lock()).into_iter().for_each(Waker::wake);
        }
    }

    /// What a response that is done was held back by has been let go of: the next flush closes it.
    pub(crate) fn close_released(&self) {
        self.has_closing.store(true, Relaxed);
    }

    /// `live` was closed before the flush that would have closed it.
    pub(crate) fn forget(&self, live: &Arc<Live>) {
        self.closing.lock().retain(|other| !Arc::ptr_eq(other, live));
    }

    /// The connection ended. What was not flushed did not arrive.
    pub(crate) fn on_gone(&self) {
        let closing = std::mem::take(&mut *self.closing.lock());
        closing.into_iter().for_each(|live| live.cancel());
    }

    /// When the latest response was flushed.
    pub(crate) fn last_closed(&self) -> Option<Stamp> {
        Stamp::from_ns(self.last_closed.load(Relaxed))
    }

    /// The client took bytes again, after a wait since `since`.
    pub(crate) fn on_unblocked(&self, since: Stamp) {
        self.blocked.lock().push(since, Stamp::now());
        self.has_blocked.store(true, Relaxed);
    }

    /// The waits for a slow client since this was last asked, oldest first.
    pub(crate) fn take_blocked(&self) -> Option<Waits> {
        self.has_blocked.swap(false, Relaxed).then(|| std::mem::take(&mut *self.blocked.lock()))
    }

    /// Puts an interim response (1xx) before whatever is written next.
    pub(crate) fn interject(&self, bytes: &[u8]) {
        self.interim.lock().extend_from_slice(bytes);
        self.has_interim.store(true, Relaxed);
    }

    /// What [`Self::interject`] left to write.
    pub(crate) fn take_interim(&self) -> Option<Vec<u8>> {
        self.has_interim.swap(false, Relaxed).then(|| std::mem::take(&mut *self.interim.lock()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_begins_at_the_first_byte_since_the_last_message() {
        let meter = Meter::default();
        meter.on_read();
        let first = meter.head_began();
        meter.on_read();
        assert_eq!(meter.head_began(), first);
        meter.settle();
        assert_eq!(meter.head_began(), meter.last_read().unwrap());
        meter.on_read();
        assert!(meter.head_began() > first);
    }
}
