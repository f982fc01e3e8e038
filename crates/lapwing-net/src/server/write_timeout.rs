//! Closes a connection whose client does not read what it asked for.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use lapwing_metrics::{Counter, Counters};

/// Bytes that a client takes in a second at least, once it lets the answer wait.
const BYTES_PER_SECOND: u64 = 16 << 10;

/// A stream whose writes fail once bytes have waited for `limit`. What the client takes meanwhile puts that off.
#[derive(Debug)]
pub(crate) struct WriteTimeout<S> {
    stream: S,
    limit: Option<Duration>,
    counters: Option<Arc<Counters>>,
    /// Runs while bytes wait.
    waits: Option<Pin<Box<Sleep>>>,
}

impl<S> WriteTimeout<S> {
    /// Wraps `stream`. Without a limit, writes wait forever. A client that is too slow is counted.
    pub(crate) const fn new(stream: S, limit: Option<Duration>, counters: Option<Arc<Counters>>) -> Self {
        Self { stream, limit, counters, waits: None }
    }

    fn wrote(&mut self, bytes: usize) {
        let (Some(waits), Some(limit)) = (&mut self.waits, self.limit) else { return };
        let more = Duration::from_millis((bytes as u64).saturating_mul(1000) / BYTES_PER_SECOND);
        let latest = sleep(limit).deadline();
        let deadline = (waits.deadline() + more.min(limit)).min(latest);
        waits.as_mut().reset(deadline);
    }

    /// What a write that cannot go on returns.
    fn waiting<T>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        let Some(limit) = self.limit else { return Poll::Pending };
        let waits = self.waits.get_or_insert_with(|| Box::pin(sleep(limit)));
        if waits.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        if let Some(counters) = self.counters.take() {
            counters.bump(Counter::ClosedSlowReader);
        }
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client did not read its answer in time")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeout<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        match Pin::new(&mut this.stream).poll_write(cx, buf) {
            Poll::Pending => this.waiting(cx),
            Poll::Ready(written) => {
                this.wrote(*written.as_ref().unwrap_or(&0));
                Poll::Ready(written)
            }
        }
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bufs: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        match Pin::new(&mut this.stream).poll_write_vectored(cx, bufs) {
            Poll::Pending => this.waiting(cx),
            Poll::Ready(written) => {
                this.wrote(*written.as_ref().unwrap_or(&0));
                Poll::Ready(written)
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        match Pin::new(&mut this.stream).poll_flush(cx) {
            Poll::Pending => this.waiting(cx),
            Poll::Ready(flushed) => {
                this.waits = None;
                Poll::Ready(flushed)
            }
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
