//! An upgraded connection (WebSocket): after the 101 both sides are spliced, bytes untouched, until both have ended.

use std::future::poll_fn;
use std::sync::Arc;

use http::Response;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;

use super::Shared;
use super::link::Link;
use crate::ledger::{Kind, Outcome, Stamp};
use crate::proxy::live::{Guard, Live};

/// Splices client and upstream in a task of its own, which closes the ledger when the stream ends.
pub(crate) fn splice(shared: &Shared, client: OnUpgrade, response: &mut Response<Incoming>, mut link: Link, live: Arc<Live>) {
    let mut upstream = hyper::upgrade::on(response);
    live.with(|ledger| ledger.kind = Kind::Stream);
    let guard = Guard(live.clone());
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
        let copied = tokio::io::copy_bidirectional(&mut client, &mut upstream).await;
        let end = Stamp::now();
        live.end_window(end);
        live.on_stream_end(
            copied.as_ref().copied().unwrap_or_default(),
            if copied.is_ok() { Outcome::Ok } else { Outcome::Broken },
        );
        live.close(end);
        drop(guard);
    });
}
