//! A request in flight, put together: who carries it (its connection), who measures it (stamps, and the account), who decides (the context),
//! and who observes its bodies.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use parking_lot::Mutex;

use super::body_observation::{BodyObservation, count_refused};
use super::body_reader::BodyReader;
use super::circumstances::note_arrival;
use super::client_expects::ClientExpects;
use super::context::RequestContext;
use super::observer::Observer;
use super::on_close::OnClose;
use super::request_stamps::RequestStamps;
use crate::connection::{ClientWaits, ConnectionStamps, SocketMeter};
use crate::upload::Upload;
use lapwing_ledger::{Annotation, ExchangeKind, Ledger, ObservedEvent, OpenLedger, Outcome, Stage, Stamp};
use lapwing_metrics::{Counter, Counters, RequestGeneration};
use lapwing_protocol::ExchangeReader;
use lapwing_tower::outcome::{GRPC, grpc_outcome, head_outcome};

/// Has the end of a request in flight in hand.
pub(crate) type AccountGuard<M = SocketMeter> = lapwing_tower::account::AccountGuard<InFlight<M>>;

/// A request in flight.
#[derive(Debug)]
pub(crate) struct InFlight<M = SocketMeter> {
    pub(crate) context: Arc<RequestContext>,
    pub(crate) meter: Arc<M>,
    /// Whether requests share the connection (HTTP/2).
    pub(crate) is_multiplexed: bool,
    pub(crate) stamps: RequestStamps,
    generation: RequestGeneration,
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
    account: OpenLedger,
    /// The response's waits for the client, if the request shares its connection.
    waits: Option<Box<ClientWaits>>,
    bodies: BodyObservation,
    on_close: Option<Box<dyn OnClose>>,
}

impl<M: ConnectionStamps> InFlight<M> {
    /// Opens a ledger that began at `started`. The whole head has been read by now.
    pub(crate) fn open(context: Arc<RequestContext>, meter: Arc<M>, started: Stamp, is_multiplexed: bool) -> Arc<Self> {
        let called = Stamp::now();
        let mut ledger = Box::new(Ledger::open(started, 0));
        note_arrival(&context.counters, meter.on_request_opened(), &mut ledger);
        let generation = context.counters.open_requests().begin();
        Arc::new(Self {
            context,
            meter,
            is_multiplexed,
            stamps: RequestStamps::new(called),
            generation,
            client: ClientExpects::default(),
            awaits_client: AtomicBool::new(false),
            held: AtomicU32::new(0),
            is_cut: AtomicBool::new(false),
            finished: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            is_behind: AtomicBool::new(false),
            upload: OnceLock::new(),
            state: Mutex::new(State {
                account: OpenLedger::new(ledger),
                waits: None,
                bodies: BodyObservation::default(),
                on_close: None,
            }),
        })
    }

    /// Writes into the ledger; `None`, and counted, if it was handed over.
    pub(crate) fn write_ledger<T>(&self, write: impl FnOnce(&mut Ledger) -> T) -> Option<T> {
        self.state.lock().account.write(|| count_late(&self.context.counters), write)
    }

    /// Reads the ledger; `None` if it was handed over.
    pub(crate) fn read_ledger<T>(&self, read: impl FnOnce(&Ledger) -> T) -> Option<T> {
        self.state.lock().account.ledger().map(read)
    }

    /// Lets the observer write into the ledger, and open a reader of the bodies of a POST, or of another request. A panic is caught
    /// and counted.
    pub(crate) fn open_reader(&self, is_post: bool, open: impl FnOnce(&dyn Observer, &mut Ledger) -> Option<ExchangeReader>) {
        let State { account, bodies, .. } = &mut *self.state.lock();
        bodies.begin(is_post);
        self.context.observer.call(Counter::ObserverPanics, |observer| {
            let opened = account.write(|| count_late(&self.context.counters), |ledger| open(observer, ledger));
            bodies.read_with(opened.flatten());
        });
    }

    /// Has `on_close` called when the ledger closes.
    pub(crate) fn set_on_close(&self, on_close: Box<dyn OnClose>) {
        self.state.lock().on_close = Some(on_close);
    }

    /// Calls the reader of the bodies, if there is one. A panic is caught and counted; a reader that panicked is not called again.
    pub(crate) fn with_reader(&self, read: impl FnOnce(&mut BodyReader)) {
        let behind = self.state.lock().bodies.with_reader(&self.context.observer, read);
        self.set_behind(behind);
    }

    fn set_behind(&self, behind: Option<bool>) {
        if let Some(is_behind) = behind {
            self.is_behind.store(is_behind, Relaxed);
        }
    }

    /// A piece of the request goes to the upstream.
    pub(crate) fn on_request_piece(&self, bytes: &Bytes) {
        self.with_reader(|reader| reader.push_request(bytes));
    }

    /// A piece of the response, read from the upstream at `at`, goes to the client.
    pub(crate) fn on_response_piece(&self, bytes: &Bytes, at: Stamp) {
        let State { account, bodies, .. } = &mut *self.state.lock();
        if let Some(ledger) = account.ledger() {
            self.set_behind(bodies.on_response_piece(&self.context.observer, ledger, bytes, at));
        }
    }

    /// Lets the reader read the pieces that have passed. Call it once they are on their way.
    pub(crate) fn read_passed(&self) {
        if self.is_behind.load(Relaxed) {
            self.with_reader(BodyReader::read);
        }
    }

    /// The response waited for the client, not for the upstream.
    pub(crate) fn on_client_wait(&self, from: Stamp, to: Stamp) {
        self.state.lock().waits.get_or_insert_default().push(from, to);
    }

    /// The upstream began to answer at `head`. It was given the last request byte at `sent` (`None`: not yet).
    pub(crate) fn begin_window(&self, sent: Option<Stamp>, head: Stamp) {
        self.upload.get().inspect(|upload| upload.leave_places());
        self.write_ledger(|ledger| self.stamps.begin_window(ledger, sent, head));
    }

    /// The response's head was read, or Lapwing answers by itself: records status, outcome, and the upstream's reports.
    pub(crate) fn record_response_head(&self, status: StatusCode, headers: &HeaderMap) {
        let content_type = headers.get(header::CONTENT_TYPE).map_or(&[][..], |kind| kind.as_bytes());
        let is_still_asking = self.stamps.request_end().is_none();
        let (observer, counters) = (&self.context.observer, &*self.context.counters);
        let State { account, bodies, .. } = &mut *self.state.lock();
        account.write(
            || count_late(counters),
            |ledger| {
                observer.call(Counter::ObserverPanics, |observer| {
                    ledger.status = status.as_u16();
                    observer.response(headers, false, ledger);
                });
                self.set_behind(bodies.on_response_head(observer, counters, (status.as_u16(), headers, content_type)));
                (ledger.outcome, ledger.name_proof) = head_outcome(status, headers, content_type);
                if is_still_asking && content_type.starts_with(GRPC) {
                    ledger.kind = ExchangeKind::Stream;
                }
            },
        );
    }

    /// The response's trailers were read: records the upstream's reports, and the outcome of a gRPC call.
    pub(crate) fn record_trailers(&self, trailers: &HeaderMap) {
        let (observer, counters) = (&self.context.observer, &*self.context.counters);
        let State { account, bodies, .. } = &mut *self.state.lock();
        account.write(
            || count_late(counters),
            |ledger| {
                observer.call(Counter::ObserverPanics, |observer| observer.response(trailers, true, ledger));
                self.set_behind(bodies.with_reader(observer, |reader| count_refused(counters, reader.read_trailers(trailers))));
                if let Some((outcome, proof)) = grpc_outcome(trailers) {
                    (ledger.outcome, ledger.name_proof) = (outcome, proof);
                }
            },
        );
    }

    /// A spliced stream ended. It carried these many bytes from the client and to it.
    pub(crate) fn on_stream_end(&self, (from_client, to_client): (u64, u64), outcome: Outcome) {
        self.stamps.on_spliced_bytes(from_client, to_client);
        self.write_ledger(|ledger| ledger.outcome = outcome);
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
        // guards are dropped after it was closed, too
        if !self.closed.load(Relaxed) {
            self.write_ledger(|ledger| ledger.outcome = Outcome::Cancelled);
            self.close(Stamp::now());
        }
    }

    /// Closes the ledger at `now` and hands it over. Later calls do nothing.
    pub(crate) fn close(&self, now: Stamp) {
        if self.closed.swap(true, Relaxed) {
            return;
        }
        self.finished.store(true, Relaxed);
        self.context.counters.sub(Counter::InFlight, 1);
        self.meter.on_request_closed();
        self.hand_over(now);
        // last: whoever sees that the request has ended finds its ledger in the queue
        self.context.counters.open_requests().end(self.generation);
    }

    /// Closes the ledger at `now` and hands it to the observer.
    fn hand_over(&self, now: Stamp) {
        let observer = &self.context.observer;
        let state = &mut *self.state.lock();
        let Some(mut ledger) = state.account.hand_over() else { return };
        self.write_end(state, &mut ledger, now);
        if !self.is_multiplexed {
            if self.stamps.request_end().is_none() {
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
        state.bodies.close(observer, &self.context.counters, &mut ledger);
        if let Some(decision) = state.on_close.take() {
            observer.call(Counter::ObserverPanics, |_| decision.on_close(&mut ledger));
        }
        observer.call(Counter::DroppedPanic, |observer| observer.record(ledger));
    }

    /// A copy of the ledger as it stands at `now`; `None` once it is closed.
    pub(crate) fn ledger_until(&self, now: Stamp) -> Option<Ledger> {
        let state = &*self.state.lock();
        let mut ledger = Ledger::clone(state.account.ledger()?);
        self.write_end(state, &mut ledger, now);
        Some(ledger)
    }

    /// Writes into the ledger what is known only at its end, `now`.
    fn write_end(&self, state: &State, ledger: &mut Ledger, now: Stamp) {
        ledger.first_byte_ns = state.bodies.first_byte_ns();
        self.stamps.write_into(ledger, now);
        // last: there may be many, and what the ledger has no room for is left out
        for (from, to) in state.waits.iter().flat_map(|waits| waits.iter()) {
            ledger.observe(Stage::Egress, ObservedEvent::Backpressure, from, to.min(now));
        }
    }
}

/// An event came after the ledger was handed over.
fn count_late(counters: &Counters) {
    counters.bump(Counter::LateEvents);
}

#[cfg(test)]
mod tests {
    use crate::in_flight::fixtures;
    use lapwing_ledger::{Annotation, Outcome, Stamp};
    use lapwing_metrics::Counter;

    #[test]
    fn an_event_after_the_hand_over_is_counted_and_the_end_of_a_guard_is_none() {
        let in_flight = fixtures::in_flight();
        let late = || in_flight.context.counters.get(Counter::LateEvents);
        in_flight.annotate(Annotation::SplitWrite);
        in_flight.close(Stamp::now());
        in_flight.close(Stamp::now());
        in_flight.cancel();
        assert!(in_flight.read_ledger(|_| ()).is_none());
        assert_eq!(late(), 0, "closing twice and reading lose nothing");
        in_flight.annotate(Annotation::FlowControl);
        assert_eq!(late(), 1);
        in_flight.on_stream_end((1, 1), Outcome::Ok);
        assert_eq!(late(), 2);
    }
}
