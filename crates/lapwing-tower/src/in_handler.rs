//! A request in its handler: the open ledger, and who may write into it until it closes, exactly once.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use http::{HeaderMap, Response, StatusCode, header};
use parking_lot::Mutex;

use crate::account::{AccountGuard, GuardedAccount};
use crate::outcome::{GRPC, grpc_outcome, head_outcome};
use crate::recording::{RecordLedger, Recording};
use lapwing_ledger::{ExchangeKind, Ledger, ObservedEvent, OpenLedger, Outcome, Span, Stage, Stamp, UpstreamWindow};
use lapwing_metrics::Counter;

/// The most spans of a request; further ones are counted as overflowed, and their time stays with the stage around them.
const SPANS: usize = 128;
/// The most waits for the client among them.
const WAITS: usize = 32;
/// A shorter wait for the client is none: hyper takes that long to ask for the next piece.
const SHORTEST_WAIT_NS: u64 = 100_000;

/// A request between the layer's call and the end of its response's body.
#[derive(Debug)]
pub struct InHandler {
    ledger: Mutex<OpenLedger>,
    recording: Arc<Recording>,
    has_read_request: AtomicBool,
}

impl InHandler {
    /// Opens a ledger at `called`, for a request that has been read in full if `has_read_request`.
    pub(crate) fn open(recording: Arc<Recording>, ledger: Box<Ledger>, has_read_request: bool) -> Arc<Self> {
        recording.counters.raise(Counter::InFlight);
        Arc::new(Self {
            ledger: Mutex::new(OpenLedger::new(ledger)),
            recording,
            has_read_request: AtomicBool::new(has_read_request),
        })
    }

    /// Writes into the ledger; a write after its end is counted.
    pub(crate) fn write<T>(&self, write: impl FnOnce(&mut Ledger, &Recording) -> T) -> Option<T> {
        let count_late = || self.recording.counters.bump(Counter::LateEvents);
        self.ledger.lock().write(count_late, |ledger| write(ledger, &self.recording))
    }

    /// Writes what the layer itself saw. What it sees after the end, such as a body that is read on, is no part of the request.
    fn observe(&self, write: impl FnOnce(&mut Ledger)) {
        self.ledger.lock().write(|| (), write);
    }

    /// Marks the time of a stage. What is no work of a handler claims nothing.
    pub(crate) fn mark(&self, stage: Stage, from: Stamp, to: Stamp) {
        if matches!(stage, Stage::Upstream | Stage::Unattributed) {
            return;
        }
        self.write(|ledger, _| push(ledger, SPANS, stage, ObservedEvent::Marked, from, to));
    }

    /// The layer waited for the client.
    fn wait(&self, stage: Stage, event: ObservedEvent, from: Stamp, to: Stamp) {
        if to.since(from) < SHORTEST_WAIT_NS {
            return;
        }
        self.observe(|ledger| {
            let waits = ledger.spans.iter().filter(|span| span.event != ObservedEvent::Marked).count();
            push(ledger, if waits < WAITS { SPANS } else { 0 }, stage, event, from, to);
        });
    }

    /// The request's body did not come between these times.
    pub(crate) fn on_request_wait(&self, from: Stamp, to: Stamp) {
        self.wait(Stage::Ingress, ObservedEvent::Request, from, to);
    }

    /// The response's body was not asked for between these times.
    pub(crate) fn on_response_wait(&self, from: Stamp, to: Stamp) {
        self.wait(Stage::Egress, ObservedEvent::Response, from, to);
    }

    /// The handler read so many bytes of the request's body.
    pub(crate) fn on_request_bytes(&self, n: usize) {
        self.observe(|ledger| ledger.request_bytes += n as u64);
    }

    /// The handler read the request's body to its end, or to its failure.
    pub(crate) fn on_request_end(&self) {
        self.has_read_request.store(true, Relaxed);
    }

    /// The server took so many bytes of the response's body; `is_stream` if their number was not known before.
    pub(crate) fn on_response_bytes(&self, n: usize, is_stream: bool, at: Stamp) {
        self.observe(|ledger| {
            if is_stream && ledger.response_bytes == 0 && n > 0 {
                ledger.first_byte_ns = ledger.offset(at);
            }
            ledger.response_bytes += n as u64;
        });
    }

    /// The handler answered: status and outcome, as far as the head says.
    pub(crate) fn on_head<B>(&self, response: &Response<B>, now: Stamp) {
        let status = response.status();
        let content_type = response.headers().get(header::CONTENT_TYPE).map_or(&[][..], |kind| kind.as_bytes());
        let is_still_asking = !self.has_read_request.load(Relaxed);
        self.observe(|ledger| {
            let head_ns = ledger.offset(now);
            ledger.window = Some(UpstreamWindow { start_ns: 0, head_ns, end_ns: head_ns });
            ledger.status = status.as_u16();
            (ledger.outcome, ledger.name_proof) = head_outcome(status, response.headers(), content_type);
            let is_grpc_stream = content_type.starts_with(GRPC) && is_still_asking;
            if is_grpc_stream || status == StatusCode::SWITCHING_PROTOCOLS {
                ledger.kind = ExchangeKind::Stream;
            }
        });
    }

    /// The response ended with these trailers.
    pub(crate) fn on_trailers(&self, trailers: &HeaderMap) {
        if let Some((outcome, proof)) = grpc_outcome(trailers) {
            self.observe(|ledger| (ledger.outcome, ledger.name_proof) = (outcome, proof));
        }
    }

    /// What is marked so far, as the value of a `Server-Timing` field; `None` if that is nothing.
    pub(crate) fn server_timing(&self, now: Stamp) -> Option<String> {
        let account = self.ledger.lock().observed_until(now)?;
        Some(account.server_timing(|stage| !matches!(stage, Stage::Ingress | Stage::Egress | Stage::Unattributed)))
            .filter(|text| !text.is_empty())
    }

    /// Closes the ledger and hands it over. `outcome` is how it ended, where that is not what the answer says. Later calls do nothing.
    pub(crate) fn close(&self, outcome: Option<Outcome>, now: Stamp) {
        let closed = self.ledger.lock().hand_over();
        let Some(mut ledger) = closed else { return };
        ledger.outcome = outcome.unwrap_or(ledger.outcome);
        let end_ns = ledger.offset(now);
        ledger.total_ns = end_ns;
        ledger.window.get_or_insert(UpstreamWindow { start_ns: 0, head_ns: end_ns, end_ns }).end_ns = end_ns;
        self.recording.counters.sub(Counter::InFlight, 1);
        self.recording.record(ledger);
    }
}

impl GuardedAccount for InHandler {
    fn on_abandoned(self: &Arc<Self>, has_panicked: bool) {
        self.close(Some(if has_panicked { Outcome::Broken } else { Outcome::Cancelled }), Stamp::now());
    }
}

impl AccountGuard<InHandler> {
    /// Closes the ledger.
    pub(crate) fn close(&mut self, outcome: Option<Outcome>, now: Stamp) {
        if let Some(account) = self.release() {
            account.close(outcome, now);
        }
    }
}

fn push(ledger: &mut Ledger, most: usize, stage: Stage, event: ObservedEvent, from: Stamp, to: Stamp) {
    if ledger.spans.len() >= most {
        ledger.overflowed = ledger.overflowed.saturating_add(1);
        return;
    }
    let (start_ns, end_ns) = (ledger.offset(from), ledger.offset(to.max(from)));
    ledger.spans.push(Span { stage, event, start_ns, end_ns });
}
