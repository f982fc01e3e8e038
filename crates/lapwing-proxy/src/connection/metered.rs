//! A socket with a [`SocketMeter`]: reads and writes pass through untouched and are stamped.
//!
//! On a client's side it also writes what hyper cannot: the upstream's interim responses, and the text of a refusal
//! (hyper answers a malformed head by itself, with a bare status).

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};

use arrayvec::ArrayVec;
use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::client_side::{ClientSide, ClientTimeouts, OnRefusal};
use super::failure::ClientTimedOut;
use super::gathered::{Flush, Gathered};
use super::greeting::Greeted;
use super::meter::SocketMeter;
use super::reader::{Reader, read_size};
use super::refused_writes::RefusedWrites;
use super::stream_load::StreamLoad;
use lapwing_ledger::Stamp;
use lapwing_net::Socket;

/// A message up to this many bytes is copied together: one `send` costs less than a `writev` of head and body.
const SMALL: usize = 2048;

/// What shares a connection of HTTP/2.
#[derive(Debug)]
enum Sharers {
    /// A client's requests, which its meter counts until their answers are written.
    Requests(Arc<SocketMeter>),
    /// Streams to the upstream.
    Streams(Arc<StreamLoad>),
}

/// A socket whose reads and writes are stamped.
#[derive(Debug)]
pub(crate) struct MeteredSocket {
    pub(crate) socket: Socket,
    pub(crate) meter: Arc<SocketMeter>,
    pub(crate) client: Option<Box<ClientSide>>,
    blocked: Option<Stamp>,
    /// Bytes that were read and stamped, and are read again before others.
    pub(crate) read_ahead: Bytes,
    /// Who shares it (HTTP/2).
    shared_by: Option<Sharers>,
    gathered: Gathered,
    reader: Reader,
    greeted: Greeted,
    /// Of the upstream.
    refused_writes: RefusedWrites,
}

impl MeteredSocket {
    /// A connection to the upstream.
    pub(crate) fn upstream(socket: Socket, meter: Arc<SocketMeter>) -> Self {
        Self {
            socket,
            meter,
            client: None,
            blocked: None,
            read_ahead: Bytes::new(),
            shared_by: None,
            gathered: Gathered::default(),
            reader: Reader::default(),
            greeted: Greeted::default(),
            refused_writes: RefusedWrites::default(),
        }
    }

    /// A connection to the upstream that the streams of `load` share.
    pub(crate) fn shared_upstream(socket: Socket, meter: Arc<SocketMeter>, load: Arc<StreamLoad>) -> Self {
        let mut this = Self::upstream(socket, meter);
        this.shared_by = Some(Sharers::Streams(load));
        this
    }

    /// A client's connection.
    pub(crate) fn client(
        socket: Socket,
        meter: Arc<SocketMeter>,
        timeouts: ClientTimeouts,
        on_refusal: Arc<dyn OnRefusal>,
    ) -> Self {
        let client = Some(Box::new(ClientSide::new(timeouts, on_refusal)));
        let mut this = Self::upstream(socket, meter);
        this.client = client;
        this
    }

    /// Waits until there is something to read, or nothing more will come.
    pub(crate) fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.reader.forget();
        self.socket.poll_readable(cx)
    }

    /// Writes what goes out before hyper's bytes.
    pub(crate) fn poll_ahead(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
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

    /// Reads what there is and, of a client's, no more than [`read_size`].
    fn poll_socket(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let most = if self.client.is_some() { read_size(&self.meter) } else { usize::MAX };
        if buf.remaining() <= most {
            return self.reader.poll_read(&mut self.socket, cx, buf);
        }
        let mut little = ReadBuf::new(buf.initialize_unfilled_to(most));
        let polled = self.reader.poll_read(&mut self.socket, cx, &mut little);
        let n = little.filled().len();
        buf.advance(n);
        polled
    }

    /// Replaces `buf` if it is hyper's refusal of a head. Returns whether hyper's bytes are thrown away.
    fn refuse(&mut self, buf: &[u8]) -> bool {
        let Some(client) = &mut self.client else { return false };
        if self.meter.open.load(Relaxed) == 0 {
            client.refuse(buf, &self.meter);
        }
        client.is_refusing()
    }

    /// Looks at what the upstream sent, or at its end.
    fn look_at_upstream(&mut self, bytes: &[u8]) {
        if self.client.is_some() || !self.greeted.is_probing() {
            return;
        }
        self.greeted.pass(bytes, &self.meter.upstream);
    }

    /// Looks for HTTP/2's own refusals among the bytes that a client's socket took.
    fn count_refused(&mut self, bufs: &[io::IoSlice<'_>], result: &Poll<io::Result<usize>>) {
        let (Some(client), Poll::Ready(Ok(taken))) = (&mut self.client, result) else { return };
        if !self.meter.is_multiplexed.load(Relaxed) {
            return;
        }
        let mut left = *taken;
        for buf in bufs {
            let bytes = &buf[..left.min(buf.len())];
            client.count_refused(bytes, &self.meter);
            left -= bytes.len();
        }
    }

    /// Reads what the client still sends of a request that has been answered: closing a socket over unread bytes resets
    /// the connection, and the reset may overtake the answer.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(client) = &mut self.client else { return Poll::Ready(Ok(())) };
        let since = client.linger();
        let mut space = [0; 8192];
        for _ in 0..32 {
            let mut buf = ReadBuf::new(&mut space);
            match self.reader.poll_read(&mut self.socket, cx, &mut buf) {
                Poll::Ready(Ok(())) if !buf.filled().is_empty() => self.meter.on_read(None),
                Poll::Ready(_) => return Poll::Ready(Ok(())),
                Poll::Pending => {
                    let moved = self.meter.last_read().map_or(since, |read| read.max(since));
                    return if client.has_lingered(cx, since, moved) { Poll::Ready(Ok(())) } else { Poll::Pending };
                }
            }
        }
        if ClientSide::has_lingered_long(since) {
            return Poll::Ready(Ok(()));
        }
        cx.waker().wake_by_ref(); // let other tasks run first
        Poll::Pending
    }

    /// When a write to the upstream begins. A send on loopback wakes the receiver, which may run first: a stamp taken
    /// after the call would be late by a turn of the scheduler, and the upstream's first stage would seem to begin before
    /// the request was sent. Writes to a client are stamped afterwards: only then has the socket taken the bytes.
    fn before_write(&self) -> Option<Stamp> {
        self.client.is_none().then(Stamp::now)
    }

    /// Returns whether what is written now is gathered.
    fn gathers(&self) -> bool {
        !self.gathered.is_empty() || self.is_shared()
    }

    /// Returns whether more than one request is under way.
    fn is_shared(&self) -> bool {
        match &self.shared_by {
            None => false,
            Some(Sharers::Requests(meter)) => meter.open.load(Relaxed) > 1,
            Some(Sharers::Streams(load)) => load.open() > 1,
        }
    }

    /// Gathers `bufs`. `None` if they are too large, and nothing else waits: then they go by themselves.
    fn poll_gather(&mut self, cx: &mut Context<'_>, bufs: &[io::IoSlice<'_>]) -> Poll<io::Result<Option<usize>>> {
        let mut added = self.gathered.add(bufs);
        if added.is_none() {
            ready!(self.poll_gathered_sent(cx))?;
            added = self.gathered.add(bufs);
        }
        if let Some(n) = added {
            self.meter.on_gathered();
            self.count_refused(bufs, &Poll::Ready(Ok(n)));
        }
        Poll::Ready(Ok(added))
    }

    /// Sends what was gathered.
    fn poll_gathered_sent(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.gathered.is_empty() {
            let before = self.before_write();
            let result = Pin::new(&mut self.socket).poll_write(cx, self.gathered.rest());
            ready!(self.after_write(cx, before, &result))?;
            let length = self.gathered.rest().len();
            match ready!(self.on_written(result, || length))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                n => self.gathered.on_sent(n),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Sends what a TLS session holds. What it sends now, the socket takes now.
    fn poll_session_sent(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.socket).poll_flush(cx);
        if result.is_pending() {
            ready!(self.after_write(cx, None, &Poll::Pending))?;
        } else if let Some(since) = self.blocked.take() {
            self.meter.on_write(Stamp::now());
            self.meter.on_unblocked(since);
        }
        self.on_written(result.map_ok(|()| 0), || 0).map_ok(drop)
    }

    /// What is said of a write of `length()` bytes that had this result.
    fn on_written(&mut self, result: Poll<io::Result<usize>>, length: impl FnOnce() -> usize) -> Poll<io::Result<usize>> {
        if self.client.is_some() { result } else { self.refused_writes.on_write(result, length) }
    }

    /// Stamps a write. Time in which a write waits is the client's: egress, not the model's.
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
                    && client.deadline.has_expired(cx, since, client.timeouts.write)
                {
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, ClientTimedOut::Write)));
                }
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for MeteredSocket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.read_ahead.is_empty() {
            let n = self.read_ahead.len().min(buf.remaining());
            buf.put_slice(&self.read_ahead.split_to(n));
            return Poll::Ready(Ok(()));
        }
        self.gathered.on_polled();
        let before = buf.filled().len();
        let polled = self.poll_socket(cx, buf);
        let polled = self.refused_writes.on_read(polled, buf.filled().len() - before);
        self.meter.is_watched.store(self.reader.is_told(), Relaxed);
        match polled {
            Poll::Ready(Ok(())) => {
                if buf.filled().len() > before {
                    if self.client.as_mut().is_some_and(|client| client.is_preface(&buf.filled()[before..])) {
                        self.meter.is_multiplexed.store(true, Relaxed);
                        self.shared_by = Some(Sharers::Requests(self.meter.clone()));
                    }
                    self.meter.on_read(self.socket.came());
                }
                self.look_at_upstream(&buf.filled()[before..]);
                Poll::Ready(Ok(()))
            }
            Poll::Pending => {
                self.meter.body_wait.on_nothing_read(|| self.socket.acknowledge());
                self.poll_client_timeout(cx)
            }
            ready => ready,
        }
    }
}

impl AsyncWrite for MeteredSocket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[io::IoSlice::new(buf)])
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bufs: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let first: &[u8] = bufs.first().map_or(&[], |b| b);
        let is_refused = self.refuse(first);
        ready!(self.poll_ahead(cx))?;
        if is_refused {
            return Poll::Ready(Ok(first.len())); // hyper's bare refusal: Lapwing's has been sent instead
        }
        if self.gathers()
            && let Some(n) = ready!(self.poll_gather(cx, bufs))?
        {
            return Poll::Ready(Ok(n));
        }
        let before = self.before_write();
        let mut small = ArrayVec::<u8, SMALL>::new();
        let result = if let [buf] = bufs {
            Pin::new(&mut self.socket).poll_write(cx, buf)
        } else if bufs.iter().try_for_each(|b| small.try_extend_from_slice(b)).is_ok() {
            Pin::new(&mut self.socket).poll_write(cx, &small)
        } else {
            Pin::new(&mut self.socket).poll_write_vectored(cx, bufs)
        };
        self.count_refused(bufs, &result);
        match self.after_write(cx, before, &result) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            _ => self.on_written(result, || bufs.iter().map(|buf| buf.len()).sum()),
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_ahead(cx))?;
        let (left, this) = (self.meter.body_left(), &mut *self);
        if left > 0
            && let Some(client) = &mut this.client
            && client.is_gone(cx, &this.socket, left)
        {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        if !this.gathered.is_empty() {
            match this.gathered.on_flush() {
                Flush::Later if this.is_shared() => {
                    cx.waker().wake_by_ref(); // once more, after what else is ready
                    return Poll::Ready(Ok(()));
                }
                Flush::Waits if this.is_shared() => return Poll::Ready(Ok(())),
                _ => ready!(this.poll_gathered_sent(cx))?,
            }
        }
        // a socket buffers nothing that a flush would write: the bytes it took are on their way. A TLS session may
        if this.socket.holds_writes() {
            ready!(this.poll_session_sent(cx))?;
        }
        this.meter.on_flushed();
        if let Some(client) = &mut this.client {
            client.await_next(cx, &this.meter);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.client.as_ref().is_none_or(|client| !client.is_lingering()) {
            ready!(self.poll_gathered_sent(cx))?;
            ready!(Pin::new(&mut self.socket).poll_shutdown(cx))?;
        }
        if self.meter.is_unread() { self.poll_linger(cx) } else { Poll::Ready(Ok(())) }
    }
}

impl Drop for MeteredSocket {
    fn drop(&mut self) {
        self.meter.on_gone();
    }
}
