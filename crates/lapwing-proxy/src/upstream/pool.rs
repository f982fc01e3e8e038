//! The HTTP/1.1 connections of one worker to the upstream, and the pool of the idle ones, the latest used first.
//!
//! A connection has no task; its holder drives it. The exchange that holds it polls it in the task of the client's connection, so a request
//! costs no switch between tasks and no wake-up of another. Nothing drives an idle connection: whether it is still alive is checked when
//! it is taken from the pool, just before a request is written.
//!
//! Servers close idle connections after a few seconds (uvicorn: five), so a connection is dropped before that.
//!
//! Where the upstream is known to close connections just after an answer, or has not shown yet that it does not (`trust`), a connection
//! rests before it can be taken.
//!
//! An upstream may answer before it has all of a request. Its connection first carries the rest (`linger`): so the client can go on with its
//! own connection, as it could with the upstream's.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::task::coop::unconstrained;

use super::trust::{Framing, REST, Trust};
use crate::body::{Drive, RequestBody};
use crate::config::Config;
use crate::connection::{BodyArrival, LazyDeadline, MeteredSocket, QuietWaker, SocketMeter};
use crate::error::Error;
use lapwing_ledger::Stamp;
use lapwing_net::{Socket, Tasks};

/// How many idle connections a worker keeps.
const MAX_IDLE: usize = 1024;
/// How long the rest of a request may stand still after its response, and take in all: as long as nginx waits for it (`lingering_timeout`,
/// `lingering_time`).
const LINGER: Duration = Duration::from_secs(5);
const LINGER_IN_ALL: Duration = Duration::from_secs(30);

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

/// A connection with its place in the pool.
pub(crate) struct PooledConnection {
    pub(crate) h1: H1Connection,
    /// When it was last put back.
    idle_since: Option<Stamp>,
    /// The calls of its waker until then.
    idle_calls: u32,
    /// How its last answer ended.
    pub(crate) framing: Framing,
    /// Where it is put back; only while a request holds it, and not if it is closed after that.
    pool: Option<Arc<ConnectionPool>>,
}

impl std::fmt::Debug for PooledConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PooledConnection").field("h1", &self.h1).finish_non_exhaustive()
    }
}

impl PooledConnection {
    /// A new connection, which is put into `pool` after each response.
    pub(crate) fn new(h1: H1Connection, pool: Arc<ConnectionPool>) -> Box<Self> {
        Box::new(Self { h1, idle_since: None, idle_calls: 0, framing: Framing::Sized, pool: Some(pool) })
    }

    /// Returns whether something may have come since it was put back: its end, or what nobody asked for.
    fn may_have_read(&self) -> bool {
        !self.h1.meter.is_watched.load(Relaxed) || self.h1.meter.waker.calls() != self.idle_calls
    }

    /// It is closed when its response ends.
    pub(crate) fn close_at_end(&mut self) {
        self.pool = None;
    }
}

impl Drive for PooledConnection {
    fn drive(&mut self, cx: &mut Context<'_>) {
        self.h1.drive(cx);
    }

    fn waker(&self) -> &QuietWaker {
        &self.h1.meter.waker
    }

    fn last_read(&self) -> Option<Stamp> {
        self.h1.meter.last_read()
    }

    fn can_acknowledge(&self) -> bool {
        self.h1.can_acknowledge()
    }

    fn acknowledge(&mut self, cx: &mut Context<'_>) -> bool {
        self.h1.acknowledge(cx)
    }

    fn release(mut self: Box<Self>, at: Stamp) {
        if let Some(pool) = self.pool.take() {
            self.h1.meter.waker.forget();
            pool.put(self, at);
        }
    }
}

/// The idle connections.
#[derive(Debug)]
pub(crate) struct ConnectionPool {
    idle: Mutex<VecDeque<Box<PooledConnection>>>,
    /// Those that rest, the longest first.
    resting: Mutex<VecDeque<Box<PooledConnection>>>,
    /// Whether there may be any. Each request looks, and most upstreams have none.
    has_resting: AtomicBool,
    trust: Trust,
    limit_ns: AtomicU64,
    tasks: Tasks,
}

impl ConnectionPool {
    /// An empty pool. It drops connections that are idle for longer than `limit`; `tasks` carry what is left of answered requests.
    pub(crate) fn new(limit: Duration, tasks: Tasks) -> Self {
        let (idle, resting, has_resting, trust) = Default::default();
        Self { idle, resting, has_resting, trust, limit_ns: nanos(limit).into(), tasks }
    }

    /// Takes a connection that is alive, if there is one at `now`.
    /// The second value says whether the upstream had ended one that was kept.
    pub(crate) async fn take(self: &Arc<Self>, now: Stamp) -> (Option<Box<PooledConnection>>, bool) {
        let mut is_ended = false;
        while let Some(rested) = self.rested(now) {
            self.end_rest(rested).await;
        }
        loop {
            let Some(mut connection) = self.idle.lock().pop_back() else { return (None, is_ended) };
            let idle_ns = connection.idle_since.map_or(u64::MAX, |since| now.since(since));
            if connection.may_have_read() {
                drive_once(&mut connection).await;
            }
            if idle_ns < self.limit_ns.load(Relaxed) && connection.h1.is_idle() {
                connection.pool = Some(self.clone());
                return (Some(connection), is_ended);
            }
            is_ended |= connection.h1.is_done();
            self.on_lost(&connection, now);
        }
    }

    /// The next connection that has rested at `now`.
    fn rested(&self, now: Stamp) -> Option<Box<PooledConnection>> {
        if !self.has_resting.load(Relaxed) {
            return None;
        }
        let mut resting = self.resting.lock();
        let is_rested = |first: &PooledConnection| first.idle_since.is_none_or(|since| now.since(since) >= nanos(REST));
        let first = if resting.front().is_some_and(|first| is_rested(first)) { resting.pop_front() } else { None };
        self.has_resting.store(!resting.is_empty(), Relaxed);
        first
    }

    /// A connection has rested: keeps it if the upstream did.
    async fn end_rest(&self, mut connection: Box<PooledConnection>) {
        drive_once(&mut connection).await;
        if connection.h1.is_idle() {
            self.trust.on_kept(connection.framing);
            self.push(connection);
        } else {
            self.trust.on_closed(connection.framing);
        }
    }

    /// A connection that was kept turned out at `now` to be closed.
    pub(crate) fn on_lost(&self, connection: &PooledConnection, now: Stamp) {
        if connection.h1.is_done() && connection.idle_since.is_some_and(|since| now.since(since) < nanos(REST)) {
            self.trust.on_closed(connection.framing);
        }
    }

    /// Keeps a connection that can carry another request, idle since `now`, or will once it has carried the rest of its own; drops (closes)
    /// any other.
    pub(crate) fn put(self: &Arc<Self>, connection: Box<PooledConnection>, now: Stamp) {
        if connection.h1.is_idle() {
            self.put_idle(connection, now);
        } else if !connection.h1.is_done() {
            self.tasks.spawn(self.clone().linger(connection));
        }
    }

    fn put_idle(&self, mut connection: Box<PooledConnection>, now: Stamp) {
        connection.idle_since = Some(now);
        if self.trust.is_trusted(connection.framing) {
            return self.push(connection);
        }
        let mut resting = self.resting.lock();
        if resting.len() < MAX_IDLE {
            resting.push_back(connection);
            self.has_resting.store(true, Relaxed);
        }
    }

    fn push(&self, mut connection: Box<PooledConnection>) {
        connection.idle_calls = connection.h1.meter.waker.calls();
        let mut idle = self.idle.lock();
        if idle.len() == MAX_IDLE {
            idle.pop_front();
        }
        idle.push_back(connection);
    }

    /// Drives a connection until it has carried the rest of the request that it has answered.
    async fn linger(self: Arc<Self>, mut connection: Box<PooledConnection>) {
        let began = Stamp::now();
        let (mut idle, mut whole) = <(LazyDeadline, LazyDeadline)>::default();
        let rest = poll_fn(|cx| {
            connection.h1.drive(cx);
            let moved =
                connection.h1.meter.last_write().max(connection.h1.meter.last_read()).map_or(began, |moved| moved.max(began));
            let is_late = idle.has_expired(cx, moved, LINGER) || whole.has_expired(cx, began, LINGER_IN_ALL);
            if connection.h1.is_idle() || connection.h1.is_done() || is_late { Poll::Ready(()) } else { Poll::Pending }
        });
        rest.await;
        if connection.h1.is_idle() {
            connection.h1.meter.waker.forget();
            self.put_idle(connection, Stamp::now());
        }
    }

    /// Closes connections that have been idle for `limit`, which is the pool's limit from now on. Returns whether the upstream has ended any.
    pub(crate) async fn sweep(&self, limit: Duration) -> bool {
        let (now, limit_ns) = (Stamp::now(), nanos(limit));
        while let Some(rested) = self.rested(now) {
            self.end_rest(rested).await;
        }
        self.limit_ns.store(limit_ns, Relaxed);
        let mut called = VecDeque::new();
        {
            let mut idle = self.idle.lock();
            // those that rested are behind some that came after them
            idle.retain(|c| c.idle_since.is_some_and(|since| now.since(since) < limit_ns));
            if idle.iter().any(|c| c.may_have_read()) {
                (called, *idle) = idle.drain(..).partition(|c| c.may_have_read());
            }
        }
        let mut is_ended = false;
        for mut connection in called {
            drive_once(&mut connection).await;
            if connection.h1.is_idle() {
                self.push(connection);
            } else {
                is_ended = true;
            }
        }
        is_ended
    }
}

/// Reads what has come on an idle connection: its end, at most. It looks once, so it looks even if the task has used its turn up.
async fn drive_once(connection: &mut PooledConnection) {
    unconstrained(poll_fn(|cx| {
        connection.h1.drive(cx);
        Poll::Ready(())
    }))
    .await;
}

fn nanos(limit: Duration) -> u64 {
    u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX)
}
