//! The first bytes of a client's connection, or the first after a rest: they tell which protocol it speaks, and are read again by hyper. And
//! how long a client may take with them.

use std::io;
use std::pin::Pin;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use tokio_util::io::poll_read_buf;

use super::client_side::REST;
use super::failure::ClientTimedOut;
use super::metered::MeteredSocket;

/// How much is read before hyper is there: what it would read at first.
const FIRST_READ: usize = 8192;

/// What a client's next bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    /// The beginning of an HTTP/1.1 request, or of what HTTP/1.1 refuses.
    Http1,
    /// The preface of HTTP/2.
    Http2,
    /// Nothing: the client has left, or was idle for too long.
    End,
}

impl MeteredSocket {
    /// Waits for the client's next bytes. Holds no buffer while it waits.
    pub(crate) fn poll_opening(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Opening>> {
        loop {
            // after a rest, hyper may have read more than it used
            if let Some(opening) = self.protocol().filter(|_| !self.read_ahead.is_empty()) {
                return Poll::Ready(Ok(opening));
            }
            match self.poll_readable(cx) {
                Poll::Pending => return self.poll_client_timeout(cx).map_ok(|()| Opening::End),
                Poll::Ready(readable) => readable?,
            }
            let begun = std::mem::take(&mut self.read_ahead);
            let mut read = BytesMut::with_capacity(begun.len() + FIRST_READ);
            read.extend_from_slice(&begun);
            let polled = poll_read_buf(Pin::new(&mut *self), cx, &mut read);
            let is_over = matches!(polled, Poll::Ready(Ok(0)));
            self.read_ahead = match self.protocol() {
                _ if read.is_empty() => Bytes::new(),
                Some(_) => read.freeze(),
                // less than a preface: not worth the buffer
                None => Bytes::copy_from_slice(&read),
            };
            ready!(polled)?;
            if is_over {
                let is_begun = !self.read_ahead.is_empty();
                return Poll::Ready(Ok(if is_begun { Opening::Http1 } else { Opening::End }));
            }
        }
    }

    /// Ends the connection of a client that neither completes its head nor goes away. Has one that is idle for a while rest.
    pub(crate) fn poll_client_timeout(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(client) = &mut self.client else { return Poll::Pending };
        if self.meter.open.load(Relaxed) > 0 {
            return Poll::Pending;
        }
        if let Some(since) = self.socket.owed_since() {
            if !client.deadline.has_expired(cx, since, client.timeouts.head) {
                return Poll::Pending;
            }
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, ClientTimedOut::Head)));
        }
        if let Some(began) = self.meter.first_read().filter(|_| !self.meter.is_multiplexed.load(Relaxed)) {
            if client.deadline.has_expired(cx, began, client.timeouts.head) {
                client.time_out(&self.meter);
                // a client that takes nothing is not waited for
                if self.poll_ahead(cx).is_ready() {
                    self.meter.on_flushed();
                }
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, ClientTimedOut::Head)));
            }
            return Poll::Pending;
        }
        let since = client.idle_since(&self.meter);
        if client.may_rest(&self.meter) {
            if !client.deadline.has_expired(cx, since, REST) {
                return Poll::Pending;
            }
            self.meter.rest();
        }
        if client.deadline.has_expired(cx, since, client.timeouts.idle) {
            return Poll::Ready(Ok(())); // end of file: an idle connection ends without an error
        }
        Poll::Pending
    }

    /// What the client speaks, once its first bytes have told.
    fn protocol(&self) -> Option<Opening> {
        if self.meter.is_multiplexed.load(Relaxed) {
            return Some(Opening::Http2);
        }
        self.client.as_ref().is_none_or(|client| !client.may_be_preface()).then_some(Opening::Http1)
    }

    /// Gives `bytes`, which came with the end of the last message, to whoever reads next: the beginning of a head, if there are any.
    pub(crate) fn read_again(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.meter.on_head_begun();
        }
        self.read_ahead = bytes;
    }
}
