//! The byte stream of a connection, accepted or opened.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use http::Version;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use super::peer_closed::PeerClosed;
use super::tls::TlsStream;
use lapwing_ledger::Stamp;

/// A TCP, Unix or TLS stream.
#[derive(Debug)]
pub enum Socket {
    /// TCP.
    Tcp(TcpStream),
    /// Unix domain.
    Unix(UnixStream),
    /// TLS over TCP.
    Tls(Box<TlsStream>),
    /// Inside this process, driven by a fuzz target.
    #[cfg(any(test, feature = "testing"))]
    #[doc(hidden)]
    Memory(super::memory::MemoryStream),
    /// Inside this process, its every step drawn.
    #[cfg(any(test, feature = "testing"))]
    #[doc(hidden)]
    Simulated(super::simulated::SimulatedStream),
}

macro_rules! on_stream {
    ($socket:expr, $stream:ident => $call:expr) => {
        match $socket {
            Socket::Tcp($stream) => $call,
            Socket::Unix($stream) => $call,
            Socket::Tls($stream) => $call,
            #[cfg(any(test, feature = "testing"))]
            Socket::Memory($stream) => $call,
            #[cfg(any(test, feature = "testing"))]
            Socket::Simulated($stream) => $call,
        }
    };
}

impl Socket {
    /// What the other end has closed; over TLS, of the connection below. Reads nothing, and needs no system call.
    #[must_use]
    pub fn peer_closed(&self) -> PeerClosed {
        let both = Interest::READABLE | Interest::WRITABLE;
        let ready = match self {
            Self::Tcp(stream) => stream.ready(both).now_or_never(),
            Self::Unix(stream) => stream.ready(both).now_or_never(),
            Self::Tls(stream) => return stream.peer_closed(),
            #[cfg(any(test, feature = "testing"))]
            Self::Memory(stream) => return stream.peer_closed(),
            #[cfg(any(test, feature = "testing"))]
            Self::Simulated(stream) => return stream.peer_closed(),
        };
        PeerClosed::of(ready)
    }

    /// The certificate by which the other end proved who it is, in DER; `None` without TLS, or if it showed none.
    #[must_use]
    pub fn peer_certificate(&self) -> Option<&[u8]> {
        match self {
            Self::Tls(stream) => stream.peer_certificate(),
            _ => None,
        }
    }

    /// Whether a read may find something: bytes, the end, or an error. Needs no system call and wakes no task.
    #[must_use]
    pub fn may_be_read(&self) -> bool {
        match self {
            Self::Tcp(stream) => stream.try_io(Interest::READABLE, || Ok(())).is_ok(),
            Self::Unix(stream) => stream.try_io(Interest::READABLE, || Ok(())).is_ok(),
            Self::Tls(stream) => stream.may_be_read(),
            #[cfg(any(test, feature = "testing"))]
            Self::Memory(_) => true,
            #[cfg(any(test, feature = "testing"))]
            Self::Simulated(stream) => stream.may_be_read(),
        }
    }

    /// Waits until there is something to read, the other end has ended its side, or the connection has failed. Takes nothing of it.
    ///
    /// # Errors
    ///
    /// If the socket is no longer registered with the runtime; over TLS also if the session has failed.
    pub fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => stream.poll_read_ready(cx),
            Self::Unix(stream) => stream.poll_read_ready(cx),
            Self::Tls(stream) => stream.poll_readable(cx),
            #[cfg(any(test, feature = "testing"))]
            Self::Memory(stream) => stream.poll_read_ready(cx),
            #[cfg(any(test, feature = "testing"))]
            Self::Simulated(stream) => stream.poll_read_ready(cx),
        }
    }

    /// Whether what was written may wait here until it is flushed: a session keeps what the connection below has no room for.
    #[must_use]
    pub const fn holds_writes(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// When the bytes came that the latest read was in, the first and the last of them, where that was before the read: the text of a TLS
    /// record is there only once the whole record is.
    #[must_use]
    pub fn came(&self) -> Option<(Stamp, Stamp)> {
        if let Self::Tls(stream) = self { stream.came() } else { None }
    }

    /// Since when the other end owes the rest of a handshake or of a TLS record.
    #[must_use]
    pub fn owed_since(&self) -> Option<Stamp> {
        if let Self::Tls(stream) = self { stream.owed_since() } else { None }
    }

    /// Which version of HTTP was agreed on (ALPN); `None` where none was.
    #[must_use]
    pub fn agreed(&self) -> Option<Version> {
        if let Self::Tls(stream) = self { stream.agreed() } else { None }
    }

    fn tcp(&self) -> Option<&TcpStream> {
        match self {
            Self::Tcp(stream) => Some(stream),
            Self::Tls(stream) => stream.tcp(),
            _ => None,
        }
    }

    /// Whether [`Self::acknowledge`] can have an effect: over TCP, where the system has such an option.
    #[must_use]
    pub const fn can_acknowledge(&self) -> bool {
        cfg!(target_os = "linux") && matches!(self, Self::Tcp(_) | Self::Tls(_))
    }

    /// Asks the system to acknowledge at once what was read (`TCP_QUICKACK`), instead of up to 40 ms later together with what is written.
    /// Returns whether it does.
    #[must_use]
    pub fn acknowledge(&self) -> bool {
        #[cfg(target_os = "linux")]
        return self.tcp().is_some_and(|stream| stream.set_quickack(true).is_ok());
        #[cfg(not(target_os = "linux"))]
        return false;
    }

    /// How many bytes the system may hold that were not read yet.
    #[must_use]
    pub fn receive_buffer(&self) -> u64 {
        let bytes = match self {
            Self::Tcp(stream) => SockRef::from(stream).recv_buffer_size(),
            Self::Unix(stream) => SockRef::from(stream).recv_buffer_size(),
            Self::Tls(stream) => stream.tcp().map_or(Ok(usize::MAX), |stream| SockRef::from(stream).recv_buffer_size()),
            // a pipe in memory holds everything
            #[cfg(any(test, feature = "testing"))]
            Self::Memory(_) => return u64::MAX,
            #[cfg(any(test, feature = "testing"))]
            Self::Simulated(_) => return u64::MAX,
        };
        bytes.map_or(u64::MAX, |bytes| bytes as u64)
    }
}

impl AsyncRead for Socket {
    #[inline]
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        on_stream!(&mut *self, stream => Pin::new(stream).poll_read(cx, buf))
    }
}

impl AsyncWrite for Socket {
    #[inline]
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        on_stream!(&mut *self, stream => Pin::new(stream).poll_write(cx, buf))
    }

    #[inline]
    fn poll_write_vectored(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        on_stream!(&mut *self, stream => Pin::new(stream).poll_write_vectored(cx, bufs))
    }

    #[inline]
    fn is_write_vectored(&self) -> bool {
        on_stream!(self, stream => stream.is_write_vectored())
    }

    #[inline]
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        on_stream!(&mut *self, stream => Pin::new(stream).poll_flush(cx))
    }

    #[inline]
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        on_stream!(&mut *self, stream => Pin::new(stream).poll_shutdown(cx))
    }
}
