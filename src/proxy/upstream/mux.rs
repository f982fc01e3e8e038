//! HTTP/2 (h2c) to the upstream: one connection for each client connection, so that one client's flow control never
//! holds up another's. A task of its own drives it, for several streams share it.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::TokioIo;

use super::h1::{explain, overdue, patience};
use super::{Shared, connect};
use crate::ledger::{ObservedEvent, Stage, Stamp};
use crate::metrics::Counter;
use crate::proxy::body::request::RequestBody;
use crate::proxy::connection::lazy_deadline::Watch;
use crate::proxy::connection::meter::Meter;
use crate::proxy::connection::metered::Metered;
use crate::proxy::error::Error;
use crate::proxy::exchange::in_flight::Live;

/// A stream's window: what a slow reader lets the other side send ahead.
pub(crate) const STREAM_WINDOW: u32 = 1 << 20;
/// A connection's window.
pub(crate) const CONNECTION_WINDOW: u32 = 4 << 20;

/// The upstream side of one client connection.
#[derive(Debug, Default)]
pub(crate) struct Mux {
    sender: tokio::sync::Mutex<Option<SendRequest<RequestBody>>>,
}

impl Mux {
    /// Carries `request` to the upstream and waits for the response's head.
    pub(crate) async fn exchange(
        &self,
        shared: &Shared,
        mut request: Request<RequestBody>,
        live: &Arc<Live>,
    ) -> Result<Response<Incoming>, Error> {
        let mut attempt = live.dispatch();
        let mut may_retry = true;
        loop {
            let (mut sender, reused) = self.sender(shared, live).await?;
            let asked = Stamp::now();
            let answer = sender.try_send_request(request);
            match within(answer, live, asked).await? {
                Ok(response) => return Ok(response),
                Err(mut failed) => match failed.take_message() {
                    Some(unwritten) if reused && may_retry => {
                        may_retry = false;
                        live.recorder.counters.bump(Counter::UpstreamRetried);
                        live.with(|ledger| ledger.observe(Stage::Unattributed, ObservedEvent::Attempt, attempt, Stamp::now()));
                        attempt = Stamp::now();
                        self.sender.lock().await.take();
                        request = unwritten;
                    }
                    _ => return Err(explain(failed.into_error())),
                },
            }
        }
    }

    async fn sender(&self, shared: &Shared, live: &Arc<Live>) -> Result<(SendRequest<RequestBody>, bool), Error> {
        let limit = live.recorder.config.connect_timeout.get();
        // others of this client may be connecting: their wait is ours, but not one after the other
        let mut slot = match self.sender.try_lock() {
            Ok(slot) => slot,
            Err(_) => tokio::time::timeout(limit, self.sender.lock())
                .await
                .map_err(|_| Error::ConnectTimeout { upstream: shared.target.to_string(), limit })?,
        };
        if let Some(sender) = &*slot
            && !sender.is_closed()
        {
            return Ok((sender.clone(), true));
        }
        let began = Stamp::now();
        let connected = connect(shared, live).await;
        live.with(|ledger| ledger.observe(Stage::Unattributed, ObservedEvent::Connect, began, Stamp::now()));
        let socket = connected?;
        live.recorder.counters.bump(Counter::UpstreamConnected);
        let io = TokioIo::new(Metered::upstream(socket, Arc::new(Meter::default())));
        let (sender, connection) = http2::Builder::new(shared.tasks.clone())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_header_list_size(u32::try_from(live.recorder.config.max_header_bytes.get()).unwrap_or(u32::MAX))
            .handshake(io)
            .await
            .map_err(Error::Reset)?;
        shared.tasks.spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "the upstream's HTTP/2 connection ended");
            }
        });
        *slot = Some(sender.clone());
        Ok((sender, false))
    }
}

/// Waits for the answer as long as [`patience`] allows.
async fn within<F: Future>(answer: F, live: &Arc<Live>, asked: Stamp) -> Result<F::Output, Error> {
    let mut answer = pin!(answer);
    let mut watch = Watch::default();
    poll_fn(|cx| {
        if let Poll::Ready(result) = answer.as_mut().poll(cx) {
            return Poll::Ready(Ok(result));
        }
        let (since, limit) = patience(live, asked);
        if watch.expired(cx, since, limit) { Poll::Ready(Err(overdue(live, limit))) } else { Poll::Pending }
    })
    .await
}
