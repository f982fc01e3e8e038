//! A socket that keeps its [`Meter`]: reads and writes pass through untouched, stamped.
//!
//! On the client's side it also speaks where hyper cannot: interim responses of the upstream, and the words of a
//! refusal (hyper answers a malformed head by itself, with a bare status).

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use arrayvec::ArrayVec;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::ledger::Stamp;
use crate::net::Socket;
use crate::proxy::connection::lazy_deadline::Watch;
use crate::proxy::connection::meter::Meter;
use crate::proxy::error::response::refusal;
use crate::proxy::exchange::in_flight::Recorder;

/// A message up to this size is copied together: one `send` costs less than a `writev` of head and body.
const SMALL: usize = 2048;

/// A client that was answered amid its request may send nothing for this long before it is let go of.
const LINGER_IDLE: Duration = Duration::from_secs(2);
/// A client that was answered amid its request may send on for this long.
const LINGER: Duration = Duration::from_secs(30);

/// What only the client's side does.
#[derive(Debug)]
pub(crate) struct ClientSide {
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) watch: Watch,
    accepted: Stamp,
    /// Bytes of ours that go out before hyper's, and how many have gone.
    ahead: Option<(Vec<u8>, usize)>,
    refusing: Option<u16>,
    lingering: Option<Stamp>,
}

/// A metered socket.
#[derive(Debug)]
pub(crate) struct Metered {
    socket: Socket,
    meter: Arc<Meter>,
    client: Option<Box<ClientSide>>,
    blocked: Option<Stamp>,
}

impl Metered {
    /// The upstream's side.
    pub(crate) fn upstream(socket: Socket, meter: Arc<Meter>) -> Self {
        Self { socket, meter, client: None, blocked: None }
    }

    /// The client's side.
    pub(crate) fn client(socket: Socket, meter: Arc<Meter>, recorder: Arc<Recorder>) -> Self {
        let side = ClientSide {
            recorder,
            watch: Watch::default(),
            accepted: Stamp::now(),
            ahead: None,
            refusing: None,
            lingering: None,
        };
        Self { socket, meter, client: Some(Box::new(side)), blocked: None }
    }

    /// A client that neither finishes its head nor goes away is let go of.
    fn poll_patience(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(client) = &mut self.client else { return Poll::Pending };
        if self.meter.open.load(Relaxed) > 0 {
            return Poll::Pending;
        }
        let config = &client.recorder.config;
        if let Some(began) = self.meter.first_read().filter(|_| !self.meter.multiplexed.load(Relaxed)) {
            if client.watch.expired(cx, began, config.client_header_timeout.get()) {
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "client_header_timeout")));
            }
            return Poll::Pending;
        }
        // one that never said a word is idle too
        let since = self.meter.last_write().max(self.meter.last_read()).unwrap_or(client.accepted);
        if client.watch.expired(cx, since, config.client_idle_timeout.get()) {
            return Poll::Ready(Ok(())); // end of file: an idle connection ends in peace
        }
        Poll::Pending
    }

    /// Writes what goes out before hyper's bytes.
    fn poll_ahead(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(client) = &mut self.client else { return Poll::Ready(Ok(())) };
        if client.ahead.is_none() {
            client.ahead = self.meter.take_interim().map(|bytes| (bytes, 0));
        }
        while let Some((bytes, at)) = &mut client.ahead {
            if *at == bytes.len() {
                client.ahead = None;
                break;
            }
            let n = ready!(Pin::new(&mut self.socket).poll_write(cx, &bytes[*at..]))?;
            *at += n;
            self.meter.on_write(Stamp::now());
        }
        Poll::Ready(Ok(()))
    }

    /// Whether hyper writes with no request open: then it refuses a head, and the status is in its first line.
    fn refusal(&self, buf: &[u8]) -> Option<u16> {
        let client = self.client.as_ref()?;
        if self.meter.open.load(Relaxed) > 0 || client.refusing.is_some() {
            return None;
        }
        let status = buf.strip_prefix(b"HTTP/1.1 ").or_else(|| buf.strip_prefix(b"HTTP/1.0 "))?.get(..3)?;
        std::str::from_utf8(status).ok()?.parse().ok()
    }

    fn begin_refusal(&mut self, status: u16) {
        if let Some(client) = &mut self.client {
            client.refusing = Some(status);
            client.ahead = Some((refusal(status), 0));
            client.recorder.refused(status, &self.meter);
        }
    }

    fn refusing(&self) -> bool {
        self.client.as_ref().is_some_and(|c| c.refusing.is_some())
    }

    /// Takes in what the client still sends of a request that has been answered: a socket closed over unread bytes resets
    /// the connection, and the reset may overtake the answer.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(client) = &mut self.client else { return Poll::Ready(Ok(())) };
        let since = *client.lingering.get_or_insert_with(Stamp::now);
        let mut space = [0; 8192];
        for _ in 0..32 {
            let mut buf = ReadBuf::new(&mut space);
            match Pin::new(&mut self.socket).poll_read(cx, &mut buf) {
                Poll::Ready(Ok(())) if !buf.filled().is_empty() => self.meter.on_read(),
                Poll::Ready(_) => return Poll::Ready(Ok(())),
                Poll::Pending => {
                    let moved = self.meter.last_read().map_or(since, |read| read.max(since));
                    let gone = client.watch.expired(cx, moved, LINGER_IDLE) || client.watch.expired(cx, since, LINGER);
                    return if gone { Poll::Ready(Ok(())) } else { Poll::Pending };
                }
            }
        }
        if since.elapsed() >= u64::try_from(LINGER.as_nanos()).unwrap_or(u64::MAX) {
            return Poll::Ready(Ok(()));
        }
        cx.waker().wake_by_ref(); // others have their turn
        Poll::Pending
    }

    /// When a write to the upstream begins. To send on loopback wakes the receiver, which may well run first: a stamp taken
    /// after the call would come late by a turn of the scheduler, and the upstream's first stage would seem to begin before
    /// it was asked. What goes to the client is stamped afterwards: then it has been taken.
    fn before_write(&self) -> Option<Stamp> {
        self.client.is_none().then(Stamp::now)
    }

    /// A write that has to wait is the client's time: egress, not the model's.
    fn after_write(
        &mut self,
        cx: &mut Context<'_>,
        before: Option<Stamp>,
        result: &Poll<io::Result<usize>>,
    ) -> Poll<io::Result<()>> {
        match result {
            Poll::Ready(Ok(n)) if *n > 0 => {
                self.meter.on_write(before.unwrap_or_else(Stamp::now));
                if let Some(since) = self.blocked.take() {
                    self.meter.on_unblocked(since);
                }
            }
            Poll::Ready(_) => {}
            Poll::Pending => {
                self.meter.on_blocked();
                let since = *self.blocked.get_or_insert_with(Stamp::now);
                if let Some(client) = &mut self.client
                    && client.watch.expired(cx, since, client.recorder.config.idle_timeout.get())
                {
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes no bytes")));
                }
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Metered {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        match Pin::new(&mut self.socket).poll_read(cx, buf) {
            Poll::Ready(Ok(())) => {
                if buf.filled().len() > before {
                    if self.client.is_some() && self.meter.last_read().is_none() {
                        self.meter.multiplexed.store(buf.filled()[before..].starts_with(b"PRI * HTTP/2"), Relaxed);
                    }
                    self.meter.on_read();
                }
                Poll::Ready(Ok(()))
            }
            Poll::Pending => self.poll_patience(cx),
            ready => ready,
        }
    }
}

impl AsyncWrite for Metered {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if let Some(status) = self.refusal(buf) {
            self.begin_refusal(status);
        }
        ready!(self.poll_ahead(cx))?;
        if self.refusing() {
            return Poll::Ready(Ok(buf.len())); // hyper's bare refusal, for which ours has gone out
        }
        let before = self.before_write();
        let result = Pin::new(&mut self.socket).poll_write(cx, buf);
        match self.after_write(cx, before, &result) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            _ => result,
        }
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bufs: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        if self.refusing() || bufs.first().is_some_and(|b| self.refusal(b).is_some()) {
            return self.poll_write(cx, bufs.first().map_or(&[], |b| b));
        }
        ready!(self.poll_ahead(cx))?;
        let before = self.before_write();
        let mut small = ArrayVec::<u8, SMALL>::new();
        let result = if bufs.iter().try_for_each(|b| small.try_extend_from_slice(b)).is_ok() {
            Pin::new(&mut self.socket).poll_write(cx, &small)
        } else {
            Pin::new(&mut self.socket).poll_write_vectored(cx, bufs)
        };
        match self.after_write(cx, before, &result) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            _ => result,
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_ahead(cx))?;
        // a socket has nothing of its own to flush: what it took is on its way
        self.meter.on_flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.client.as_ref().is_none_or(|client| client.lingering.is_none()) {
            ready!(Pin::new(&mut self.socket).poll_shutdown(cx))?;
        }
        if self.meter.is_unread() { self.poll_linger(cx) } else { Poll::Ready(Ok(())) }
    }
}

impl Drop for Metered {
    fn drop(&mut self) {
        self.meter.on_gone();
    }
}
