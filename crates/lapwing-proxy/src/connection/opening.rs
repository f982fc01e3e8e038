//! The first bytes of a client's connection, or the first after a rest: they tell which protocol it speaks, and are read again by hyper.

use std::io;
use std::pin::Pin;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use tokio_util::io::poll_read_buf;

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
