//! The socket below a TLS session, which notes when bytes came: the text of a record is there only once the whole record is.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use arrayvec::ArrayVec;
use futures_util::FutureExt;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

use crate::peer_closed::PeerClosed;
use lapwing_ledger::Stamp;

/// What a session goes over.
#[derive(Debug)]
pub(crate) enum Below {
    Tcp(TcpStream),
    /// Inside this process, driven by a fuzz target.
    #[cfg(any(test, feature = "testing"))]
    Memory(crate::memory::MemoryStream),
}

macro_rules! on_below {
    ($below:expr, $stream:ident => $call:expr) => {
        match $below {
            Below::Tcp($stream) => $call,
            #[cfg(any(test, feature = "testing"))]
            Below::Memory($stream) => $call,
        }
    };
}

/// A stream whose reads are stamped.
#[derive(Debug)]
pub(crate) struct Wire {
    stream: Below,
    /// The read that brought the first of the bytes that have given no text yet.
    began: Option<Stamp>,
    /// The latest read that brought bytes.
    last: Stamp,
    records: Records,
}

impl Wire {
    pub(crate) fn new(stream: Below) -> Self {
        Self { stream, began: None, last: Stamp::default(), records: Records::default() }
    }

    pub(crate) const fn tcp(&self) -> Option<&TcpStream> {
        match &self.stream {
            Below::Tcp(stream) => Some(stream),
            #[cfg(any(test, feature = "testing"))]
            Below::Memory(_) => None,
        }
    }

    /// What the other end has closed, as far as it is known without reading.
    pub(crate) fn peer_closed(&self) -> PeerClosed {
        match &self.stream {
            Below::Tcp(stream) => PeerClosed::of(stream.ready(Interest::READABLE | Interest::WRITABLE).now_or_never()),
            #[cfg(any(test, feature = "testing"))]
            Below::Memory(stream) => stream.peer_closed(),
        }
    }

    /// The session has given text. Returns when the bytes came that it was in: the first, and the last.
    pub(crate) fn on_text(&mut self) -> (Stamp, Stamp) {
        let began = self.began.take().unwrap_or(self.last);
        self.on_no_text();
        (began, self.last)
    }

    /// The session has read all that came, and has no more text: what is complete was its own (a ticket, new keys).
    pub(crate) fn on_no_text(&mut self) {
        self.began = if self.records.is_amid() { self.began.or(Some(self.last)) } else { None };
    }

    /// Since when the other end owes the rest of a record.
    pub(crate) fn owed_since(&self) -> Option<Stamp> {
        self.began.filter(|_| self.records.is_amid())
    }
}

/// Where records end: each has a header of 5 bytes, the last two of which are its length (RFC 8446, 5.1).
#[derive(Debug, Default)]
struct Records {
    header: ArrayVec<u8, 5>,
    /// Bytes of a record that are still to come.
    left: usize,
}

impl Records {
    fn pass(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let n = if self.left > 0 {
                let n = self.left.min(bytes.len());
                self.left -= n;
                n
            } else {
                let n = self.header.remaining_capacity().min(bytes.len());
                self.header.extend(bytes[..n].iter().copied());
                if let [_, _, _, high, low] = self.header[..] {
                    self.left = usize::from(u16::from_be_bytes([high, low]));
                    self.header.clear();
                }
                n
            };
            bytes = &bytes[n..];
        }
    }

    /// Whether some of a record has come, and not all.
    fn is_amid(&self) -> bool {
        self.left > 0 || !self.header.is_empty()
    }
}

impl AsyncRead for Wire {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = on_below!(&mut self.stream, stream => Pin::new(stream).poll_read(cx, buf));
        if buf.filled().len() > before {
            let now = Stamp::now();
            self.began.get_or_insert(now);
            self.last = now;
            self.records.pass(&buf.filled()[before..]);
        }
        polled
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        on_below!(&mut self.stream, stream => Pin::new(stream).poll_write(cx, buf))
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bufs: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        on_below!(&mut self.stream, stream => Pin::new(stream).poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        on_below!(&self.stream, stream => stream.is_write_vectored())
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        on_below!(&mut self.stream, stream => Pin::new(stream).poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        on_below!(&mut self.stream, stream => Pin::new(stream).poll_shutdown(cx))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_end_where_their_lengths_say_however_they_are_split() {
        let bytes = [&[23, 3, 3, 0, 2, 7, 7][..], &[22, 3, 1, 1, 0], &[7; 256], &[21, 3, 3, 0, 0]].concat();
        let ends = [0, 7, 7 + 5 + 256, bytes.len()];
        for step in [1, 2, 3, 5, 7, 64, 300] {
            let (mut records, mut at) = (Records::default(), 0);
            for piece in bytes.chunks(step) {
                records.pass(piece);
                at += piece.len();
                assert_eq!(records.is_amid(), !ends.contains(&at), "{at} in steps of {step}");
            }
        }
    }
}
