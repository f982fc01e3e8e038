//! The ledger: what the request path hands over when a request is done. Fixed size, numbers only; no heap but
//! for the pace of a generated answer, and for a prompt whose tokens are still to be counted.
//!
//! Every `_ns` field but the anchor is an offset from the request's start, in nanoseconds.

use std::sync::Arc;

use arrayvec::ArrayVec;

use super::clock::Stamp;
use super::generation::Generation;
use super::identity::{SpanId, TraceId};
use super::names::LabelId;
use super::outcome::{ExchangeKind, Outcome};
use super::prompt::Prompt;
use super::server::Server;
use super::stage::{Phase, Source, Stage};
use super::work::Work;

/// What the proxy saw happen in an observed span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObservedEvent {
    /// The request came in.
    Request,
    /// It was classified and admitted.
    Admit,
    /// It waited behind another request on the same connection.
    Pipelined,
    /// A connection to the upstream was made.
    Connect,
    /// The request was written to the upstream.
    Send,
    /// An attempt that came to nothing.
    Attempt,
    /// The response went out.
    Response,
    /// The response waited for a slow client.
    Backpressure,
}

impl ObservedEvent {
    /// The name on every surface, in lower case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Admit => "admit",
            Self::Pipelined => "pipelined",
            Self::Connect => "connect",
            Self::Send => "send",
            Self::Attempt => "attempt",
            Self::Response => "response",
            Self::Backpressure => "backpressure",
        }
    }
}

/// A named piece of a request's time, observed by the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Who owns the time.
    pub stage: Stage,
    /// What happened.
    pub event: ObservedEvent,
    /// Start, from the request's start.
    pub start_ns: u64,
    /// End, from the request's start; not before the start.
    pub end_ns: u64,
}

/// A duration without a start, which the response itself carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// The stage it was mapped to.
    pub stage: Stage,
    /// The phase of the stage, where it is one.
    pub phase: Option<Phase>,
    /// How long it took.
    pub duration_ns: u64,
    /// What the sender rounds down to: 1,000,000 for whole milliseconds, so that 0 is read as "less than 1 ms".
    pub resolution_ns: u32,
    /// Where in the response it stood; what comes later knows more.
    pub place: ReportPlace,
    /// It is the sum over the request's prompts, and has to be divided by their number before time is shared out.
    pub is_sum: bool,
}

/// Where in a response a report stood, in the order in which they come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReportPlace {
    /// A field of the head.
    Head,
    /// The trailers.
    Trailer,
    /// The body itself: the server's own account of this very answer.
    Body,
}

/// The upstream window: what reports may claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpstreamWindow {
    /// Last request byte handed to the upstream, or the response's first byte if that came earlier.
    pub start_ns: u64,
    /// The response head was read.
    pub head_ns: u64,
    /// Last response byte read.
    pub end_ns: u64,
}

impl UpstreamWindow {
    /// The window's length.
    #[must_use]
    pub const fn length_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }
}

/// What a series is keyed by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SeriesKey {
    /// Method and path with the ids folded.
    pub route: LabelId,
    /// The model, where the protocol names it.
    pub model: LabelId,
    /// The upstream.
    pub upstream: LabelId,
}

/// One request's account as the request path saw it.
#[derive(Clone, Debug)]
pub struct Ledger {
    /// Route, model and upstream.
    pub series: SeriesKey,
    /// Request or long-lived stream.
    pub kind: ExchangeKind,
    /// How it ended.
    pub outcome: Outcome,
    /// The response's status as the client saw it; zero if it saw none.
    pub status: u16,
    /// The trace.
    pub trace: TraceId,
    /// Lapwing's own span: the parent that the upstream was given.
    pub span: SpanId,
    /// The client's span, or zero.
    pub parent: SpanId,
    /// The upstream was told that the trace is sampled, so spans may come.
    pub traced: bool,
    /// The trace is sampled only because Lapwing asked for it.
    pub ours: bool,
    /// The wall clock at the start, in nanoseconds since the Unix epoch.
    pub anchor_unix_ns: u64,
    /// The monotonic clock at the start.
    pub started: Stamp,
    /// First byte of the request to the last byte of the response handed to the socket.
    pub total_ns: u64,
    /// The upstream window; `None` if no upstream took the request.
    pub window: Option<UpstreamWindow>,
    /// What the proxy observed.
    pub spans: ArrayVec<Span, { Self::SPANS }>,
    /// What the response reported.
    pub reports: ArrayVec<Report, { Self::REPORTS }>,
    /// Spans and reports for which there was no room.
    pub overflowed: u32,
    /// What the request asks for.
    pub work: Work,
    /// The pace of a generated answer.
    pub generation: Option<Box<Generation>>,
    /// The prompt, where its tokens are still to be counted.
    pub prompt: Option<Arc<Prompt>>,
    /// Which server answered, where that is known.
    pub server: Option<Server>,
    /// Body bytes from the client.
    pub request_bytes: u64,
    /// Body bytes to the client.
    pub response_bytes: u64,
}

impl Ledger {
    /// How many observed spans a ledger holds.
    pub const SPANS: usize = 14;
    /// How many in-band reports a ledger holds.
    pub const REPORTS: usize = 12;

    /// A ledger that opens at `started`, with nothing in it.
    #[must_use]
    pub fn open(started: Stamp, anchor_unix_ns: u64) -> Self {
        Self {
            series: SeriesKey::default(),
            kind: ExchangeKind::Request,
            outcome: Outcome::Cancelled,
            status: 0,
            trace: TraceId::default(),
            span: SpanId::default(),
            parent: SpanId::default(),
            traced: false,
            ours: false,
            anchor_unix_ns,
            started,
            total_ns: 0,
            window: None,
            spans: ArrayVec::new(),
            reports: ArrayVec::new(),
            overflowed: 0,
            work: Work::default(),
            generation: None,
            prompt: None,
            server: None,
            request_bytes: 0,
            response_bytes: 0,
        }
    }

    /// The offset of `stamp` from the start; zero for stamps before it.
    #[must_use]
    pub const fn offset(&self, stamp: Stamp) -> u64 {
        stamp.since(self.started)
    }

    /// Adds an observed span, from stamp to stamp; counts it as overflowed if there is no room.
    pub fn observe(&mut self, stage: Stage, event: ObservedEvent, start: Stamp, end: Stamp) {
        let span = Span { stage, event, start_ns: self.offset(start), end_ns: self.offset(end.max(start)) };
        if self.spans.try_push(span).is_err() {
            self.overflowed += 1;
        }
    }

    /// Adds an in-band report; counts it as overflowed if there is no room.
    pub fn report(&mut self, report: Report) {
        if self.reports.try_push(report).is_err() {
            self.overflowed += 1;
        }
    }
}

impl Report {
    /// A report of a whole stage, as exact as the clock.
    #[must_use]
    pub const fn of(stage: Stage, duration_ns: u64, place: ReportPlace) -> Self {
        Self { stage, phase: None, duration_ns, resolution_ns: 1, place, is_sum: false }
    }
}

impl Span {
    /// Observed spans have one source.
    pub const SOURCE: Source = Source::Observed;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_is_as_small_as_the_documents_say() {
        assert_eq!(size_of::<Ledger>(), 760);
    }
}
