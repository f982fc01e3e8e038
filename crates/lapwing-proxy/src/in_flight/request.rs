//! A request in flight, put together: its account (who measures and observes), and what carries it: the client's connection, and what the
//! requests of a worker share. It opens the account, and decides when it closes: by the flush of its last bytes, by the last piece that hyper
//! drops (HTTP/2), or by the guard of a response that was dropped early.
//!
//! What takes a request in flight takes a part of it, such as the [`RequestAccount`], or names what it needs by a trait of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use http::HeaderMap;

use super::account::RequestAccount;
use super::client_expects::ClientExpects;
use super::context::{RequestContext, WorkerParts};
use super::observer::OnClose;
use crate::connection::{BodyArrival, ClientWaits, ConnectionStamps, OnFlush, SocketMeter};
use lapwing_ledger::{Annotation, Ledger, ObservedEvent, Outcome, Stage, Stamp};
use lapwing_metrics::{Counter, RequestGeneration};
use lapwing_tower::account::GuardedAccount;

/// Has the end of a request in flight in hand.
pub(crate) type AccountGuard<M = SocketMeter> = lapwing_tower::account::AccountGuard<InFlight<M>>;

/// A request in flight.
#[derive(Debug)]
pub(crate) struct InFlight<M = SocketMeter> {
    pub(crate) account: RequestAccount,
    pub(crate) worker: Arc<WorkerParts>,
    pub(crate) meter: Arc<M>,
    /// Whether requests share the connection (HTTP/2).
    pub(crate) is_multiplexed: bool,
    pub(crate) client: ClientExpects,
    generation: RequestGeneration,
    /// Pieces of the response that hyper still holds (HTTP/2).
    held: AtomicU32,
    /// A piece of the response was thrown away: the client reset the stream (HTTP/2).
    is_cut: AtomicBool,
    /// Nothing more that its upstream says goes to the client.
    is_silent: AtomicBool,
    finished: AtomicBool,
    closed: AtomicBool,
}

impl<M> AsRef<RequestAccount> for InFlight<M> {
    fn as_ref(&self) -> &RequestAccount {
        &self.account
    }
}

impl<M: ConnectionStamps> InFlight<M> {
    /// Opens a ledger that began at `started`. The whole head has been read by now.
    pub(crate) fn open(
        context: Arc<RequestContext>,
        worker: Arc<WorkerParts>,
        meter: Arc<M>,
        started: Stamp,
        is_multiplexed: bool,
    ) -> Arc<Self> {
        let called = Stamp::now();
        // made where it stays, not made and copied
        let mut ledger = Box::write(Box::new_uninit(), Ledger::open(started, 0));
        let seen = &mut ledger.circumstances;
        seen.in_flight = u32::try_from(context.counters.raise(Counter::InFlight)).unwrap_or(u32::MAX);
        if meter.on_request_opened() {
            seen.annotations.add(Annotation::NewClientConnection);
        }
        let generation = context.counters.open_requests().begin();
        Arc::new(Self {
            account: RequestAccount::new(context, ledger, called),
            worker,
            meter,
            is_multiplexed,
            client: ClientExpects::default(),
            generation,
            held: AtomicU32::new(0),
            is_cut: AtomicBool::new(false),
            is_silent: AtomicBool::new(false),
            finished: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        })
    }

    /// The same request as it goes to one of two upstreams, with an account of its own; `None` if the request has ended.
    pub(crate) fn leg(&self) -> Option<Arc<Self>> {
        Some(Arc::new(Self {
            account: self.account.leg()?,
            worker: self.worker.clone(),
            meter: self.meter.clone(),
            is_multiplexed: self.is_multiplexed,
            client: ClientExpects::default(),
            generation: self.generation,
            held: AtomicU32::new(0),
            is_cut: AtomicBool::new(false),
            is_silent: AtomicBool::new(false),
            // the request ends, and no leg of it
            finished: AtomicBool::new(true),
            closed: AtomicBool::new(true),
        }))
    }

    /// Writes into the ledger; `None`, and counted, if it was handed over.
    pub(crate) fn write_ledger<T>(&self, write: impl FnOnce(&mut Ledger) -> T) -> Option<T> {
        self.account.write_ledger(write)
    }

    /// Reads the ledger; `None` if it was handed over.
    pub(crate) fn read_ledger<T>(&self, read: impl FnOnce(&Ledger) -> T) -> Option<T> {
        self.account.read_ledger(read)
    }

    /// Has `on_close` called when the ledger closes.
    pub(crate) fn add_on_close(&self, on_close: Box<dyn OnClose>) {
        self.account.add_on_close(on_close);
    }

    /// Adds the load report that the client asked for and was not given yet.
    pub(crate) fn add_load_report(&self, fields: &mut HeaderMap) {
        if let Some(format) = self.client.take_load_report() {
            format.add(fields, &self.account.context.counters);
        }
    }

    /// `n` bytes of the request body were read. Returns when.
    pub(crate) fn on_request_bytes(&self, n: usize) -> Stamp {
        let read = self.request_read();
        self.account.stamps.on_request_bytes(n, read);
        read
    }

    /// The request body was read to its end, with its last bytes `at`; `None`: its end came alone, now.
    pub(crate) fn on_request_end(&self, at: Option<Stamp>) {
        self.account.stamps.on_request_end(at.unwrap_or_else(|| self.request_read()));
        self.meter.on_message_read();
    }

    /// When what was just given of the request was read: over HTTP/1.1 by the connection's reads, over HTTP/2, where requests share one, by
    /// the clock.
    fn request_read(&self) -> Stamp {
        let read = if self.is_multiplexed { None } else { self.meter.last_read() };
        read.unwrap_or_else(Stamp::now)
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
        self.close_early(Outcome::Cancelled);
    }

    /// Closes the ledger with this outcome, unless it is closed.
    fn close_early(&self, outcome: Outcome) {
        // guards are dropped after it was closed, too
        if !self.closed.load(Relaxed) {
            self.write_ledger(|ledger| ledger.outcome = outcome);
            self.close(Stamp::now());
        }
    }

    /// Closes the ledger at `now` and hands it over. Later calls do nothing.
    pub(crate) fn close(&self, now: Stamp) {
        if self.closed.swap(true, Relaxed) {
            return;
        }
        self.finished.store(true, Relaxed);
        let counters = &self.account.context.counters;
        counters.sub(Counter::InFlight, 1);
        self.meter.on_request_closed();
        self.account.hand_over(now, |ledger| self.write_connection(ledger, now));
        // last: whoever sees that the request has ended finds its ledger in the queue
        counters.open_requests().end(self.generation);
    }

    /// Writes into the ledger, which closes at `now`, what the connection saw.
    fn write_connection(&self, ledger: &mut Ledger, now: Stamp) {
        if !self.is_multiplexed {
            if self.account.stamps.request_end().is_none() {
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
    }
}

impl InFlight {
    /// It is a leg that was not the first to answer: nothing more of it goes to the client.
    pub(crate) fn silence(&self) {
        self.is_silent.store(true, Relaxed);
    }

    /// Whether nothing more of it goes to the client.
    pub(crate) fn is_silent(&self) -> bool {
        self.is_silent.load(Relaxed)
    }

    /// The answer says that the client's connection ends after it.
    pub(crate) fn close_client(&self) {
        self.client.close();
        if self.is_multiplexed {
            self.meter.has_failed.store(true, Relaxed);
        }
    }

    /// What was left of the request after its answer was read and thrown away.
    pub(crate) fn on_rest_drained(&self) {
        // the next request's head may have been read meanwhile
        if !self.closed.load(Relaxed) || self.meter.open.load(Relaxed) == 0 {
            self.on_request_end(None);
        }
    }

    /// Hyper was given bytes of the response at `handed` and had not written all of them at `now` (HTTP/2). Notes it if they waited for
    /// the client's window rather than for its socket.
    pub(crate) fn note_flow_control(&self, handed: Stamp, now: Stamp) {
        if self.meter.was_quiet(handed, now) {
            self.account.annotate(Annotation::FlowControl);
        }
    }

    /// The body of the request came in this way (HTTP/1.1).
    pub(crate) fn on_request_body(&self, arrival: BodyArrival) {
        let BodyArrival::Apart { is_acknowledged } = arrival else { return };
        let is_by_agreement = self.write_ledger(|ledger| {
            let annotations = &mut ledger.circumstances.annotations;
            // who asks for "100 Continue" sends the body later on purpose, and our answer acknowledges the head
            let is_by_agreement = annotations.has(Annotation::ExpectContinue);
            if !is_by_agreement {
                annotations.add(Annotation::SplitRequest);
            }
            is_by_agreement
        });
        if is_acknowledged && is_by_agreement != Some(true) {
            self.account.context.counters.bump(Counter::QuickAcksClient);
        }
    }

    /// Hyper is given a piece of the response. It drops the returned handle with the piece.
    pub(crate) fn hold_piece(self: &Arc<Self>) -> Arc<Self> {
        self.held.fetch_add(1, Relaxed);
        self.clone()
    }

    /// Hyper dropped a piece. The last piece of a finished response ends the exchange: now, if the socket took it; at the
    /// next flush, if a buffer did. A piece that is not `whole` was thrown away: the client reset the stream.
    pub(crate) fn release_piece(&self, whole: bool, written: bool) {
        let is_last = self.held.fetch_sub(1, Relaxed) == 1;
        if !whole {
            self.is_cut.store(true, Relaxed);
        }
        if !self.is_finished() {
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
}

impl<M: ConnectionStamps> OnFlush for InFlight<M> {
    fn is_held(&self) -> bool {
        self.held.load(Relaxed) > 0
    }

    fn on_flushed(&self, at: Stamp) {
        self.close(at);
    }

    fn on_lost(&self) {
        self.cancel();
    }
}

impl<M: ConnectionStamps> GuardedAccount for InFlight<M> {
    /// Closes the ledger if the guard is dropped before [`InFlight::finish`] was called: as cancelled, unless the response was
    /// complete by its own end mark (such as `data: [DONE]`, an error, or the last frame of gRPC-Web and Connect), and the client was
    /// given all of it. Clients leave at such a mark, and do not wait for the end of the body. If a layer panicked, it is not the client
    /// that left: the exchange is broken.
    fn on_abandoned(self: &Arc<Self>, has_panicked: bool) {
        if self.is_finished() {
            return;
        }
        if has_panicked {
            return self.close_early(Outcome::Broken);
        }
        if self.account.is_response_complete() && !self.is_cut.load(Relaxed) {
            // the client has all it asked for, and left without waiting for the body's end
            if self.is_held() {
                self.finish(); // unless it left before the rest was written
            } else {
                self.close(Stamp::now());
            }
        } else {
            self.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::in_flight::fixtures;

    fn names(ledger: &Ledger) -> Vec<&'static str> {
        ledger.circumstances.annotations.iter().map(Annotation::name).collect()
    }

    #[test]
    fn the_end_of_a_guard_after_the_hand_over_is_no_late_event() {
        let in_flight = fixtures::in_flight();
        in_flight.close(Stamp::now());
        in_flight.close(Stamp::now());
        in_flight.cancel();
        assert!(in_flight.read_ledger(|_| ()).is_none());
        assert_eq!(in_flight.account.context.counters.get(Counter::LateEvents), 0);
    }

    #[derive(Debug)]
    struct TellOutcome(std::sync::mpsc::Sender<Outcome>);

    impl OnClose for TellOutcome {
        fn on_close(self: Box<Self>, ledger: &mut Ledger) {
            self.0.send(ledger.outcome).unwrap();
        }
    }

    #[test]
    fn a_panic_is_no_cancellation() {
        for (has_panicked, outcome) in [(false, Outcome::Cancelled), (true, Outcome::Broken)] {
            let in_flight = fixtures::in_flight();
            let (tell, told) = std::sync::mpsc::channel();
            in_flight.add_on_close(Box::new(TellOutcome(tell)));
            in_flight.on_abandoned(has_panicked);
            assert_eq!(told.try_recv(), Ok(outcome));
        }
    }

    #[test]
    fn the_first_request_of_a_connection_is_new_and_counts_itself() {
        let first = fixtures::in_flight();
        let (context, worker, meter) = (first.account.context.clone(), first.worker.clone(), first.meter.clone());
        assert_eq!(
            first.read_ledger(|ledger| (names(ledger), ledger.circumstances.in_flight)),
            Some((vec!["new_client_connection"], 1))
        );
        let second = InFlight::open(context, worker, meter, Stamp::now(), false);
        assert_eq!(second.read_ledger(|ledger| (names(ledger), ledger.circumstances.in_flight)), Some((vec![], 2)));
    }

    #[test]
    fn a_split_request_is_noted_unless_the_client_waits_for_100_continue() {
        let apart = BodyArrival::Apart { is_acknowledged: true };
        for (expects, arrival, annotation, count) in [
            (false, BodyArrival::WithHead, None, 0),
            (false, BodyArrival::Apart { is_acknowledged: false }, Some("split_request"), 0),
            (false, apart, Some("split_request"), 1),
            (true, apart, Some("expect_continue"), 0),
        ] {
            let in_flight = fixtures::in_flight();
            if expects {
                in_flight.account.annotate(Annotation::ExpectContinue);
            }
            in_flight.on_request_body(arrival);
            let noted = in_flight.read_ledger(names).unwrap();
            assert_eq!(noted.first().copied().filter(|name| *name != "new_client_connection"), annotation);
            assert_eq!(in_flight.account.context.counters.get(Counter::QuickAcksClient), count);
        }
    }
}
