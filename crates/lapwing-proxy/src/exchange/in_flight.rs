//! A request in flight: its ledger while it is open, and everything that writes into it.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use parking_lot::Mutex;

use super::answer_errors::AnswerErrors;
use super::body_reader::BodyReader;
use super::circumstances::note_arrival;
use super::client_expects::ClientExpects;
use super::context::ExchangeContext;
use super::first_byte::{FirstByte, GRPC};
use super::grpc_status::grpc_outcome;
use super::observer::Observer;
use super::on_close::OnClose;
use crate::connection::{ClientWaits, SocketMeter};
use crate::upload::Upload;
use lapwing_ledger::{Annotation, ExchangeKind, Ledger, NameProof, ObservedEvent, Outcome, Stage, Stamp, UpstreamWindow};
use lapwing_metrics::{Counter, RequestGeneration};
use lapwing_protocol::ExchangeReader;

/// The content types of gRPC-Web, whose status is in the body and stays unknown.
const GRPC_WEB: &[u8] = b"application/grpc-web";

/// A request in flight.
#[derive(Debug)]
pub(crate) struct InFlight {
    pub(crate) context: Arc<ExchangeContext>,
    pub(crate) meter: Arc<SocketMeter>,
    /// Whether requests share the connection (HTTP/2).
    pub(crate) is_multiplexed: bool,
    pub(crate) called: Stamp,
    generation: RequestGeneration,
    pub(crate) request_last: AtomicU64,
    pub(crate) request_end: AtomicU64,
    pub(crate) request_bytes: AtomicU64,
    response_bytes: AtomicU64,
    /// When it went to the upstream, and when the upstream window ended: zero before that.
    dispatched: AtomicU64,
    egress: AtomicU64,
    pub(crate) client: ClientExpects,
    /// Whether the request body waits for the client, not for the upstream.
    pub(crate) awaits_client: AtomicBool,
    /// Pieces of the response that hyper still holds (HTTP/2).
    pub(crate) held: AtomicU32,
    /// A piece of the response was thrown away: the client reset the stream (HTTP/2).
    pub(crate) is_cut: AtomicBool,
    finished: AtomicBool,
    pub(crate) closed: AtomicBool,
    /// Pieces of the bodies have passed that the reader has not read yet.
    is_behind: AtomicBool,
    /// The request's body, if it has waited for the client and `client_min_rate` is on.
    pub(crate) upload: OnceLock<Arc<Upload>>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// `None` once it has been handed over.
    ledger: Option<Box<Ledger>>,
    /// The response's waits for the client, if the request shares its connection.
    waits: Option<Box<ClientWaits>>,
    reader: Option<BodyReader>,
    errors: AnswerErrors,
    first_byte: FirstByte,
    on_close: Option<Box<dyn OnClose>>,
}

impl State {
    /// The ledger. After it was handed over, a spare one whose content is lost.
    fn ledger(&mut self) -> &mut Ledger {
        self.ledger.get_or_insert_with(|| Box::new(Ledger::open(Stamp::now(), 0)))
    }
}

impl InFlight {
    /// Opens a ledger that began at `started`. The whole head has been read by now.
    pub(crate) fn open(
        context: Arc<ExchangeContext>,
        meter: Arc<SocketMeter>,
        started: Stamp,
        is_multiplexed: bool,
    ) -> Arc<Self> {
        let called = Stamp::now();
        let mut ledger = Box::new(Ledger::open(started, 0));
        note_arrival(&context, &meter, &mut ledger);
        let generation = context.counters.open_requests().begin();
        meter.open.fetch_add(1, Relaxed);
        Arc::new(Self {
            context,
            meter,
            is_multiplexed,
            called,
            generation,
            request_last: AtomicU64::new(called.as_ns()),
            request_end: AtomicU64::new(0),
            request_bytes: AtomicU64::new(0),
            response_bytes: AtomicU64::new(0),
            dispatched: AtomicU64::new(0),
            egress: AtomicU64::new(0),
            client: ClientExpects::default(),
            awaits_client: AtomicBool::new(false),
            held: AtomicU32::new(0),
            is_cut: AtomicBool::new(false),
            finished: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            is_behind: AtomicBool::new(false),
            upload: OnceLock::new(),
            state: Mutex::new(State {
                ledger: Some(ledger),
                waits: None,
                reader: None,
                errors: AnswerErrors::default(),
                first_byte: FirstByte::default(),
                on_close: None,
            }),
        })
    }

    /// Reads or writes the ledger.
    pub(crate) fn with<T>(&self, write: impl FnOnce(&mut Ledger) -> T) -> T {
        write(self.state.lock().ledger())
    }

    /// Lets the observer write into the ledger. A panic is caught and counted.
    pub(crate) fn observe(&self, look: impl FnOnce(&dyn Observer, &mut Ledger)) {
        self.context.observe(Counter::ObserverPanics, |observer| look(observer, self.state.lock().ledger()));
    }

    /// Lets the observer write into the ledger, and open a reader of the bodies of a POST, or of another request. A panic is caught
    /// and counted.
    pub(crate) fn open_reader(&self, is_post: bool, look: impl FnOnce(&dyn Observer, &mut Ledger) -> Option<ExchangeReader>) {
        let state = &mut *self.state.lock();
        state.errors = AnswerErrors::to(is_post);
        self.context.observe(Counter::ObserverPanics, |observer| {
            state.reader = look(observer, state.ledger()).map(BodyReader::new);
        });
    }

    /// Has `on_close` called when the ledger closes.
    pub(crate) fn set_on_close(&self, on_close: Box<dyn OnClose>) {
        self.state.lock().on_close = Some(on_close);
    }

    /// Calls the reader of the bodies. A panic is caught and counted; a reader that panicked is not called again.
    pub(crate) fn with_reader(&self, look: impl FnOnce(&mut BodyReader, &Ledger)) {
        self.look_with_reader(&mut self.state.lock(), look);
    }

    fn look_with_reader(&self, state: &mut State, look: impl FnOnce(&mut BodyReader, &Ledger)) {
        let (Some(reader), Some(ledger)) = (&mut state.reader, &state.ledger) else { return };
        let mut is_sound = false;
        self.context.observe(Counter::ObserverPanics, |_| {
            look(reader, ledger);
            is_sound = true;
        });
        self.is_behind.store(is_sound && reader.is_behind(), Relaxed);
        if !is_sound {
            state.reader = None;
        }
    }

    /// A piece of the request goes to the upstream.
    pub(crate) fn on_request_piece(&self, bytes: &Bytes) {
        self.with_reader(|reader, _| reader.push_request(bytes));
    }

    /// A piece of the response, read from the upstream at `at`, goes to the client.
    pub(crate) fn on_response_piece(&self, bytes: &Bytes, at: Stamp) {
        let state = &mut *self.state.lock();
        if let Some(ledger) = &state.ledger {
            state.first_byte.on_piece(bytes, at.since(ledger.started));
            if state.errors.wants_piece() {
                let State { errors, reader, .. } = state;
                let times = (at, ledger.started);
                self.context.observe(Counter::ObserverPanics, |observer| errors.on_piece(observer, reader, bytes, times));
            }
        }
        self.look_with_reader(state, |reader, ledger| reader.push_response(bytes, at, ledger.started));
    }

    /// Lets the reader read the pieces that have passed. Call it once they are on their way.
    pub(crate) fn read_passed(&self) {
        if self.is_behind.load(Relaxed) {
            self.with_reader(|reader, _| reader.read());
        }
    }

    /// The request was admitted and goes to the upstream now, which ends validation.
    pub(crate) fn dispatch(&self) -> Stamp {
        let now = Stamp::now();
        if self.dispatched.load(Relaxed) == 0 {
            self.dispatched.store(now.as_ns(), Relaxed);
        }
        now
    }

    /// The upstream window ends at `end`.
    pub(crate) fn end_window(&self, end: Stamp) {
        self.egress.store(end.as_ns(), Relaxed);
    }

    /// So many bytes of the response's body go to the client.
    pub(crate) fn on_response_bytes(&self, n: usize) {
        self.response_bytes.store(self.response_bytes.load(Relaxed) + n as u64, Relaxed);
    }

    /// The response waited for the client, not for the upstream.
    pub(crate) fn on_client_wait(&self, from: Stamp, to: Stamp) {
        self.state.lock().waits.get_or_insert_default().push(from, to);
    }

    /// The upstream began to answer at `head`. It was given the last request byte at `sent` (`None`: not yet).
    pub(crate) fn begin_window(&self, sent: Option<Stamp>, head: Stamp) {
        self.upload.get().inspect(|upload| upload.settle());
        let state = &mut *self.state.lock();
        let dispatched = Stamp::from_ns(self.dispatched.load(Relaxed));
        let ledger = state.ledger();
        let head_ns = head.since(ledger.started);
        let start_ns = sent.unwrap_or(head).min(head).since(ledger.started);
        if let (Some(sent), Some(dispatched)) = (sent, dispatched) {
            let from = dispatched.max(self.request_end().unwrap_or(dispatched));
            ledger.observe(Stage::Unattributed, ObservedEvent::Send, from, sent.min(head));
        }
        ledger.window = Some(UpstreamWindow { start_ns, head_ns, end_ns: head_ns });
    }

    /// The response's head was read, or Lapwing answers by itself: records status, outcome, and the upstream's reports.
    pub(crate) fn record_response_head(&self, status: StatusCode, headers: &HeaderMap) {
        let content_type = headers.get(header::CONTENT_TYPE).map_or(&[][..], |kind| kind.as_bytes());
        let is_still_asking = self.request_end().is_none();
        let state = &mut *self.state.lock();
        self.context.observe(Counter::ObserverPanics, |observer| {
            let ledger = state.ledger();
            ledger.status = status.as_u16();
            observer.response(headers, false, ledger);
        });
        self.look_with_reader(state, |reader, _| self.on_refused_fields(reader.read_response_head(status.as_u16(), headers)));
        state.first_byte.on_head(headers, content_type);
        let State { errors, reader, .. } = state;
        let head = (status.as_u16(), headers, content_type);
        self.context.observe(Counter::ObserverPanics, |observer| errors.on_head(observer, reader, head));
        let ledger = state.ledger();
        ledger.outcome = match status.as_u16() {
            500.. => Outcome::ServerError,
            400..500 => Outcome::ClientError,
            _ => Outcome::Ok,
        };
        ledger.name_proof = NameProof::of_status(status.as_u16());
        if content_type.starts_with(GRPC) {
            let is_plain = !content_type.starts_with(GRPC_WEB) && ledger.name_proof == NameProof::Proven;
            let unsaid = if is_plain { NameProof::WithContent } else { ledger.name_proof };
            (ledger.outcome, ledger.name_proof) = grpc_outcome(headers).unwrap_or((ledger.outcome, unsaid));
            if is_still_asking {
                ledger.kind = ExchangeKind::Stream;
            }
        }
    }

    /// The response's trailers were read: records the upstream's reports, and the outcome of a gRPC call.
    pub(crate) fn record_trailers(&self, trailers: &HeaderMap) {
        self.observe(|observer, ledger| observer.response(trailers, true, ledger));
        self.with_reader(|reader, _| self.on_refused_fields(reader.read_trailers(trailers)));
        if let Some((outcome, proof)) = grpc_outcome(trailers) {
            self.with(|ledger| (ledger.outcome, ledger.name_proof) = (outcome, proof));
        }
    }

    fn on_refused_fields(&self, n: usize) {
        if n > 0 {
            self.context.counters.add(Counter::ReportsMalformed, n as u64);
        }
    }

    /// A spliced stream ended. It carried these many bytes from the client and to it.
    pub(crate) fn on_stream_end(&self, (from_client, to_client): (u64, u64), outcome: Outcome) {
        self.request_bytes.fetch_add(from_client, Relaxed);
        self.response_bytes.fetch_add(to_client, Relaxed);
        self.with(|ledger| ledger.outcome = outcome);
    }

    /// The response has ended: the ledger closes when the connection has flushed its last bytes.
    pub(crate) fn finish(self: &Arc<Self>) {
        if !self.finished.load(Relaxed) {
            self.finished.store(true, Relaxed);
            self.meter.close_at_flush(self.clone());
        }
    }

    /// Returns whether the response has ended, or a splice has taken over.
    pub(crate) fn is_finished(&self) -> bool {
        self.finished.load(Relaxed)
    }

    /// A splice has taken over. It closes the ledger when the stream ends.
    pub(crate) fn detach(&self) {
        self.finished.store(true, Relaxed);
    }

    /// Closes the ledger as cancelled, unless it is closed.
    pub(crate) fn cancel(&self) {
        self.with(|ledger| ledger.outcome = Outcome::Cancelled);
        self.close(Stamp::now());
    }

    /// Closes the ledger at `now` and hands it over. Later calls do nothing.
    pub(crate) fn close(&self, now: Stamp) {
        if self.closed.swap(true, Relaxed) {
            return;
        }
        self.finished.store(true, Relaxed);
        self.context.counters.sub(Counter::InFlight, 1);
        self.meter.open.fetch_sub(1, Relaxed);
        self.hand_over(now);
        // last: whoever sees that the request has ended finds its ledger in the queue
        self.context.counters.open_requests().end(self.generation);
    }

    /// Closes the ledger at `now` and hands it to the observer.
    fn hand_over(&self, now: Stamp) {
        let state = &mut *self.state.lock();
        let Some(mut ledger) = state.ledger.take() else { return };
        self.settle(state, &mut ledger, now);
        if !self.is_multiplexed {
            if self.request_end().is_none() {
                self.meter.on_message_abandoned();
            }
            let started = ledger.started;
            for (from, to) in self.meter.take_blocked().iter().flat_map(ClientWaits::iter) {
                ledger.observe(Stage::Egress, ObservedEvent::Backpressure, from.max(started), to.min(now));
            }
        } else if let Some(window) = ledger.window
            && self.meter.was_quiet(ledger.started.plus(window.end_ns), now)
        {
            ledger.circumstances.annotations.add(Annotation::FlowControl);
        }
        if let Some(reader) = state.reader.take() {
            self.context.observe(Counter::ObserverPanics, |observer| {
                let unread = reader.close(&mut ledger, |ledger, model| observer.model(model, ledger));
                unread.into_iter().flatten().for_each(|counter| self.context.counters.bump(counter));
            });
        }
        if let Some(decision) = state.on_close.take() {
            self.context.observe(Counter::ObserverPanics, |_| decision.on_close(&mut ledger));
        }
        self.context.observe(Counter::DroppedPanic, |observer| observer.closed(ledger));
    }

    /// A copy of the ledger as it stands at `now`; `None` once it is closed.
    pub(crate) fn ledger_until(&self, now: Stamp) -> Option<Ledger> {
        let state = &*self.state.lock();
        let mut ledger = Ledger::clone(state.ledger.as_ref()?);
        self.settle(state, &mut ledger, now);
        Some(ledger)
    }

    /// Writes into the ledger what is known only at its end, `now`.
    fn settle(&self, state: &State, ledger: &mut Ledger, now: Stamp) {
        let started = ledger.started;
        ledger.total_ns = now.since(started);
        ledger.request_bytes = self.request_bytes.load(Relaxed);
        ledger.response_bytes = self.response_bytes.load(Relaxed);
        ledger.first_byte_ns = state.first_byte.of_stream_ns();
        let [dispatched, egress] = [&self.dispatched, &self.egress].map(|at| Stamp::from_ns(at.load(Relaxed)));
        let read = self.request_end().unwrap_or_else(|| self.request_last().min(now));
        ledger.observe(Stage::Ingress, ObservedEvent::Request, started, read.max(self.called));
        ledger.observe(Stage::Validation, ObservedEvent::Admit, self.called, dispatched.or(egress).unwrap_or(now));
        if let Some(egress) = egress {
            if let Some(window) = &mut ledger.window {
                window.end_ns = egress.since(started).max(window.head_ns);
            }
            ledger.observe(Stage::Egress, ObservedEvent::Response, egress, now);
        } else if let Some(window) = &mut ledger.window {
            window.end_ns = ledger.total_ns; // cut off mid-response, or not yet at its end
        }
        // last: there may be many, and what the ledger has no room for is left out
        for (from, to) in state.waits.iter().flat_map(|waits| waits.iter()) {
            ledger.observe(Stage::Egress, ObservedEvent::Backpressure, from, to.min(now));
        }
    }
}
