//! One exchange that waits, and what has come for it.

use lapwing_ledger::{Ledger, Outcome, SpanId, Stamp};

use super::super::shapes::{MissingSpans, SpanMark, SpanSet, SpanShape};
use super::super::span::{IncomingSpan, SpanKind};

/// A closed ledger, and the spans that have come for it.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) ledger: Box<Ledger>,
    pub(crate) deadline: Stamp,
    pub(crate) due: Stamp,
    /// When its last span arrived.
    pub(crate) last: Stamp,
    /// Whether the upstream has finished with it, as far as its spans show. See [`Waiting::tells_the_end`].
    pub(crate) is_ended: bool,
    /// When it closed.
    pub(crate) closed: Stamp,
    pub(crate) spans: Vec<IncomingSpan>,
    /// What is known about each of its spans.
    pub(crate) marks: Vec<SpanMark>,
}

impl Waiting {
    pub(crate) fn set(&self) -> SpanSet<'_> {
        SpanSet { series: self.ledger.series, own: self.ledger.span, closed: self.closed, marks: &self.marks }
    }

    /// Whether `span`, which joins this exchange, ends after everything the upstream does for it: its server span, or any span
    /// with others below it (a span is known to be ours only once the spans above it have arrived). A single span below our own
    /// that is neither may be one of several, and the others may be in the exporter's next batch.
    pub(crate) fn tells_the_end(&self, span: &IncomingSpan) -> bool {
        span.parent != Some(self.ledger.span) || matches!(span.kind, SpanKind::Server | SpanKind::Consumer)
    }
}

/// Whether an exchange counts as incomplete. A handler that failed or was cancelled skips stages for a reason.
pub(crate) fn is_incomplete(ledger: &Ledger, missing: MissingSpans) -> bool {
    missing.is_incomplete && ledger.outcome == Outcome::Ok
}

/// What the wait depends on, of a span that joins the exchange whose own span is `own`.
pub(crate) fn mark(span: &IncomingSpan, own: SpanId, came: Stamp) -> SpanMark {
    let is_call = matches!(span.kind, SpanKind::Client | SpanKind::Producer) && !span.is_store_call;
    let waits = span.server.as_ref().is_some_and(|server| server.waits_from_unix_ns.is_some());
    let (id, parent, shape) = (span.span, span.parent.unwrap_or(own), SpanShape::of(span));
    SpanMark { id, parent, shape, process: span.process, came, calls: is_call || waits }
}
