//! One HTTP/1.1 connection to the upstream. It has no task; its holder drives it.
//!
//! The exchange that holds the connection polls it in the task of the client's connection, so a request costs no switch
//! between tasks and no wake-up of another. Nothing drives an idle connection: whether it is still alive is checked when it
//! is taken from the pool, just before a request is written.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1};
use hyper_util::rt::TokioIo;

use crate::body::RequestBody;
use crate::config::Config;
use crate::connection::{BodyArrival, LazyDeadline, MeteredSocket, SocketMeter};
use crate::error::Error;
use lapwing_net::Socket;

/// A request's body in a box: hyper keeps room for 32 requests for each connection, and uses it in turn, so that it seldom is in the processor's
/// caches.
pub(crate) type BoxedBody = Box<RequestBody>;

/// A connection that carries one request at a time.
pub(crate) struct H1Connection {
    send: http1::SendRequest<BoxedBody>,
    /// `None` once it is closed. It has the request's body, which is not passed on then.
    driver: Option<Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>>,
    /// Of the task that drives it: its meter, as hyper takes it.
    wakes: Waker,
    /// Whether its socket can be asked to acknowledge at once.
    can_acknowledge: bool,
    pub(crate) meter: Arc<SocketMeter>,
    pub(crate) deadline: LazyDeadline,
}

impl std::fmt::Debug for H1Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("H1Connection").field("is_done", &self.is_done()).finish_non_exhaustive()
    }
}

impl H1Connection {
    /// Begins HTTP/1.1 on `socket`.
    pub(crate) async fn open(socket: Socket, config: &Config) -> Result<Self, Error> {
        let (meter, can_acknowledge) = (Arc::new(SocketMeter::default()), socket.can_acknowledge());
        let io = TokioIo::new(MeteredSocket::upstream(socket, meter.clone()));
        let (send, connection) = http1::Builder::new()
            .preserve_header_case(true)
            .allow_spaces_after_header_name_in_responses(true) // which a proxy removes (RFC 9112, 5.1)
            .max_buf_size(config.read_bytes())
            .handshake(io)
            .await
            .map_err(Error::Reset)?;
        let deadline = LazyDeadline::default();
        Ok(Self {
            send,
            driver: Some(Box::pin(connection.with_upgrades())),
            wakes: meter.clone().into(),
            can_acknowledge,
            meter,
            deadline,
        })
    }

    /// Returns whether it can take a request.
    pub(crate) fn is_idle(&self) -> bool {
        !self.is_done() && self.send.is_ready()
    }

    /// Returns whether it is closed.
    pub(crate) const fn is_done(&self) -> bool {
        self.driver.is_none()
    }

    /// Sends `request`. The future makes progress only while the connection is driven, and wakes nobody. Its error holds the request if none
    /// of it was written.
    #[allow(clippy::result_large_err, reason = "hyper's own type")]
    pub(crate) fn send(
        &mut self,
        request: Request<BoxedBody>,
    ) -> impl Future<Output = Result<Response<Incoming>, TrySendError<Request<BoxedBody>>>> + use<> {
        // whoever sends drives the connection next
        self.meter.waker.quietly(|| self.send.try_send_request(request)).0
    }

    /// Reads, writes and parses as far as possible without waiting.
    pub(crate) fn drive(&mut self, cx: &mut Context<'_>) {
        if let Some(driver) = &mut self.driver {
            self.meter.waker.register(cx);
            if driver.as_mut().poll(&mut Context::from_waker(&self.wakes)).is_ready() {
                self.driver = None;
            }
        }
    }

    /// Whether [`Self::acknowledge`] can have an effect.
    pub(crate) const fn can_acknowledge(&self) -> bool {
        self.can_acknowledge
    }

    /// Asks the system to acknowledge at once what was read, if nothing more is there to read. Returns whether it did.
    pub(crate) fn acknowledge(&mut self, cx: &mut Context<'_>) -> bool {
        // hyper owns the socket: it reads once more, finds nothing, and the socket is asked
        self.meter.body_wait.begin(true);
        self.drive(cx);
        self.meter.body_wait.end() == BodyArrival::Apart { is_acknowledged: true }
    }
}
