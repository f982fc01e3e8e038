//! HTTP/2 (h2c) to the upstream: one connection for each client's connection, so that one client's flow control never holds
//! another's up. A separate task drives it, because several streams share it.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::TokioIo;

use super::UpstreamContext;
use super::h1::{expired, explain, response_deadline};
use crate::ledger::{ObservedEvent, Stage, Stamp};
use crate::metrics::Counter;
use crate::proxy::body::RequestBody;
use crate::proxy::connection::{LazyDeadline, MeteredSocket, SocketMeter};
use crate::proxy::error::Error;
use crate::proxy::exchange::InFlight;
use crate::proxy::upload::slow_upload;

/// A stream's window in bytes: how much may be sent ahead to a slow reader.
pub(crate) const STREAM_WINDOW: u32 = 1 << 20;
/// A connection's window in bytes.
pub(crate) const CONNECTION_WINDOW: u32 = 4 << 20;

/// The upstream's side of one client's connection.
#[derive(Debug, Default)]
pub(crate) struct H2Connection {
    sender: tokio::sync::Mutex<Option<SendRequest<RequestBody>>>,
}

impl H2Connection {
    /// Carries `request` to the upstream and waits for the response's head.
    pub(crate) async fn exchange(
        &self,
        upstream: &UpstreamContext,
        mut request: Request<RequestBody>,
        in_flight: &Arc<InFlight>,
    ) -> Result<Response<Incoming>, Error> {
        let mut attempt = in_flight.dispatch();
        let mut may_retry = true;
        loop {
            let (mut sender, reused) = self.sender(upstream, in_flight).await?;
            let asked = Stamp::now();
            let answer = sender.try_send_request(request);
            match within(answer, in_flight, asked).await? {
                Ok(response) => return Ok(response),
                Err(mut failed) => match failed.take_message() {
                    Some(unwritten) if reused && may_retry => {
                        may_retry = false;
                        in_flight.context.counters.bump(Counter::UpstreamRetried);
                        in_flight
                            .with(|ledger| ledger.observe(Stage::Unattributed, ObservedEvent::Attempt, attempt, Stamp::now()));
                        attempt = Stamp::now();
                        self.sender.lock().await.take();
                        request = unwritten;
                    }
                    _ => return Err(explain(failed.into_error())),
                },
            }
        }
    }

    async fn sender(
        &self,
        upstream: &UpstreamContext,
        in_flight: &Arc<InFlight>,
    ) -> Result<(SendRequest<RequestBody>, bool), Error> {
        let limit = in_flight.context.config.connect_timeout.get();
        // another request of this client may be connecting: this one waits with it, within the same limit
        let mut slot = match self.sender.try_lock() {
            Ok(slot) => slot,
            Err(_) => tokio::time::timeout(limit, self.sender.lock())
                .await
                .map_err(|_| Error::ConnectTimeout { upstream: upstream.target.to_string(), limit })?,
        };
        if let Some(sender) = &*slot
            && !sender.is_closed()
        {
            return Ok((sender.clone(), true));
        }
        let began = Stamp::now();
        let connected = super::connect(upstream, in_flight).await;
        in_flight.with(|ledger| ledger.observe(Stage::Unattributed, ObservedEvent::Connect, began, Stamp::now()));
        let socket = connected?;
        in_flight.context.counters.bump(Counter::UpstreamConnected);
        let io = TokioIo::new(MeteredSocket::upstream(socket, Arc::new(SocketMeter::default())));
        let (sender, connection) = http2::Builder::new(upstream.tasks.clone())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_header_list_size(u32::try_from(in_flight.context.config.max_header_bytes.get()).unwrap_or(u32::MAX))
            .handshake(io)
            .await
            .map_err(Error::Reset)?;
        upstream.tasks.spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "the upstream's HTTP/2 connection ended");
            }
        });
        *slot = Some(sender.clone());
        Ok((sender, false))
    }
}

/// Waits for the response's head until [`response_deadline`] expires.
async fn within<F: Future>(answer: F, in_flight: &Arc<InFlight>, asked: Stamp) -> Result<F::Output, Error> {
    let mut answer = pin!(answer);
    let mut deadline = LazyDeadline::default();
    poll_fn(|cx| {
        if let Poll::Ready(result) = answer.as_mut().poll(cx) {
            return Poll::Ready(Ok(result));
        }
        let (since, limit) = response_deadline(in_flight, asked);
        if deadline.has_expired(cx, since, limit) {
            return Poll::Ready(Err(expired(in_flight, limit)));
        }
        slow_upload(in_flight, cx, &mut deadline).map_or(Poll::Pending, |error| Poll::Ready(Err(error)))
    })
    .await
}
