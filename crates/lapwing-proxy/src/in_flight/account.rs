//! The account of a request: who measures it (stamps, the open ledger), and who observes its bodies. It does not know what carries the
//! request: neither its connection, nor its bodies, nor the upstream.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use parking_lot::Mutex;

use super::body_observation::{BodyObservation, BodyReader, count_refused};
use super::context::RequestContext;
use super::observer::{Observer, OnClose};
use super::stamps::RequestStamps;
use crate::connection::ClientWaits;
use crate::upload::UploadProgress;
use lapwing_dispatch::Dispatched;
use lapwing_ledger::{Annotation, ExchangeKind, Ledger, ObservedEvent, OpenLedger, Outcome, ServedBy, Stage, Stamp};
use lapwing_metrics::{Counter, Counters};
use lapwing_protocol::ExchangeReader;
use lapwing_tower::outcome::{GRPC, grpc_outcome, head_outcome};

/// A request's ledger, or that it has been handed over.
#[derive(Debug)]
pub(crate) struct RequestAccount {
    pub(crate) context: Arc<RequestContext>,
    pub(crate) stamps: RequestStamps,
    /// How the request's body comes.
    pub(crate) upload: UploadProgress,
    /// Pieces of the bodies have passed that the reader has not read yet.
    is_behind: AtomicBool,
    /// Whether there is a place to give back.
    has_place: AtomicBool,
    /// Whether it is that of one of two upstreams that were sent the request: only the request's own observes.
    is_leg: bool,
    /// Whether its upstream is asked to the end, whether its client waits or not.
    outlives: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    ledger: OpenLedger,
    /// The response's waits for the client, if the request shares its connection.
    waits: Option<Box<ClientWaits>>,
    bodies: BodyObservation,
    on_close: Vec<Box<dyn OnClose>>,
    /// Given back when it is dropped.
    place: Option<Dispatched>,
}

impl RequestAccount {
    /// An account with an open `ledger`, of a request whose handler was called at `called`.
    pub(crate) fn new(context: Arc<RequestContext>, ledger: Box<Ledger>, called: Stamp) -> Self {
        Self {
            context,
            stamps: RequestStamps::new(called),
            upload: UploadProgress::default(),
            is_behind: AtomicBool::new(false),
            has_place: AtomicBool::new(false),
            is_leg: false,
            outlives: AtomicBool::new(false),
            state: Mutex::new(State {
                ledger: OpenLedger::new(ledger),
                waits: None,
                bodies: BodyObservation::default(),
                on_close: Vec::new(),
                place: None,
            }),
        }
    }

    /// Writes into the ledger; `None`, and counted, if it was handed over.
    pub(crate) fn write_ledger<T>(&self, write: impl FnOnce(&mut Ledger) -> T) -> Option<T> {
        self.state.lock().ledger.write(|| self.count_late(), write)
    }

    /// Its upstream is asked to the end, though its client may leave: what comes then is of others.
    pub(crate) fn outlive_client(&self) {
        self.outlives.store(true, Relaxed);
    }

    /// An event came after the ledger was handed over.
    fn count_late(&self) {
        if !self.outlives.load(Relaxed) {
            self.context.counters.bump(Counter::LateEvents);
        }
    }

    /// Lapwing answers with what was answered to another request, of which nothing is read.
    pub(crate) fn answer_again(&self, status: StatusCode, by: ServedBy) {
        let State { ledger, bodies, .. } = &mut *self.state.lock();
        bodies.ignore_answer();
        ledger.write(
            || self.count_late(),
            |ledger| {
                ledger.status = status.as_u16();
                ledger.outcome = Outcome::Ok;
                ledger.served_by = by;
            },
        );
    }

    /// Reads the ledger; `None` if it was handed over.
    pub(crate) fn read_ledger<T>(&self, read: impl FnOnce(&Ledger) -> T) -> Option<T> {
        self.state.lock().ledger.ledger().map(read)
    }

    /// Notes what was seen of the request.
    pub(crate) fn annotate(&self, annotation: Annotation) {
        self.write_ledger(|ledger| ledger.circumstances.annotations.add(annotation));
    }

    /// Lets the observer write into the ledger, and open a reader of the bodies of a POST, or of another request. A panic is caught
    /// and counted.
    pub(crate) fn open_reader(&self, is_post: bool, open: impl FnOnce(&dyn Observer, &mut Ledger) -> Option<ExchangeReader>) {
        let State { ledger, bodies, .. } = &mut *self.state.lock();
        bodies.begin(is_post);
        self.context.observer.call(Counter::ObserverPanics, |observer| {
            let opened = ledger.write(|| self.count_late(), |ledger| open(observer, ledger));
            bodies.read_with(opened.flatten());
        });
    }

    /// Has `on_close` called when the ledger closes, after those that were added before. Returns whether it will: not if the ledger was
    /// handed over.
    pub(crate) fn add_on_close(&self, on_close: Box<dyn OnClose>) -> bool {
        let State { ledger, on_close: added, .. } = &mut *self.state.lock();
        let is_open = ledger.ledger().is_some();
        if is_open {
            added.push(on_close);
        }
        is_open
    }

    /// The account of one of two upstreams that are sent the request, which has been read; `None` if this one was handed over. Nobody observes
    /// it, and it is never handed over: [`Self::adopt`] takes what it has measured.
    pub(crate) fn leg(&self) -> Option<Self> {
        let ledger = Box::new(self.state.lock().ledger.ledger()?.clone());
        let stamps = self.stamps.of_leg();
        Some(Self { is_leg: true, stamps, ..Self::new(self.context.clone(), ledger, Stamp::now()) })
    }

    /// The upstream of this leg answered, or failed: what it has measured is the request's. Returns whether the request is still of interest.
    pub(crate) fn adopt(&self, leg: &Self) -> bool {
        let (ledger, place) = {
            let State { ledger, place, .. } = &mut *leg.state.lock();
            (ledger.hand_over(), place.take())
        };
        self.upload.on_answered();
        let is_open = ledger.is_some_and(|measured| self.write_ledger(|ledger| *ledger = *measured).is_some());
        if let Some(place) = place {
            self.take_place(place);
        }
        is_open
    }

    /// Takes a place at an upstream, until it has answered.
    pub(crate) fn take_place(&self, place: Dispatched) {
        self.has_place.store(true, Relaxed);
        let before = self.state.lock().place.replace(place);
        drop(before);
    }

    /// Takes the place away again, for a leg.
    pub(crate) fn give_place(&self) -> Option<Dispatched> {
        self.state.lock().place.take()
    }

    /// Tells the place that the request goes to another upstream.
    pub(crate) fn move_place(&self, to: usize) {
        if let Some(place) = &self.state.lock().place {
            place.moved(to);
        }
    }

    /// Gives the place at the upstream back. Who waits for it is woken, so nothing is locked meanwhile.
    fn leave_place(&self) {
        if self.has_place.load(Relaxed) {
            let (place, outcome) = {
                let State { place, ledger, .. } = &mut *self.state.lock();
                (place.take(), ledger.ledger().map(|ledger| ledger.outcome))
            };
            if let Some((place, outcome)) = place.zip(outcome) {
                place.ended(outcome);
            }
        }
    }

    /// The upstream window ends at `end`.
    pub(crate) fn end_window(&self, end: Stamp) {
        self.stamps.end_window(end);
        self.leave_place();
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
        let State { ledger, bodies, .. } = &mut *self.state.lock();
        if let Some(ledger) = ledger.ledger() {
            self.set_behind(bodies.on_response_piece(&self.context.observer, ledger, bytes, at));
        }
    }

    /// Lets the reader read the pieces that have passed. Call it once they are on their way.
    pub(crate) fn read_passed(&self) {
        if self.is_behind.load(Relaxed) {
            self.with_reader(BodyReader::read);
        }
    }

    /// Whether the response is complete by its own end mark, as far as it has passed.
    pub(crate) fn is_response_complete(&self) -> bool {
        let mut is_complete = false;
        self.with_reader(|reader| is_complete = reader.is_complete());
        is_complete
    }

    /// The response waited for the client, not for the upstream.
    pub(crate) fn on_client_wait(&self, from: Stamp, to: Stamp) {
        self.state.lock().waits.get_or_insert_default().push(from, to);
    }

    /// The upstream began to answer at `head`. It was given the last request byte at `sent` (`None`: not yet).
    pub(crate) fn begin_window(&self, sent: Option<Stamp>, head: Stamp) {
        self.upload.on_answered();
        self.write_ledger(|ledger| self.stamps.begin_window(ledger, sent, head));
    }

    /// The response's head was read, or Lapwing answers by itself: records status, outcome, and the upstream's reports.
    pub(crate) fn record_response_head(&self, status: StatusCode, headers: &HeaderMap) {
        let content_type = headers.get(header::CONTENT_TYPE).map_or(&[][..], |kind| kind.as_bytes());
        let is_still_asking = self.stamps.request_end().is_none();
        let (observer, counters) = (&self.context.observer, &*self.context.counters);
        let State { ledger, bodies, .. } = &mut *self.state.lock();
        ledger.write(
            || self.count_late(),
            |ledger| {
                if self.is_leg {
                    ledger.outcome = head_outcome(status, headers, content_type).0;
                    return;
                }
                observer.call(Counter::ObserverPanics, |observer| {
                    ledger.status = status.as_u16();
                    observer.response(headers, false, ledger);
                });
                self.set_behind(bodies.on_response_head(observer, counters, (status.as_u16(), headers, content_type)));
                (ledger.outcome, ledger.name_proof) = head_outcome(status, headers, content_type);
                count_pushback(counters, ledger.outcome, headers);
                if is_still_asking && content_type.starts_with(GRPC) {
                    ledger.kind = ExchangeKind::Stream;
                }
            },
        );
    }

    /// The response's trailers were read: records the upstream's reports, and the outcome of a gRPC call.
    pub(crate) fn record_trailers(&self, trailers: &HeaderMap) {
        let (observer, counters) = (&self.context.observer, &*self.context.counters);
        let State { ledger, bodies, .. } = &mut *self.state.lock();
        ledger.write(
            || self.count_late(),
            |ledger| {
                observer.call(Counter::ObserverPanics, |observer| observer.response(trailers, true, ledger));
                self.set_behind(bodies.with_reader(observer, |reader| count_refused(counters, reader.read_trailers(trailers))));
                if let Some((outcome, proof)) = grpc_outcome(trailers) {
                    (ledger.outcome, ledger.name_proof) = (outcome, proof);
                    count_pushback(counters, outcome, trailers);
                }
            },
        );
    }

    /// A spliced stream ended. It carried these many bytes from the client and to it.
    pub(crate) fn on_stream_end(&self, (from_client, to_client): (u64, u64), outcome: Outcome) {
        self.stamps.on_spliced_bytes(from_client, to_client);
        self.write_ledger(|ledger| ledger.outcome = outcome);
    }

    /// Closes the ledger at `now` and hands it to the observer. `carried` writes what its connection saw. Later calls do nothing.
    pub(crate) fn hand_over(&self, now: Stamp, carried: impl FnOnce(&mut Ledger)) {
        self.leave_place();
        let observer = &self.context.observer;
        let state = &mut *self.state.lock();
        let Some(mut ledger) = state.ledger.hand_over() else { return };
        self.write_end(state, &mut ledger, now);
        carried(&mut ledger);
        state.bodies.close(observer, &self.context.counters, &mut ledger);
        for on_close in state.on_close.drain(..) {
            observer.call(Counter::ObserverPanics, |_| on_close.on_close(&mut ledger));
        }
        observer.call(Counter::DroppedPanic, |observer| observer.record(ledger));
    }

    /// A copy of the ledger as it stands at `now`; `None` once it is closed.
    pub(crate) fn ledger_until(&self, now: Stamp) -> Option<Ledger> {
        let state = &*self.state.lock();
        let mut ledger = Ledger::clone(state.ledger.ledger()?);
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

impl AsRef<Self> for RequestAccount {
    fn as_ref(&self) -> &Self {
        self
    }
}

/// Counts an answer that failed and says when to try again: `Retry-After` (RFC 9110, 10.2.3), `grpc-retry-pushback-ms` (gRFC A6).
fn count_pushback(counters: &Counters, outcome: Outcome, fields: &HeaderMap) {
    if outcome == Outcome::Ok {
        return;
    }
    if fields.contains_key(header::RETRY_AFTER) {
        counters.bump(Counter::RetryAfterSeen);
    }
    if fields.contains_key("grpc-retry-pushback-ms") {
        counters.bump(Counter::GrpcPushbackSeen);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::in_flight::fixtures;

    #[test]
    fn an_account_needs_no_connection_and_what_comes_after_its_hand_over_is_counted() {
        let account = fixtures::account();
        let late = || account.context.counters.get(Counter::LateEvents);
        account.annotate(Annotation::SplitWrite);
        account.hand_over(Stamp::now(), |ledger| ledger.status = 200);
        account.hand_over(Stamp::now(), |_| unreachable!("there is one ledger"));
        assert!(account.read_ledger(|_| ()).is_none() && account.ledger_until(Stamp::now()).is_none());
        assert_eq!(late(), 0, "closing twice and reading lose nothing");
        account.annotate(Annotation::FlowControl);
        assert_eq!(late(), 1);
        account.on_stream_end((1, 1), Outcome::Ok);
        assert_eq!(late(), 2);
    }
}
