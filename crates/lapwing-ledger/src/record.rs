//! The ledger: what the request path hands over when a request is done. It has a bounded size and holds numbers only; the token
//! timing of a generated answer, a prompt whose tokens are to be counted, names that are in no table, trace contexts other than
//! `traceparent`, and more spans or reports than most requests have are the only heap allocations. Many ledgers are kept, and each new one takes memory that the processor's caches have
//! lost meanwhile: the smaller it is, the less a request waits for it.
//!
//! Every `_ns` field except the anchor is an offset from the request's start, in nanoseconds.

use std::num::NonZeroU32;
use std::sync::Arc;

use arrayvec::ArrayVec;
use smallvec::SmallVec;

use super::circumstances::Circumstances;
use super::clock::Stamp;
use super::deadline::Deadline;
use super::generation::Generation;
use super::identity::{PassedContext, SpanId, TraceId};
use super::names::LabelId;
use super::naming::{NameProof, NewNames};
use super::observed_event::ObservedEvent;
use super::outcome::{ExchangeKind, Outcome};
use super::pair::{CopyCause, PairId};
use super::prompt::Prompt;
use super::served_by::ServedBy;
use super::server::{Server, ServerEvidence, ServerField};
use super::stage::{Phase, Source, Stage};
use super::work::Work;

/// A named piece of a request's time that the proxy observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The stage that owns the time.
    pub stage: Stage,
    /// The event.
    pub event: ObservedEvent,
    /// Start, from the request's start.
    pub start_ns: u64,
    /// End, from the request's start; not before the start.
    pub end_ns: u64,
}

/// A duration without a start, carried by the response itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// The stage it was mapped to.
    pub stage: Stage,
    /// The phase of the stage, if it has one.
    pub phase: Option<Phase>,
    /// The duration, in nanoseconds.
    pub duration_ns: u64,
    /// The step that the sender rounds down to, in nanoseconds: 1,000,000 for whole milliseconds, so that 0 means "less than 1
    /// ms".
    pub resolution_ns: u32,
    /// Where in the response it was; a later place knows more.
    pub place: ReportPlace,
    /// Whether it is the sum over the request's prompts, which has to be divided by their number before time is assigned.
    pub is_sum: bool,
}

/// The place of a report in a response, in order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReportPlace {
    /// A header field.
    Head,
    /// A trailer field.
    Trailer,
    /// The body: the server's own account of this answer.
    Body,
}

/// The upstream window: the time that reports may claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpstreamWindow {
    /// The last request byte was handed to the upstream, or the first response byte arrived if that was earlier.
    pub start_ns: u64,
    /// The response head was read.
    pub head_ns: u64,
    /// The last response byte was read.
    pub end_ns: u64,
}

impl UpstreamWindow {
    /// The window's length, in nanoseconds.
    #[must_use]
    #[inline]
    pub const fn length_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }

    /// How much a report or span may exceed the window without fault, in nanoseconds: clocks are read at different places, and a
    /// server ends its span after its last byte.
    #[must_use]
    #[inline]
    pub fn tolerance_ns(&self) -> u64 {
        (self.length_ns() / 100).max(1_000_000)
    }
}

/// The key of a series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SeriesKey {
    /// Method and path, with ids replaced by placeholders.
    pub route: LabelId,
    /// The model, if the protocol names it.
    pub model: LabelId,
    /// The upstream.
    pub upstream: LabelId,
}

/// The account of one request as the request path recorded it.
///
/// ```
/// use lapwing_ledger::{Ledger, ObservedEvent, Report, ReportPlace, Stage, Stamp};
/// let started = Stamp::default();
/// let mut ledger = Ledger::open(started, 0);
/// // the proxy observed 2 µs of ingress, and the response reported 300 µs of forward
/// ledger.observe(Stage::Ingress, ObservedEvent::Request, started, started.plus(2_000));
/// ledger.report(Report::of(Stage::Forward, 300_000, ReportPlace::Head));
/// ledger.total_ns = ledger.offset(started.plus(350_000));
/// assert_eq!(ledger.spans[0].end_ns, 2_000);
/// assert_eq!((ledger.total_ns, ledger.reports.len(), ledger.overflowed), (350_000, 1, 0));
/// ```
#[derive(Clone, Debug)]
pub struct Ledger {
    /// Route, model and upstream.
    pub series: SeriesKey,
    /// Names that no table had when the request came; their places in `series` are `other` until the answer has proved them.
    pub new_names: Option<Box<NewNames>>,
    /// What the answer says about the names.
    pub name_proof: NameProof,
    /// Request or long-lived stream.
    pub kind: ExchangeKind,
    /// How it ended.
    pub outcome: Outcome,
    /// The status that the client received; zero if it received none.
    pub status: u16,
    /// The trace.
    pub trace: TraceId,
    /// Lapwing's own span, which is the parent given to the upstream.
    pub span: SpanId,
    /// The client's span, or zero.
    pub parent: SpanId,
    /// Contexts that the upstream may continue instead; `None` for most requests.
    pub passed_contexts: Option<Box<ArrayVec<PassedContext, 5>>>,
    /// The context passed to the upstream says that the trace is sampled, so it may send spans.
    pub traced: bool,
    /// The trace is sampled only because Lapwing asked for it.
    pub ours: bool,
    /// Whether it is a copy of a client's request, sent to a shadow target.
    pub is_copy: bool,
    /// Whose answer it was given.
    pub served_by: ServedBy,
    /// Why copies of it go to shadow targets; `None` if none do.
    pub copied: Option<CopyCause>,
    /// Whether a recording waits for its account.
    pub is_recorded: bool,
    /// What a client's request and its copies, or its record, have in common.
    pub pair: Option<PairId>,
    /// Of which of its keys a live split chose the upstream, as a number; `None` if none did, or its choice could not be kept.
    pub split_key: Option<NonZeroU32>,
    /// The wall clock at the start, in nanoseconds since the Unix epoch. The request path leaves it at zero; the code that takes the ledger
    /// reads the clock once for many.
    pub anchor_unix_ns: u64,
    /// The monotonic clock at the start.
    pub started: Stamp,
    /// From the first byte of the request to the last byte of the response handed to the socket.
    pub total_ns: u64,
    /// How long it may take, if anybody says so.
    pub deadline: Option<Deadline>,
    /// The upstream window; `None` if no upstream took the request.
    pub window: Option<UpstreamWindow>,
    /// Spans that the proxy observed: [`Self::SPANS`] at most.
    pub spans: SmallVec<[Span; 4]>,
    /// Reports in the response: [`Self::REPORTS`] at most.
    pub reports: SmallVec<[Report; 4]>,
    /// Spans and reports that were dropped because there was no room; the greatest number stands for more.
    pub overflowed: u16,
    /// What the request asks for.
    pub work: Work,
    /// The read that brought the first byte of a streamed response's body; zero if the response is no stream or has no body.
    pub first_byte_ns: u64,
    /// Token timing of a generated answer.
    pub generation: Option<Box<Generation>>,
    /// The prompt, if its tokens are still to be counted.
    pub prompt: Option<Arc<Prompt>>,
    /// The server that answered, if it is known.
    pub server: Option<Server>,
    /// What showed that it is this server; `None` if the exchange itself did not.
    pub server_evidence: Option<ServerEvidence>,
    /// The `Server` field of the response's head.
    pub server_field: ServerField,
    /// What was seen in addition to its time.
    pub circumstances: Circumstances,
    /// Body bytes from the client.
    pub request_bytes: u64,
    /// Body bytes to the client.
    pub response_bytes: u64,
}

impl Ledger {
    /// The most observed spans that a ledger holds.
    pub const SPANS: usize = 14;
    /// The most in-band reports that a ledger holds.
    pub const REPORTS: usize = 12;

    /// An empty ledger that opens at `started`.
    #[must_use]
    pub fn open(started: Stamp, anchor_unix_ns: u64) -> Self {
        Self {
            series: SeriesKey::default(),
            new_names: None,
            name_proof: NameProof::Unproven,
            kind: ExchangeKind::Request,
            outcome: Outcome::Cancelled,
            status: 0,
            trace: TraceId::default(),
            span: SpanId::default(),
            parent: SpanId::default(),
            passed_contexts: None,
            traced: false,
            ours: false,
            is_copy: false,
            served_by: ServedBy::Upstream,
            copied: None,
            is_recorded: false,
            pair: None,
            split_key: None,
            anchor_unix_ns,
            started,
            total_ns: 0,
            deadline: None,
            window: None,
            spans: SmallVec::new(),
            reports: SmallVec::new(),
            overflowed: 0,
            work: Work::default(),
            first_byte_ns: 0,
            generation: None,
            prompt: None,
            server: None,
            server_evidence: None,
            server_field: ServerField::default(),
            circumstances: Circumstances::default(),
            request_bytes: 0,
            response_bytes: 0,
        }
    }

    /// The offset of `stamp` from the start, in nanoseconds; zero for an earlier stamp.
    #[must_use]
    #[inline]
    pub const fn offset(&self, stamp: Stamp) -> u64 {
        stamp.since(self.started)
    }

    /// The upstream window inside the request, with its points in order; empty if there is none.
    #[must_use]
    #[inline]
    pub fn bounded_window(&self) -> UpstreamWindow {
        let window = self.window.unwrap_or_default();
        let start_ns = window.start_ns.min(self.total_ns);
        let end_ns = window.end_ns.clamp(start_ns, self.total_ns);
        UpstreamWindow { start_ns, head_ns: window.head_ns.clamp(start_ns, end_ns), end_ns }
    }

    /// Adds an observed span, or counts it as overflowed if there is no room.
    #[inline]
    pub fn observe(&mut self, stage: Stage, event: ObservedEvent, start: Stamp, end: Stamp) {
        let span = Span { stage, event, start_ns: self.offset(start), end_ns: self.offset(end.max(start)) };
        if self.spans.len() < Self::SPANS {
            self.spans.push(span);
        } else {
            self.overflowed = self.overflowed.saturating_add(1);
        }
    }

    /// Adds an in-band report, or counts it as overflowed if there is no room.
    #[inline]
    pub fn report(&mut self, report: Report) {
        if self.reports.len() < Self::REPORTS {
            self.reports.push(report);
        } else {
            self.overflowed = self.overflowed.saturating_add(1);
        }
    }

    /// Whether the answer proves that route and model are real, so that they may become series. A copy's answer proves it only by
    /// success: what a shadow target fails at may be unknown to the upstream too.
    #[must_use]
    #[inline]
    pub const fn proves_names(&self) -> bool {
        let has_content = match self.name_proof {
            NameProof::Unproven => false,
            NameProof::WithContent => self.response_bytes > 0,
            NameProof::Proven => true,
        };
        has_content && self.window.is_some() && !(self.is_copy && self.status >= 500)
    }

    /// Keeps the model's name until the answer has proved it.
    #[inline]
    pub fn name_new_model(&mut self, name: &str) {
        self.new_names.get_or_insert_default().model = Some(name.into());
    }
}

impl Report {
    /// A report of a whole stage with the precision of a clock.
    #[must_use]
    #[inline]
    pub const fn of(stage: Stage, duration_ns: u64, place: ReportPlace) -> Self {
        Self { stage, phase: None, duration_ns, resolution_ns: 1, place, is_sum: false }
    }
}

impl Span {
    /// The source of observed spans.
    pub const SOURCE: Source = Source::Observed;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_is_as_small_as_the_documents_say() {
        assert_eq!(size_of::<Ledger>(), 488);
    }

    fn closed(status: u16, proof: NameProof) -> Ledger {
        Ledger { status, name_proof: proof, window: Some(UpstreamWindow::default()), ..Ledger::open(Stamp::default(), 0) }
    }

    #[test]
    fn success_and_failure_of_the_upstream_prove_names() {
        let proves = |status| closed(status, NameProof::of_status(status)).proves_names();
        assert!([101, 200, 206, 299, 500, 503, 599].into_iter().all(proves));
        assert!(![0, 100, 301, 304, 400, 401, 404, 405, 429, 499, 600].into_iter().any(proves));
        assert!(!Ledger { window: None, ..closed(503, NameProof::Proven) }.proves_names(), "Lapwing's own answer");
        let copy = |status| Ledger { is_copy: true, ..closed(status, NameProof::of_status(status)) }.proves_names();
        assert_eq!([copy(200), copy(502)], [true, false]);
    }

    #[test]
    fn grpc_calls_prove_names_by_their_status_or_by_content() {
        let proven = |code| NameProof::of_grpc(code) == NameProof::Proven;
        assert!([0, 2, 4, 8, 10, 13, 14, 15].into_iter().all(proven));
        assert!(![3, 5, 12, 16].into_iter().any(proven));
        let cut = closed(200, NameProof::WithContent);
        assert!(!cut.proves_names());
        assert!(Ledger { response_bytes: 5, ..cut }.proves_names());
    }
}
