//! A TLS stream.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::Version;
use rustls::{CommonState, HandshakeKind, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::{Accept, TlsAcceptor, TlsConnector};

use super::client::ClientIdentity;
use super::wire::{Below, Wire};
use super::{H2, HTTP_1_1};
use crate::peer_closed::PeerClosed;
use lapwing_ledger::Stamp;
use lapwing_metrics::{Counter, Counters};

/// What is read to find out whether there is anything.
const PEEKED: usize = 2048;

/// A stream whose handshake, if it was accepted, is made in its first reads and writes.
pub struct TlsStream {
    state: State,
    /// Until the handshake is made: when it began, and who counts it.
    handshake: Option<(Stamp, Arc<Counters>)>,
    /// Text that was read, and not handed on.
    peeked: Vec<u8>,
    /// When the bytes came that the latest text was in: the first, and the last.
    came: Option<(Stamp, Stamp)>,
}

enum State {
    Accepting(Accept<Wire>),
    Open(tokio_rustls::TlsStream<Wire>),
    /// The handshake failed.
    Failed,
}

impl fmt::Debug for TlsStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsStream").field("wire", &self.wire()).finish_non_exhaustive()
    }
}

impl TlsStream {
    /// A client's connection.
    pub(crate) fn accept(stream: Below, config: Arc<ServerConfig>, counters: Arc<Counters>) -> Self {
        let accept = TlsAcceptor::from(config).accept(Wire::new(stream));
        Self { state: State::Accepting(accept), handshake: Some((Stamp::now(), counters)), peeked: Vec::new(), came: None }
    }

    /// A connection to the server at `authority`.
    pub(crate) async fn connect(
        stream: Below,
        identity: &ClientIdentity,
        authority: &str,
        version: Option<Version>,
    ) -> io::Result<Self> {
        let invalid = || io::Error::new(io::ErrorKind::InvalidInput, "its host is no name that a certificate could have");
        let name = identity.name(authority).ok_or_else(invalid)?;
        let connected =
            TlsConnector::from(identity.config(version).map_err(io::Error::other)?).connect(name, Wire::new(stream)).await?;
        let state = State::Open(tokio_rustls::TlsStream::Client(connected));
        Ok(Self { state, handshake: None, peeked: Vec::new(), came: None })
    }

    /// The socket below; `None` after a handshake that failed.
    fn wire(&self) -> Option<&Wire> {
        match &self.state {
            State::Accepting(accept) => accept.get_ref(),
            State::Open(stream) => Some(stream.get_ref().0),
            State::Failed => None,
        }
    }

    /// The socket below, if it is one of TCP.
    pub(crate) fn tcp(&self) -> Option<&TcpStream> {
        self.wire().and_then(Wire::tcp)
    }

    /// What the other end has closed of the connection below.
    pub(crate) fn peer_closed(&self) -> PeerClosed {
        self.wire().map(Wire::peer_closed).unwrap_or_default()
    }

    fn session(&self) -> Option<&CommonState> {
        match &self.state {
            State::Open(stream) => Some(stream.get_ref().1),
            _ => None,
        }
    }

    /// The certificate by which the other end proved who it is, in DER; `None` if it showed none, or before the handshake.
    pub(crate) fn peer_certificate(&self) -> Option<&[u8]> {
        Some(self.session()?.peer_certificates()?.first()?.as_ref())
    }

    /// Which version of HTTP was agreed on; `None` where the server takes no part in that, or before the handshake.
    pub(crate) fn agreed(&self) -> Option<Version> {
        match self.session()?.alpn_protocol()? {
            H2 => Some(Version::HTTP_2),
            HTTP_1_1 => Some(Version::HTTP_11),
            _ => None,
        }
    }

    /// Since when the other end owes the rest of its handshake or of a record.
    pub(crate) fn owed_since(&self) -> Option<Stamp> {
        match &self.handshake {
            Some((began, _)) => Some(*began),
            None => self.wire().and_then(Wire::owed_since),
        }
    }

    /// When the bytes came that the latest text was in: the first, and the last.
    pub(crate) const fn came(&self) -> Option<(Stamp, Stamp)> {
        self.came
    }

    /// Whether a read may find something.
    pub(crate) fn may_be_read(&self) -> bool {
        let (Some(session), Some(tcp)) = (self.session(), self.tcp()) else { return true };
        // a session with text that was not read does not want to read more
        !self.peeked.is_empty() || !session.wants_read() || tcp.try_io(Interest::READABLE, || Ok(())).is_ok()
    }

    /// Waits until there is text, the end, or an error: bytes of the session's own (tickets, new keys) are dealt with here.
    pub(crate) fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.peeked.is_empty() {
            return Poll::Ready(Ok(()));
        }
        let mut space = [0; PEEKED];
        let mut buf = ReadBuf::new(&mut space);
        ready!(self.poll_text(cx, &mut buf))?;
        // at its end, the next read finds that again
        self.peeked.extend_from_slice(buf.filled());
        Poll::Ready(Ok(()))
    }

    /// Makes the rest of the handshake.
    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<&mut tokio_rustls::TlsStream<Wire>>> {
        if let State::Accepting(accept) = &mut self.state {
            let made = ready!(Pin::new(accept).poll(cx));
            let (began, counters) = self.handshake.take().unwrap_or_default();
            match made {
                Ok(mut stream) => {
                    let (wire, session) = stream.get_mut();
                    wire.on_no_text();
                    let is_resumed = session.handshake_kind() == Some(HandshakeKind::Resumed);
                    counters.bump(if is_resumed { Counter::TlsResumed } else { Counter::TlsFull });
                    counters.add(Counter::TlsMicros, began.elapsed() / 1_000);
                    self.state = State::Open(tokio_rustls::TlsStream::Server(stream));
                }
                Err(error) => {
                    counters.bump(Counter::TlsFailed);
                    self.state = State::Failed;
                    return Poll::Ready(Err(error));
                }
            }
        }
        match &mut self.state {
            State::Open(stream) => Poll::Ready(Ok(stream)),
            _ => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    fn poll_text(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let stream = ready!(self.poll_open(cx))?;
        let polled = Pin::new(&mut *stream).poll_read(cx, buf);
        let is_server = matches!(stream, tokio_rustls::TlsStream::Server(_));
        let wire = stream.get_mut().0;
        match polled {
            Poll::Pending => {
                wire.on_no_text();
                Poll::Pending
            }
            Poll::Ready(Ok(())) if buf.filled().len() > before => {
                let came = wire.on_text();
                self.came = Some(came);
                Poll::Ready(Ok(()))
            }
            // a client that goes without a word; its requests say how long they are. Of a server's answer, nobody would know
            Poll::Ready(Err(error)) if is_server && error.kind() == io::ErrorKind::UnexpectedEof => Poll::Ready(Ok(())),
            polled => polled,
        }
    }
}

/// A connection that ends before its handshake has one that failed.
impl Drop for TlsStream {
    fn drop(&mut self) {
        if let Some((_, counters)) = &self.handshake {
            counters.bump(Counter::TlsFailed);
        }
    }
}

impl AsyncRead for TlsStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.peeked.is_empty() {
            return self.poll_text(cx, buf);
        }
        let n = self.peeked.len().min(buf.remaining());
        buf.put_slice(&self.peeked[..n]);
        self.peeked.drain(..n);
        if self.peeked.is_empty() {
            self.peeked = Vec::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for TlsStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(ready!(self.poll_open(cx))?).poll_write(cx, buf)
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bufs: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        Pin::new(ready!(self.poll_open(cx))?).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // before the handshake nothing was written
        let State::Open(stream) = &mut self.state else { return Poll::Ready(Ok(())) };
        Pin::new(stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let State::Open(stream) = &mut self.state else { return Poll::Ready(Ok(())) };
        Pin::new(stream).poll_shutdown(cx)
    }
}
