//! Connections in memory, for fuzzing the whole proxy: the proxy holds a [`MemoryStream`], the fuzz target plays the other end by
//! hand as a [`MemoryPeer`]. Nothing here waits for a system call, so a case is the same every time.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc;

use super::peer_closed::PeerClosed;

/// How many bytes a connection takes for a peer that does not read, as a socket's buffer does.
const BUFFER: usize = 16 * 1024;

/// Both directions of a connection.
#[derive(Debug, Default)]
struct Pipes {
    /// What the peer sent; the stream has read it up to `read`.
    sent: Vec<u8>,
    read: usize,
    /// What the stream wrote. Of it the peer has not taken the last `untaken` bytes.
    received: Vec<u8>,
    untaken: usize,
    is_paused: bool,
    /// The peer sends no more.
    is_finished: bool,
    is_reset: bool,
    /// The stream writes no more.
    is_shut: bool,
    /// The stream is gone.
    is_dropped: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

/// The proxy's end of a connection.
#[derive(Debug)]
pub struct MemoryStream(Arc<Mutex<Pipes>>);

/// The other end, driven by hand. What it sends and receives is kept.
#[derive(Debug)]
pub struct MemoryPeer(Arc<Mutex<Pipes>>);

/// Makes a connection.
#[must_use]
pub fn pair() -> (MemoryStream, MemoryPeer) {
    let pipes = Arc::<Mutex<Pipes>>::default();
    (MemoryStream(pipes.clone()), MemoryPeer(pipes))
}

impl MemoryStream {
    /// Waits until there is something to read.
    #[allow(clippy::unnecessary_wraps, reason = "as a socket's does")]
    pub(crate) fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let pipes = &mut *self.0.lock();
        if pipes.is_reset || pipes.is_finished || pipes.read < pipes.sent.len() {
            return Poll::Ready(Ok(()));
        }
        pipes.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    /// What the peer has closed.
    pub(crate) fn peer_closed(&self) -> PeerClosed {
        let pipes = self.0.lock();
        PeerClosed { sends: pipes.is_finished || pipes.is_reset, takes: pipes.is_reset }
    }
}

impl MemoryPeer {
    fn with<T>(&self, change: impl FnOnce(&mut Pipes) -> T) -> T {
        let (wakers, result) = {
            let pipes = &mut *self.0.lock();
            let result = change(pipes);
            ([pipes.reader.take(), pipes.writer.take()], result)
        };
        wakers.into_iter().flatten().for_each(Waker::wake);
        result
    }

    /// Sends `bytes`, unless it has finished.
    pub fn send(&self, bytes: &[u8]) {
        self.with(|pipes| {
            if !pipes.is_finished && !pipes.is_reset {
                pipes.sent.extend_from_slice(bytes);
            }
        });
    }

    /// Sends no more: end of file.
    pub fn finish(&self) {
        self.with(|pipes| pipes.is_finished = true);
    }

    /// Resets the connection: what was not read is lost.
    pub fn reset(&self) {
        self.with(|pipes| pipes.is_reset = true);
    }

    /// Takes nothing from now on, or (`false`) everything.
    pub fn pause(&self, is_paused: bool) {
        self.with(|pipes| {
            pipes.is_paused = is_paused;
            if !is_paused {
                pipes.untaken = 0;
            }
        });
    }

    /// Whether it takes nothing.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.0.lock().is_paused
    }

    /// Whether it reset the connection.
    #[must_use]
    pub fn is_reset(&self) -> bool {
        self.0.lock().is_reset
    }

    /// Whether it sent its end.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.0.lock().is_finished
    }

    /// Whether the proxy has ended its direction or dropped the connection.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        let pipes = self.0.lock();
        pipes.is_shut || pipes.is_dropped
    }

    /// What it sent.
    #[must_use]
    pub fn sent(&self) -> Vec<u8> {
        self.0.lock().sent.clone()
    }

    /// How many bytes it sent.
    #[must_use]
    pub fn sent_bytes(&self) -> usize {
        self.0.lock().sent.len()
    }

    /// How many of the bytes that it sent the proxy has read.
    #[must_use]
    pub fn accepted_bytes(&self) -> usize {
        self.0.lock().read
    }

    /// What the proxy wrote to it.
    #[must_use]
    pub fn received(&self) -> Vec<u8> {
        self.0.lock().received.clone()
    }

    /// What the proxy wrote to it after the first `at` bytes.
    #[must_use]
    pub fn received_from(&self, at: usize) -> Vec<u8> {
        self.0.lock().received.get(at..).unwrap_or_default().to_vec()
    }

    /// How many bytes the proxy wrote to it.
    #[must_use]
    pub fn received_bytes(&self) -> usize {
        self.0.lock().received.len()
    }

    /// Whether what the proxy wrote to it begins with `bytes`.
    #[must_use]
    pub fn has_received(&self, bytes: &[u8]) -> bool {
        self.0.lock().received.starts_with(bytes)
    }
}

impl AsyncRead for MemoryStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let pipes = &mut *self.0.lock();
        if pipes.is_reset {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let unread = &pipes.sent[pipes.read..];
        if unread.is_empty() && !pipes.is_finished {
            pipes.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let n = unread.len().min(buf.remaining());
        buf.put_slice(&unread[..n]);
        pipes.read += n;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for MemoryStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let pipes = &mut *self.0.lock();
        if pipes.is_reset || pipes.is_shut {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let room = if pipes.is_paused { BUFFER.saturating_sub(pipes.untaken) } else { buf.len() };
        if room == 0 && !buf.is_empty() {
            pipes.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let n = room.min(buf.len());
        pipes.received.extend_from_slice(&buf[..n]);
        if pipes.is_paused {
            pipes.untaken += n;
        }
        Poll::Ready(Ok(n))
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bufs: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let mut written = 0;
        for buf in bufs.iter().filter(|buf| !buf.is_empty()) {
            match self.as_mut().poll_write(cx, buf) {
                Poll::Ready(Ok(n)) if n == buf.len() => written += n,
                Poll::Ready(Ok(n)) => return Poll::Ready(Ok(written + n)),
                _ if written > 0 => break,
                other => return other,
            }
        }
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.lock().is_shut = true;
        Poll::Ready(Ok(()))
    }
}

impl Drop for MemoryStream {
    fn drop(&mut self) {
        self.0.lock().is_dropped = true;
    }
}

/// The address of a server that a fuzz target plays. Clones are the same address.
#[derive(Clone, Debug, Default)]
pub struct MemoryAddress(Arc<Mutex<Accepting>>);

#[derive(Debug, Default)]
struct Accepting {
    is_refusing: bool,
    connected: Vec<MemoryPeer>,
}

impl PartialEq for MemoryAddress {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for MemoryAddress {}

impl MemoryAddress {
    pub(crate) fn connect(&self) -> io::Result<MemoryStream> {
        let accepting = &mut *self.0.lock();
        if accepting.is_refusing {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let (stream, peer) = pair();
        accepting.connected.push(peer);
        Ok(stream)
    }

    /// Refuses connections from now on, or (`false`) accepts them.
    pub fn refuse(&self, is_refusing: bool) {
        self.0.lock().is_refusing = is_refusing;
    }

    /// Whether it refuses connections.
    #[must_use]
    pub fn is_refusing(&self) -> bool {
        self.0.lock().is_refusing
    }

    /// Takes the connections made since the last call.
    #[must_use]
    pub fn accept(&self) -> Vec<MemoryPeer> {
        std::mem::take(&mut self.0.lock().connected)
    }
}

/// A listener to which a fuzz target connects.
#[derive(Debug)]
pub struct MemoryListener(mpsc::UnboundedReceiver<MemoryStream>);

/// Connects to a [`MemoryListener`].
#[derive(Clone, Debug)]
pub struct MemoryConnector(mpsc::UnboundedSender<MemoryStream>);

/// Makes a listener and what connects to it.
#[must_use]
pub fn listen() -> (MemoryConnector, MemoryListener) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (MemoryConnector(sender), MemoryListener(receiver))
}

impl MemoryConnector {
    /// Connects. A listener that is gone drops the connection.
    #[must_use]
    pub fn connect(&self) -> MemoryPeer {
        let (stream, peer) = pair();
        let _ = self.0.send(stream);
        peer
    }
}

impl MemoryListener {
    /// The next connection.
    pub(crate) async fn connected(&mut self) -> MemoryStream {
        match self.0.recv().await {
            Some(stream) => stream,
            None => std::future::pending().await,
        }
    }
}
