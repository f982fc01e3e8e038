//! A request in flight: its ledger while it is still open, and the guard that closes it exactly once.
//!
//! Whoever observes may fail: every call to the [`Observer`] is fenced, so that a panic there costs the record and
//! never the request.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use http::{HeaderMap, Method};
use parking_lot::Mutex;

use crate::ledger::clock::unix_ns;
use crate::ledger::{Ledger, ObservedEvent, Outcome, Stage, Stamp, UpstreamWindow};
use crate::metrics::{Counter, Counters};
use crate::protocol::ExchangeReader;
use crate::proxy::body::rewrite::Habits;
use crate::proxy::config::Config;
use crate::proxy::connection::client_waits::Waits;
use crate::proxy::connection::meter::Meter;
use crate::proxy::exchange::body_reader::Reading;
use crate::proxy::layer::trace::Tracing;

/// Who looks at the traffic. Called on the request path: must be quick, must not wait.
pub trait Observer: Send + Sync {
    /// Names route and model of a request by its head; gives a reader of the bodies, where there is anything to read.
    fn request(&self, method: &Method, path: &str, headers: &HeaderMap, ledger: &mut Ledger) -> Option<ExchangeReader>;
    /// Reads what the upstream reports of itself in a response's head, or (`trailing`) in its trailers.
    fn response(&self, fields: &HeaderMap, trailing: bool, ledger: &mut Ledger);
    /// Names the model that the bodies name.
    fn model(&self, name: &str, ledger: &mut Ledger);
    /// Takes the closed ledger.
    fn closed(&self, ledger: Ledger);
}

/// What every request of a connection shares: the settings in force when the connection was accepted, and the observer.
pub(crate) struct Recorder {
    pub(crate) config: Config,
    /// Whether responses carry `Server-Timing`.
    pub(crate) respond_server_timing: bool,
    /// How spans are asked for.
    pub(crate) tracing: Tracing,
    pub(crate) counters: Arc<Counters>,
    pub(crate) observer: Arc<dyn Observer>,
    /// What was learnt of the upstream: by the worker, not by the connection.
    pub(crate) habits: Arc<Habits>,
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder").finish_non_exhaustive()
    }
}

impl Recorder {
    /// Calls the observer behind a fence; `panicked` counts what does not get past it.
    fn observe(&self, panicked: Counter, look: impl FnOnce(&dyn Observer)) {
        if catch_unwind(AssertUnwindSafe(|| look(&*self.observer))).is_err() {
            self.counters.bump(panicked);
        }
    }

    /// Counts a request that was refused before it was one.
    pub(crate) fn refused(self: &Arc<Self>, status: u16, meter: &Arc<Meter>) {
        let live = Live::open(self.clone(), meter.clone(), meter.head_began(), false);
        live.with(|ledger| {
            ledger.status = status;
            ledger.outcome = Outcome::Rejected;
        });
        live.finish();
    }
}

/// A request in flight.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) meter: Arc<Meter>,
    /// Several requests share the connection (HTTP/2).
    pub(crate) multiplexed: bool,
    called: Stamp,
    request_last: AtomicU64,
    request_end: AtomicU64,
    request_bytes: AtomicU64,
    /// Whether the request body waits for the client, rather than for the upstream.
    pub(crate) awaits_client: AtomicBool,
    /// Pieces of the response that hyper still holds (HTTP/2).
    held: AtomicU32,
    finished: AtomicBool,
    closed: AtomicBool,
    /// Some of the bodies passed and has not been read yet.
    is_behind: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Until it is handed over.
    ledger: Option<Ledger>,
    dispatched: Option<Stamp>,
    egress: Option<Stamp>,
    /// The waits for the client's reading, of a request that shares its connection.
    waits: Option<Box<Waits>>,
    /// Who reads the bodies.
    reading: Option<Reading>,
}

impl State {
    /// The ledger; what is written after it was handed over is lost with the rest of the request.
    fn ledger(&mut self) -> &mut Ledger {
        self.ledger.get_or_insert_with(|| Ledger::open(Stamp::now(), 0))
    }
}

impl Live {
    /// Opens a ledger at `started`; now is when the whole head had been read.
    pub(crate) fn open(recorder: Arc<Recorder>, meter: Arc<Meter>, started: Stamp, multiplexed: bool) -> Arc<Self> {
        let called = Stamp::now();
        let ledger = Ledger::open(started, unix_ns().saturating_sub(called.since(started)));
        recorder.counters.bump(Counter::InFlight);
        meter.open.fetch_add(1, Relaxed);
        Arc::new(Self {
            recorder,
            meter,
            multiplexed,
            called,
            request_last: AtomicU64::new(called.as_ns()),
            request_end: AtomicU64::new(0),
            request_bytes: AtomicU64::new(0),
            awaits_client: AtomicBool::new(false),
            held: AtomicU32::new(0),
            finished: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            is_behind: AtomicBool::new(false),
            state: Mutex::new(State { ledger: Some(ledger), dispatched: None, egress: None, waits: None, reading: None }),
        })
    }

    /// Writes in the ledger.
    pub(crate) fn with<T>(&self, write: impl FnOnce(&mut Ledger) -> T) -> T {
        write(self.state.lock().ledger())
    }

    /// Lets the observer write in the ledger, behind the fence.
    pub(crate) fn observe(&self, look: impl FnOnce(&dyn Observer, &mut Ledger)) {
        self.recorder.observe(Counter::ObserverPanics, |observer| look(observer, self.state.lock().ledger()));
    }

    /// Reads the bodies by `tap` from here on.
    pub(crate) fn read_by(&self, tap: ExchangeReader) {
        self.state.lock().reading = Some(Reading::new(tap));
    }

    /// Lets the reader look, behind the fence; a reader that panics reads no more.
    fn reading(&self, look: impl FnOnce(&mut Reading, &Ledger)) {
        let state = &mut *self.state.lock();
        let (Some(reading), Some(ledger)) = (&mut state.reading, &state.ledger) else { return };
        let mut is_sound = false;
        self.recorder.observe(Counter::ObserverPanics, |_| {
            look(reading, ledger);
            is_sound = true;
        });
        self.is_behind.store(is_sound && reading.is_behind(), Relaxed);
        if !is_sound {
            state.reading = None;
        }
    }

    /// Some of the request passed to the upstream.
    pub(crate) fn on_request_piece(&self, bytes: &Bytes) {
        self.reading(|reading, _| reading.request(bytes));
    }

    /// The response's head came.
    pub(crate) fn on_response_head(&self, status: u16, headers: &HeaderMap) {
        self.reading(|reading, _| reading.head(status, headers));
    }

    /// Some of the response, read `at`, passes to the client.
    pub(crate) fn on_response_piece(&self, bytes: &Bytes, at: Stamp) {
        self.reading(|reading, ledger| reading.response(bytes, at, ledger.started));
    }

    /// What passed is on its way, and there is time to read it.
    pub(crate) fn read(&self) {
        if self.is_behind.load(Relaxed) {
            self.reading(|reading, _| reading.read());
        }
    }

    /// Some of the request body came.
    pub(crate) fn on_request_bytes(&self, n: usize) {
        self.request_bytes.fetch_add(n as u64, Relaxed);
        let read = if self.multiplexed { None } else { self.meter.last_read() };
        self.request_last.store(read.unwrap_or_else(Stamp::now).as_ns(), Relaxed);
    }

    /// The request body came to its end.
    pub(crate) fn on_request_end(&self) {
        let read = if self.multiplexed { None } else { self.meter.last_read() };
        self.request_end.store(read.map_or_else(|| Stamp::now().as_ns(), Stamp::as_ns), Relaxed);
        self.meter.settle();
    }

    /// When the request was read to its end; `None` while it comes.
    pub(crate) fn request_end(&self) -> Option<Stamp> {
        Stamp::from_ns(self.request_end.load(Relaxed))
    }

    /// When some of the request last came.
    pub(crate) fn request_last(&self) -> Stamp {
        Stamp::from_ns(self.request_last.load(Relaxed)).unwrap_or(self.called)
    }

    /// The request was admitted and classified, and goes to the upstream now.
    pub(crate) fn dispatch(&self) -> Stamp {
        let now = Stamp::now();
        self.state.lock().dispatched.get_or_insert(now);
        now
    }

    /// The upstream window is over at `end`.
    pub(crate) fn end_window(&self, end: Stamp) {
        let state = &mut *self.state.lock();
        let ledger = state.ledger();
        if let Some(window) = &mut ledger.window {
            window.end_ns = end.since(ledger.started).max(window.head_ns);
        }
        state.egress = Some(end);
    }

    /// The response waited for the client, not for the upstream.
    pub(crate) fn on_wait(&self, from: Stamp, to: Stamp) {
        self.state.lock().waits.get_or_insert_default().push(from, to);
    }

    /// The upstream began to answer at `head`, having been given the last request byte at `sent` (`None`: not yet).
    pub(crate) fn begin_window(&self, sent: Option<Stamp>, head: Stamp) {
        let state = &mut *self.state.lock();
        let dispatched = state.dispatched;
        let ledger = state.ledger();
        let head_ns = head.since(ledger.started);
        let start_ns = sent.unwrap_or(head).min(head).since(ledger.started);
        if let (Some(sent), Some(dispatched)) = (sent, dispatched) {
            let from = dispatched.max(self.request_end().unwrap_or(dispatched));
            ledger.observe(Stage::Unattributed, ObservedEvent::Send, from, sent.min(head));
        }
        ledger.window = Some(UpstreamWindow { start_ns, head_ns, end_ns: head_ns });
    }

    /// A spliced stream ended, having carried so many bytes from the client and to it.
    pub(crate) fn on_stream_end(&self, (from_client, to_client): (u64, u64), outcome: Outcome) {
        self.request_bytes.fetch_add(from_client, Relaxed);
        self.with(|ledger| {
            ledger.response_bytes += to_client;
            ledger.outcome = outcome;
        });
    }

    /// Nothing more will be asked or answered: the ledger closes when the connection has flushed.
    pub(crate) fn finish(self: &Arc<Self>) {
        if !self.finished.swap(true, Relaxed) {
            self.meter.close_at_flush(self.clone());
        }
    }

    /// Hyper is given a piece of the response.
    pub(crate) fn hold(self: &Arc<Self>) -> Arc<Self> {
        self.held.fetch_add(1, Relaxed);
        self.clone()
    }

    /// Whether hyper holds any piece of the response.
    pub(crate) fn is_held(&self) -> bool {
        self.held.load(Relaxed) > 0
    }

    /// Hyper lets go of a piece. The last one of a finished response ends the exchange: here, if the socket took it; at
    /// the next flush, if a buffer did. A piece that is not `whole` was thrown away: the client reset the stream.
    pub(crate) fn let_go(self: &Arc<Self>, whole: bool, written: bool) {
        let is_last = self.held.fetch_sub(1, Relaxed) == 1;
        if !self.finished.load(Relaxed) {
            return;
        }
        if !whole {
            self.cancel();
        } else if !is_last {
            return;
        } else if written {
            self.close(self.meter.last_write().unwrap_or_else(Stamp::now));
        } else {
            return self.meter.close_released();
        }
        self.meter.forget(self);
    }

    /// A splice has taken over: it closes the ledger when the stream ends.
    pub(crate) fn detach(&self) {
        self.finished.store(true, Relaxed);
    }

    /// Closes the ledger as cancelled, unless it is closed already.
    pub(crate) fn cancel(&self) {
        self.with(|ledger| ledger.outcome = Outcome::Cancelled);
        self.close(Stamp::now());
    }

    /// Closes the ledger at `now`, the first time it is called, and hands it over.
    pub(crate) fn close(&self, now: Stamp) {
        if self.closed.swap(true, Relaxed) {
            return;
        }
        self.finished.store(true, Relaxed);
        self.recorder.counters.sub(Counter::InFlight, 1);
        self.meter.open.fetch_sub(1, Relaxed);
        let state = &mut *self.state.lock();
        let Some(mut ledger) = state.ledger.take() else { return };
        self.settle(state, &mut ledger, now);
        if !self.multiplexed {
            if self.request_end().is_none() {
                self.meter.leave_unread();
            }
            let started = ledger.started;
            for (from, to) in self.meter.take_blocked().iter().flat_map(Waits::iter) {
                ledger.observe(Stage::Egress, ObservedEvent::Backpressure, from.max(started), to.min(now));
            }
        }
        if let Some(reading) = state.reading.take() {
            self.recorder.observe(Counter::ObserverPanics, |observer| {
                reading.close(&mut ledger, |ledger, model| observer.model(model, ledger));
            });
        }
        self.recorder.observe(Counter::DroppedPanic, |observer| observer.closed(ledger));
    }

    /// The account as it stands at `now`; `None` once it is closed.
    pub(crate) fn until(&self, now: Stamp) -> Option<Ledger> {
        let state = &*self.state.lock();
        let mut ledger = state.ledger.clone()?;
        self.settle(state, &mut ledger, now);
        Some(ledger)
    }

    /// Writes into the ledger what is known only when it ends, at `now`.
    fn settle(&self, state: &State, ledger: &mut Ledger, now: Stamp) {
        let started = ledger.started;
        ledger.total_ns = now.since(started);
        ledger.request_bytes = self.request_bytes.load(Relaxed);
        let read = self.request_end().unwrap_or_else(|| self.request_last().min(now));
        ledger.observe(Stage::Ingress, ObservedEvent::Request, started, read.max(self.called));
        ledger.observe(Stage::Validation, ObservedEvent::Admit, self.called, state.dispatched.or(state.egress).unwrap_or(now));
        if let Some(egress) = state.egress {
            ledger.observe(Stage::Egress, ObservedEvent::Response, egress, now);
        } else if let Some(window) = &mut ledger.window {
            window.end_ns = ledger.total_ns; // cut off mid-response, or not yet at its end
        }
        // last: they are many, and where there is no room for all, they give way
        for (from, to) in state.waits.iter().flat_map(|waits| waits.iter()) {
            ledger.observe(Stage::Egress, ObservedEvent::Backpressure, from, to.min(now));
        }
    }
}

/// Closes the ledger if it is dropped before anybody called [`Live::finish`]: as cancelled, unless the answer was whole
/// by its own mark.
#[derive(Debug)]
pub(crate) struct Guard(pub(crate) Arc<Live>);

impl Drop for Guard {
    fn drop(&mut self) {
        if self.0.finished.load(Relaxed) {
            return;
        }
        let mut is_complete = false;
        self.0.reading(|reading, _| is_complete = reading.is_complete());
        if is_complete {
            self.0.close(Stamp::now()); // it has all that it asked for, and leaves without waiting for the body's end
        } else {
            self.0.cancel();
        }
    }
}
