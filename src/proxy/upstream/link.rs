//! One HTTP/1.1 connection to the upstream, driven by whoever holds it.
//!
//! There is no task behind it: the exchange that holds the link polls it, in the same task as the client's connection,
//! so a request costs no hop between tasks and no wake-up of another. An idle link is driven by nobody; whether it is
//! still alive is found out when it is taken from the pool, just before a request is written.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1};
use hyper_util::rt::TokioIo;

use crate::ledger::Stamp;
use crate::net::Socket;
use crate::proxy::body::request::RequestBody;
use crate::proxy::config::Config;
use crate::proxy::connection::lazy_deadline::Watch;
use crate::proxy::connection::meter::Meter;
use crate::proxy::connection::metered::Metered;
use crate::proxy::error::Error;

/// A connection that carries one request at a time.
pub(crate) struct Link {
    send: http1::SendRequest<RequestBody>,
    driver: Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>,
    done: bool,
    pub(crate) meter: Arc<Meter>,
    pub(crate) watch: Watch,
    /// When it was last put back.
    pub(crate) idle_since: Option<Stamp>,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("done", &self.done).finish_non_exhaustive()
    }
}

impl Link {
    /// Speaks HTTP/1.1 over `socket`.
    pub(crate) async fn open(socket: Socket, config: &Config) -> Result<Self, Error> {
        let meter = Arc::new(Meter::default());
        let io = TokioIo::new(Metered::upstream(socket, meter.clone()));
        let (send, connection) = http1::Builder::new()
            .preserve_header_case(true)
            .max_buf_size(usize::try_from(config.max_header_bytes.get()).unwrap_or(usize::MAX).max(256 * 1024))
            .handshake(io)
            .await
            .map_err(Error::Reset)?;
        let driver = Box::pin(connection.with_upgrades());
        Ok(Self { send, driver, done: false, meter, watch: Watch::default(), idle_since: None })
    }

    /// Reads, writes and parses as far as it goes without waiting.
    pub(crate) fn drive(&mut self, cx: &mut Context<'_>) {
        if !self.done && self.driver.as_mut().poll(cx).is_ready() {
            self.done = true;
        }
    }

    /// Whether it can take a request.
    pub(crate) fn is_idle(&self) -> bool {
        !self.done && self.send.is_ready()
    }

    /// Asks. The future makes progress only while the link is driven; it gives the request back if it was never written.
    #[allow(clippy::result_large_err, reason = "hyper's own type")]
    pub(crate) fn ask(
        &mut self,
        request: Request<RequestBody>,
    ) -> impl Future<Output = Result<Response<Incoming>, TrySendError<Request<RequestBody>>>> + use<> {
        self.send.try_send_request(request)
    }
}
