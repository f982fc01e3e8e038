//! An upgraded connection (WebSocket): after the 101 both sides are spliced, bytes untouched, until both have ended.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use http::Response;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;

use super::Shared;
use super::link::Link;
use crate::ledger::{Kind, Outcome, Stamp};
use crate::proxy::live::Live;
use crate::proxy::watch::Watch;

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
    live.with(|ledger| ledger.kind = Kind::Stream);
    let guard = Spliced(live.clone());
    let meters = [live.meter.clone(), link.meter.clone()];
    shared.tasks.spawn(async move {
        // the link has to be driven until it lets go of its socket
        let upstream = poll_fn(|cx| {
            link.drive(cx);
            std::pin::Pin::new(&mut upstream).poll(cx)
        });
        let (client, upstream) = match tokio::join!(client, upstream) {
            (Ok(client), Ok(upstream)) => (client, upstream),
            (client, upstream) => {
                tracing::debug!(client = ?client.err(), upstream = ?upstream.err(), "an upgrade was not completed");
                return drop(guard);
            }
        };
        let mut client = TokioIo::new(client);
        let mut upstream = TokioIo::new(upstream);
        let mut copying = std::pin::pin!(tokio::io::copy_bidirectional(&mut client, &mut upstream));
        let mut watch = Watch::default();
        let limit = live.recorder.config.idle_timeout.get();
        let began = Stamp::now();
        // one side may have ended, and the other never say a word again
        let copied = poll_fn(|cx| {
            if let Poll::Ready(copied) = copying.as_mut().poll(cx) {
                return Poll::Ready(Some(copied));
            }
            let moved = meters.iter().flat_map(|m| [m.last_read(), m.last_write()]).flatten().fold(began, Stamp::max);
            if watch.expired(cx, moved, limit) { Poll::Ready(None) } else { Poll::Pending }
        })
        .await;
        let end = Stamp::now();
        live.end_window(end);
        let (bytes, outcome) = match copied {
            Some(Ok(bytes)) => (bytes, Outcome::Ok),
            Some(Err(_)) => ((0, 0), Outcome::Broken),
            None => ((0, 0), Outcome::TimedOut),
        };
        live.on_stream_end(bytes, outcome);
        live.close(end);
        drop(guard);
    });
}
