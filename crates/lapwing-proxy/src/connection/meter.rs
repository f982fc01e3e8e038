//! The stamps of one connection (last read, first read since it was idle, last write), and what waits for its next flush.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Wake, Waker};

use parking_lot::Mutex;
use smallvec::SmallVec;

use super::body_wait::BodyWait;
use super::client_waits::ClientWaits;
use super::closing::{Closing, OnFlush};
use super::greeting::UpstreamSigns;
use super::quiet_waker::QuietWaker;
use lapwing_ledger::Stamp;

/// A socket that took all it was given and for so long is given nothing more is quiet, in nanoseconds; less is scheduling.
const QUIET_NS: u64 = 1_000_000;

/// A body that does not say how long it is.
const UNKNOWN: u64 = u64::MAX;

/// Bytes of interim responses that may wait for a client.
const MAX_INTERIM: usize = 64 * 1024;

/// Stamps of one connection. One task writes them and others read them a moment later, so relaxed order is enough.
#[derive(Debug, Default)]
pub(crate) struct SocketMeter {
    /// Of the task that carries the connection (HTTP/1.1).
    pub(crate) waker: QuietWaker,
    first_read: AtomicU64,
    last_read: AtomicU64,
    last_write: AtomicU64,
    /// The latest event on the socket is that it took bytes.
    is_writing: AtomicBool,
    /// There was nothing to read, and once there is, the waker is called.
    pub(crate) is_watched: AtomicBool,
    /// The socket took everything, and was given nothing since.
    pub(crate) is_drained: AtomicBool,
    /// The latest time that it was quiet: the writes before and after.
    quiet_from: AtomicU64,
    quiet_to: AtomicU64,
    flushes: AtomicU32,
    has_waiting: AtomicBool,
    waiting: Mutex<SmallVec<[Waker; 2]>>,
    /// Requests between their head and their last flushed byte.
    pub(crate) open: AtomicU32,
    /// A request came over the connection.
    has_carried: AtomicBool,
    /// The wait for the body of the message whose head was read.
    pub(crate) body_wait: BodyWait,
    /// The latest request was answered before it was read to its end.
    is_unread: AtomicBool,
    /// Bytes that are left of the request's body, [`UNKNOWN`] if they are not known; 0 if it is complete (HTTP/1.1).
    body_left: AtomicU64,
    /// Somebody waits for more of the request's body.
    is_body_awaited: AtomicBool,
    /// The connection speaks HTTP/2: bytes between requests do not begin a head.
    pub(crate) is_multiplexed: AtomicBool,
    /// Heads and trailers that end an HTTP/2 stream, which hyper was given and the socket has not taken.
    last_heads: AtomicU32,
    /// Nothing has come for a while, and nothing is under way (HTTP/1.1).
    is_rested: AtomicBool,
    /// An answer of Lapwing's own was the connection's last, as far as it can be (HTTP/2).
    pub(crate) has_failed: AtomicBool,
    /// HTTP/2 ended the connection over a head that is too large.
    pub(crate) is_head_too_large: AtomicBool,
    has_closing: AtomicBool,
    closing: Mutex<Closing>,
    last_closed: AtomicU64,
    has_blocked: AtomicBool,
    blocked: Mutex<ClientWaits>,
    /// What the upstream's bytes told of it.
    pub(crate) upstream: UpstreamSigns,
    /// The certificate by which the other end proved who it is, in DER.
    pub(crate) certificate: OnceLock<Box<[u8]>>,
    has_interim: AtomicBool,
    interim: Mutex<Vec<u8>>,
}

/// The waker with which a connection is polled.
impl Wake for SocketMeter {
    fn wake(self: Arc<Self>) {
        self.waker.wake();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.waker.wake();
    }
}

impl SocketMeter {
    /// Bytes were read, which came now or, of a record, between these times.
    pub(crate) fn on_read(&self, came: Option<(Stamp, Stamp)>) {
        let (first, last) = came.unwrap_or_else(|| [Stamp::now(); 2].into());
        if self.first_read.load(Relaxed) == 0 {
            self.first_read.store(first.as_ns(), Relaxed);
        }
        self.last_read.store(last.as_ns(), Relaxed);
        self.is_rested.store(false, Relaxed);
    }

    /// The latest read brought the beginning of a head too.
    pub(crate) fn on_head_begun(&self) {
        self.first_read.store(self.last_read.load(Relaxed), Relaxed);
        self.is_rested.store(false, Relaxed);
    }

    /// The connection has been idle for a while.
    pub(crate) fn rest(&self) {
        self.is_rested.store(true, Relaxed);
    }

    /// Returns whether the connection has been idle for a while, and still is.
    pub(crate) fn is_rested(&self) -> bool {
        self.is_rested.load(Relaxed)
    }

    /// The socket took bytes, in a write stamped `at`.
    pub(crate) fn on_write(&self, at: Stamp) {
        let before = self.last_write.load(Relaxed);
        self.last_write.store(at.as_ns(), Relaxed);
        self.is_writing.store(true, Relaxed);
        if self.is_drained.load(Relaxed) {
            self.is_drained.store(false, Relaxed);
            if at.as_ns().saturating_sub(before) > QUIET_NS && self.last_read.load(Relaxed) > before {
                self.quiet_from.store(before, Relaxed);
                self.quiet_to.store(at.as_ns(), Relaxed);
            }
        }
    }

    /// Returns whether the socket took bytes after `handed` and then was given nothing for a while, until the client sent something and
    /// `now` at the latest. Where hyper still held bytes of a response all that time, it was the client's HTTP/2 window that had no room
    /// for them.
    pub(crate) fn was_quiet(&self, handed: Stamp, now: Stamp) -> bool {
        let stamps = [&self.quiet_from, &self.quiet_to, &self.last_write, &self.last_read];
        let [from, to, last, read] = stamps.map(|stamp| stamp.load(Relaxed));
        let is_quiet_now = last >= handed.as_ns() && now.as_ns().saturating_sub(last) > QUIET_NS;
        (is_quiet_now && read > last && self.is_drained.load(Relaxed))
            || (from >= handed.as_ns() && to <= now.as_ns() && from < to)
    }

    /// The socket takes no bytes.
    pub(crate) fn on_blocked(&self) {
        self.is_writing.store(false, Relaxed);
        self.is_drained.store(false, Relaxed);
    }

    /// Bytes were gathered that the socket has not taken yet.
    pub(crate) fn on_gathered(&self) {
        self.is_writing.store(false, Relaxed);
    }

    /// Returns whether the socket has just taken bytes, and has neither blocked nor been flushed since.
    pub(crate) fn is_writing(&self) -> bool {
        self.is_writing.load(Relaxed)
    }

    /// Hyper is given a head or trailers that end an HTTP/2 stream.
    pub(crate) fn on_last_head(&self) {
        self.last_heads.fetch_add(1, Relaxed);
    }

    /// The socket took a head or trailers that end an HTTP/2 stream. Returns whether hyper was given one.
    pub(crate) fn take_last_head(&self) -> bool {
        self.last_heads.fetch_update(Relaxed, Relaxed, |n| n.checked_sub(1)).is_ok()
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

    /// A request comes. Returns whether it is the connection's first.
    pub(crate) fn is_first_request(&self) -> bool {
        let is_first = !self.has_carried.load(Relaxed);
        if is_first {
            self.has_carried.store(true, Relaxed);
        }
        is_first
    }

    /// The read that brought the first byte since [`Self::on_message_read`].
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

    /// A message was read to its end: the next byte begins another.
    pub(crate) fn on_message_read(&self) {
        self.first_read.store(0, Relaxed);
        self.body_left.store(0, Relaxed);
        self.is_unread.store(false, Relaxed);
    }

    /// A message was given up before it was read to its end: its remaining bytes do not begin the next head.
    pub(crate) fn on_message_abandoned(&self) {
        self.first_read.store(0, Relaxed);
        self.body_left.store(0, Relaxed);
        self.is_unread.store(true, Relaxed);
    }

    /// So many bytes of the message's body are still to come, if it says how many.
    pub(crate) fn on_body_left(&self, bytes: Option<u64>) {
        self.body_left.store(bytes.map_or(UNKNOWN, |bytes| bytes.max(1)), Relaxed);
    }

    /// Whether somebody waits for more of the request's body.
    pub(crate) fn on_body_awaited(&self, is_awaited: bool) {
        self.is_body_awaited.store(is_awaited, Relaxed);
    }

    /// Returns whether more of the request's body is read now than anybody waits for (HTTP/1.1).
    pub(crate) fn is_ahead(&self) -> bool {
        self.body_left.load(Relaxed) > 0 && !self.is_body_awaited.load(Relaxed)
    }

    /// How many bytes of a message's body are still to come, at least; 0 if none.
    pub(crate) fn body_left(&self) -> u64 {
        self.known_body_left().unwrap_or(1)
    }

    /// How many bytes of a message's body are still to come; `None` if it does not say.
    pub(crate) fn known_body_left(&self) -> Option<u64> {
        Some(self.body_left.load(Relaxed)).filter(|left| *left != UNKNOWN)
    }

    /// Returns whether a request has come over the connection.
    pub(crate) fn has_carried(&self) -> bool {
        self.has_carried.load(Relaxed)
    }

    /// Returns whether the latest message was given up before it was read to its end.
    pub(crate) fn is_unread(&self) -> bool {
        self.is_unread.load(Relaxed)
    }

    /// When the head began that has just been read: at the first byte since the last message or, if that byte came in
    /// one read with the last message (pipelining), at the latest read.
    pub(crate) fn head_began(&self) -> Stamp {
        self.first_read().or_else(|| self.last_read()).unwrap_or_else(Stamp::now)
    }

    /// `response` has ended, except for its last bytes, which the connection is about to write.
    pub(crate) fn close_at_flush(&self, response: Arc<dyn OnFlush>) {
        if let Some(response) = { self.closing.lock().push(response) } {
            return response.on_lost();
        }
        self.has_closing.store(true, Relaxed);
    }

    /// The socket took all that was written.
    pub(crate) fn on_flushed(&self) {
        self.is_writing.store(false, Relaxed);
        self.is_drained.store(true, Relaxed);
        // only one task counts, so a load and a store are enough
        self.flushes.store(self.flushes().wrapping_add(1), Relaxed);
        if taken(&self.has_closing) {
            let mut done = std::mem::take(&mut self.closing.lock().responses);
            if done.iter().any(|response| response.is_held()) {
                let (mut held, written) = done.drain(..).partition::<SmallVec<_>, _>(|response| response.is_held());
                done = written;
                self.closing.lock().responses.append(&mut held);
            }
            // the write that took the last byte has just been stamped
            let now = self.last_write().unwrap_or_else(Stamp::now);
            self.last_closed.store(now.as_ns(), Relaxed);
            done.into_iter().for_each(|response| response.on_flushed(now));
        }
        if taken(&self.has_waiting) {
            std::mem::take(&mut *self.waiting.lock()).into_iter().for_each(Waker::wake);
        }
    }

    /// Hyper has released the bytes that held a finished response back: the next flush closes it.
    pub(crate) fn close_released(&self) {
        self.has_closing.store(true, Relaxed);
    }

    /// `response` was closed before the flush that would have closed it.
    pub(crate) fn forget(&self, response: &dyn OnFlush) {
        self.closing.lock().responses.retain(|other| !std::ptr::addr_eq(Arc::as_ptr(other), response));
    }

    /// The connection ended. Bytes that were not flushed did not arrive.
    pub(crate) fn on_gone(&self) {
        let closing = self.closing.lock().end();
        closing.into_iter().for_each(|response| response.on_lost());
    }

    /// When the latest response was flushed.
    pub(crate) fn last_closed(&self) -> Option<Stamp> {
        Stamp::from_ns(self.last_closed.load(Relaxed))
    }

    /// The client takes bytes again, after a wait since `since`.
    pub(crate) fn on_unblocked(&self, since: Stamp) {
        self.blocked.lock().push(since, Stamp::now());
        self.has_blocked.store(true, Relaxed);
    }

    /// Takes the waits for a slow client since the last call, oldest first.
    pub(crate) fn take_blocked(&self) -> Option<ClientWaits> {
        taken(&self.has_blocked).then(|| std::mem::take(&mut *self.blocked.lock()))
    }

    /// Writes an interim response (1xx) before anything else that is written. Returns `false` if too many wait for the client already.
    pub(crate) fn interject(&self, bytes: &[u8]) -> bool {
        let mut interim = self.interim.lock();
        if interim.len() + bytes.len() > MAX_INTERIM {
            return false;
        }
        interim.extend_from_slice(bytes);
        self.has_interim.store(true, Relaxed);
        true
    }

    /// Takes the bytes given to [`Self::interject`].
    pub(crate) fn take_interim(&self) -> Option<Vec<u8>> {
        taken(&self.has_interim).then(|| std::mem::take(&mut *self.interim.lock()))
    }
}

/// Takes a flag: returns whether it was set. Most often it is not, and to find that out takes no atomic exchange.
fn taken(flag: &AtomicBool) -> bool {
    flag.load(Relaxed) && flag.swap(false, Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_quiet_that_takes_bytes_and_is_given_none() {
        let at = |us: u64| Stamp::default().plus(1_000_000_000 + us * 1_000);
        let meter = SocketMeter::default();
        let write = |us: u64| {
            meter.on_write(at(us));
            meter.on_flushed();
        };
        let read = |us: u64| meter.last_read.store(at(us).as_ns(), Relaxed);
        write(0);
        write(500);
        assert!(!meter.was_quiet(at(0), at(900)), "scheduling");
        assert!(!meter.was_quiet(at(0), at(1_600)), "the client has sent nothing");
        read(1_550);
        assert!(meter.was_quiet(at(0), at(1_600)), "until now");
        write(5_000);
        assert!(meter.was_quiet(at(400), at(5_000)));
        assert!(!meter.was_quiet(at(501), at(5_000)), "nothing was taken after it was handed over");
        read(5_100);
        meter.on_blocked();
        assert!(!meter.was_quiet(at(600), at(9_000)), "the socket has no room");
        meter.on_write(at(9_000));
        assert!(!meter.was_quiet(at(600), at(9_000)));
        meter.on_write(at(12_000));
        assert!(!meter.was_quiet(at(600), at(12_000)), "there was more to write all the time");
    }

    #[test]
    fn a_head_begins_at_the_first_byte_since_the_last_message() {
        let meter = SocketMeter::default();
        meter.on_read(None);
        let first = meter.head_began();
        meter.on_read(None);
        assert_eq!(meter.head_began(), first);
        meter.on_message_read();
        assert_eq!(meter.head_began(), meter.last_read().unwrap());
        meter.on_read(None);
        assert!(meter.head_began() > first);
    }
}
