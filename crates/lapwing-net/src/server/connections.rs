//! The open connections of one server: since when each is idle, when that is too long, and which one gives way when there are too
//! many.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use pin_project_lite::pin_project;
use rustc_hash::FxHashMap;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::limits::ServerLimits;
use crate::accept::AcceptObserver;
use lapwing_ledger::Stamp;
use lapwing_metrics::{Counter, Counters};

/// The connections of one server.
#[derive(Debug, Default)]
pub(crate) struct ConnectionTable {
    open: Mutex<(u64, FxHashMap<u64, Arc<ConnectionState>>)>,
    counters: Option<Arc<Counters>>,
}

/// What is known about one connection.
#[derive(Debug)]
struct ConnectionState {
    now: Mutex<Activity>,
    gives_way: CancellationToken,
}

#[derive(Clone, Copy, Debug)]
struct Activity {
    /// Requests whose answers are not written yet. A head that has not come in full is none.
    requests: usize,
    has_served: bool,
    /// When it was accepted, or when its last request ended.
    since: Stamp,
}

impl ConnectionTable {
    pub(crate) fn new(counters: Option<Arc<Counters>>) -> Self {
        Self { counters, ..Self::default() }
    }

    /// Enters a connection, which leaves when the entry is dropped.
    pub(crate) fn enter(self: &Arc<Self>) -> ConnectionEntry {
        let now = Mutex::new(Activity { requests: 0, has_served: false, since: Stamp::now() });
        let state = Arc::new(ConnectionState { now, gives_way: CancellationToken::new() });
        let mut open = self.open.lock();
        let number = open.0;
        open.0 += 1;
        open.1.insert(number, state.clone());
        ConnectionEntry { table: self.clone(), number, state }
    }

    /// Counts why a connection is closed.
    pub(crate) fn count(&self, counter: Counter) {
        if let Some(counters) = &self.counters {
            counters.bump(counter);
        }
    }
}

impl AcceptObserver for ConnectionTable {
    /// Ends the idle connection that has made no request for longest; those that never made one come first.
    fn full(&self) {
        let open = self.open.lock();
        // one at a time: its place is free in a moment
        if open.1.values().any(|state| state.gives_way.is_cancelled()) {
            return;
        }
        let idle = open.1.values().map(|state| (*state.now.lock(), state)).filter(|(now, _)| now.requests == 0);
        if let Some((_, state)) = idle.min_by_key(|(now, _)| (now.has_served, now.since)) {
            state.gives_way.cancel();
        }
    }

    fn failed(&self) {
        self.count(Counter::AcceptsFailed);
    }
}

/// A connection's place in the table.
#[derive(Debug)]
pub(crate) struct ConnectionEntry {
    table: Arc<ConnectionTable>,
    number: u64,
    state: Arc<ConnectionState>,
}

impl ConnectionEntry {
    /// Waits until the connection is to be closed: it has been idle for too long, or another one needs its place. Returns the reason.
    pub(crate) async fn expired(&self, limits: &ServerLimits) -> Counter {
        tokio::select! {
            () = self.state.gives_way.cancelled() => Counter::ClosedGaveWay,
            reason = self.idle_too_long(limits) => reason,
        }
    }

    async fn idle_too_long(&self, limits: &ServerLimits) -> Counter {
        loop {
            let Activity { requests, has_served, since } = *self.state.now.lock();
            let (limit, reason) = match has_served {
                false => (limits.first_request_timeout, Counter::ClosedSlowHead),
                true => (limits.idle_timeout, Counter::ClosedIdle),
            };
            let Some(limit) = limit.or(limits.idle_timeout) else { return std::future::pending().await };
            let idle = if requests > 0 { Duration::ZERO } else { Duration::from_nanos(since.elapsed()) };
            match limit.checked_sub(idle) {
                Some(rest) if !rest.is_zero() => sleep(rest).await,
                _ => return reason,
            }
        }
    }

    /// Notes a request, which is open until what is returned is dropped.
    pub(crate) fn request(&self) -> OpenRequest {
        let mut now = self.state.now.lock();
        now.requests += 1;
        now.has_served = true;
        OpenRequest(self.state.clone())
    }
}

impl Drop for ConnectionEntry {
    fn drop(&mut self) {
        self.table.open.lock().1.remove(&self.number);
    }
}

/// A request whose answer is not written yet.
#[derive(Debug)]
pub(crate) struct OpenRequest(Arc<ConnectionState>);

impl Drop for OpenRequest {
    fn drop(&mut self) {
        let mut now = self.0.now.lock();
        now.requests -= 1;
        now.since = Stamp::now();
    }
}

pin_project! {
    /// The body of an answer, which keeps its request open.
    #[derive(Debug)]
    pub(crate) struct AnswerBody<B> {
        #[pin]
        pub(crate) body: B,
        pub(crate) request: OpenRequest,
    }
}

impl<B: Body> Body for AnswerBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        self.project().body.poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
