//! An upgraded connection (WebSocket): after the 101 both sides are spliced, their bytes untouched, until both have ended.

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

use super::context::UpstreamContext;
use super::pool::PooledConnection;
use crate::connection::LazyDeadline;
use crate::error::Error;
use crate::in_flight::InFlight;
use lapwing_ledger::{ExchangeKind, Outcome, Stamp};

/// Closes the ledger as cancelled if the splice fails, or is dropped, before the stream has ended.
struct SpliceGuard(Arc<InFlight>);

impl Drop for SpliceGuard {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Splices client and upstream in a separate task. The task closes the ledger when the stream ends.
pub(crate) fn splice(
    context: &UpstreamContext,
    client: OnUpgrade,
    response: &mut Response<Incoming>,
    mut connection: Box<PooledConnection>,
    in_flight: Arc<InFlight>,
) {
    let mut upstream = hyper::upgrade::on(response);
    in_flight.write_ledger(|ledger| ledger.kind = ExchangeKind::Stream);
    let guard = SpliceGuard(in_flight.clone());
    let meters = [in_flight.meter.clone(), connection.h1.meter.clone()];
    context.tasks.spawn(async move {
        // the connection has to be driven until it gives its socket up
        let upstream = poll_fn(|cx| {
            connection.h1.drive(cx);
            Pin::new(&mut upstream).poll(cx)
        });
        let (client, upstream) = match tokio::join!(client, upstream) {
            (Ok(client), Ok(upstream)) => (client, upstream),
            (client, upstream) => {
                tracing::debug!(client = ?client.err(), upstream = ?upstream.err(), "an upgrade was not completed");
                return drop(guard);
            }
        };
        let mut client = SpliceSide::new(TokioIo::new(client));
        let mut upstream = SpliceSide::new(TokioIo::new(upstream));
        let mut deadline = LazyDeadline::default();
        let limit = in_flight.account.context.config.idle_limit();
        let began = Stamp::now();
        let copied = {
            let mut copying = pin!(tokio::io::copy_bidirectional(&mut client, &mut upstream));
            // one side may have ended, and the other may never send again
            poll_fn(|cx| {
                if let Poll::Ready(copied) = copying.as_mut().poll(cx) {
                    return Poll::Ready(Some(copied));
                }
                let moved = meters.iter().flat_map(|m| [m.last_read(), m.last_write()]).flatten().fold(began, Stamp::max);
                if deadline.has_expired(cx, moved, limit) { Poll::Ready(None) } else { Poll::Pending }
            })
            .await
        };
        let end = Stamp::now();
        in_flight.account.end_window(end);
        let outcome = match copied {
            Some(Ok(_)) => Outcome::Ok,
            Some(Err(_)) if client.failed => Outcome::Cancelled,
            Some(Err(_)) => Outcome::Broken,
            None => {
                let stalled = Error::UpgradeStalled { limit };
                stalled.report_time_limit(&in_flight.account.context.counters);
                stalled.response().outcome
            }
        };
        in_flight.account.on_stream_end((client.read, upstream.read), outcome);
        in_flight.close(end);
        drop(guard);
    });
}

/// One side of a splice. It remembers how many bytes it sent, and whether it failed.
struct SpliceSide<S> {
    inner: S,
    read: u64,
    failed: bool,
}

impl<S> SpliceSide<S> {
    const fn new(inner: S) -> Self {
        Self { inner, read: 0, failed: false }
    }

    fn note_failure<T>(&mut self, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        self.failed |= matches!(polled, Poll::Ready(Err(_)));
        polled
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for SpliceSide<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(cx, buf);
        self.read += (buf.filled().len() - before) as u64;
        self.note_failure(polled)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for SpliceSide<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.note_failure(polled)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.inner).poll_flush(cx);
        self.note_failure(polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.note_failure(polled)
    }
}
