//! An upgraded connection (WebSocket): after the 101 both sides are spliced, bytes untouched, until both have ended.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use http::Response;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::Shared;
use super::link::Link;
use crate::ledger::{ExchangeKind, Outcome, Stamp};
use crate::proxy::connection::lazy_deadline::Watch;
use crate::proxy::exchange::in_flight::Live;

/// Closes the ledger as cancelled if the splice is dropped, or fails, before the stream has ended.
struct Spliced(Arc<Live>);

impl Drop for Spliced {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Splices client and upstream in a task of its own, which closes the ledger when the stream ends.
pub(crate) fn splice(shared: &Shared, client: OnUpgrade, response: &mut Response<Incoming>, mut link: Link, live: Arc<Live>) {
    let mut upstream = hyper::upgrade::on(response);
    live.with(|ledger| ledger.kind = ExchangeKind::Stream);
    let guard = Spliced(live.clone());
    let meters = [live.meter.clone(), link.meter.clone()];
    shared.tasks.spawn(async move {
        // the link has to be driven until it lets go of its socket
        let upstream = poll_fn(|cx| {
            link.drive(cx);
            Pin::new(&mut upstream).poll(cx)
        });
        let (client, upstream) = match tokio::join!(client, upstream) {
            (Ok(client), Ok(upstream)) => (client, upstream),
            (client, upstream) => {
                tracing::debug!(client = ?client.err(), upstream = ?upstream.err(), "an upgrade was not completed");
                return drop(guard);
            }
        };
        let mut client = Side::new(TokioIo::new(client));
        let mut upstream = Side::new(TokioIo::new(upstream));
        let mut watch = Watch::default();
        let limit = live.recorder.config.idle_timeout.get();
        let began = Stamp::now();
        let copied = {
            let mut copying = pin!(tokio::io::copy_bidirectional(&mut client, &mut upstream));
            // one side may have ended, and the other never say a word again
            poll_fn(|cx| {
                if let Poll::Ready(copied) = copying.as_mut().poll(cx) {
                    return Poll::Ready(Some(copied));
                }
                let moved = meters.iter().flat_map(|m| [m.last_read(), m.last_write()]).flatten().fold(began, Stamp::max);
                if watch.expired(cx, moved, limit) { Poll::Ready(None) } else { Poll::Pending }
            })
            .await
        };
        let end = Stamp::now();
        live.end_window(end);
        let outcome = match copied {
            Some(Ok(_)) => Outcome::Ok,
            Some(Err(_)) if client.failed => Outcome::Cancelled,
            Some(Err(_)) => Outcome::Broken,
            None => Outcome::TimedOut,
        };
        live.on_stream_end((client.read, upstream.read), outcome);
        live.close(end);
        drop(guard);
    });
}

/// One side of a splice, which remembers how much it said and whether it was the one that failed.
struct Side<S> {
    inner: S,
    read: u64,
    failed: bool,
}

impl<S> Side<S> {
    const fn new(inner: S) -> Self {
        Self { inner, read: 0, failed: false }
    }

    fn note<T>(&mut self, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        self.failed |= matches!(polled, Poll::Ready(Err(_)));
        polled
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Side<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(cx, buf);
        self.read += (buf.filled().len() - before) as u64;
        self.note(polled)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Side<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.note(polled)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.inner).poll_flush(cx);
        self.note(polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.note(polled)
    }
}
