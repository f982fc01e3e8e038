//! The aggregator: takes closed ledgers and received spans, and returns merged exchanges. One thread owns it; time is passed in
//! as stamps.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use lapwing_ledger::{ClippedReports, Exchange, LabelId, Ledger, ServerEvidence, Stamp, TracedSpan, Unit, Work, merge};
use lapwing_metrics::{Counter, Counters};
use lapwing_protocol::trace_context::LearntContexts;

use super::cache_hit;
use super::clocks::ProcessClocks;
use super::join_settings::JoinSettings;
use super::pending::Pending;
use super::span::IncomingSpan;
use super::tree;

/// Turns a ledger and its spans into an exchange.
pub type MergeFn = fn(Box<Ledger>, Vec<TracedSpan>) -> Exchange;

/// Joins and merges. Every ledger that goes in comes out of a sink exactly once, unless merging it or the sink panics; then it is
/// counted as dropped, and the others continue.
#[derive(Debug)]
pub struct Aggregator<M = MergeFn> {
    pending: Pending,
    finish: Finish<M>,
}

impl Aggregator {
    /// An empty aggregator that uses [`merge()`].
    #[must_use]
    pub fn new(settings: JoinSettings, counters: Arc<Counters>) -> Self {
        Self::with_merge(settings, counters, merge)
    }
}

impl<M: Fn(Box<Ledger>, Vec<TracedSpan>) -> Exchange> Aggregator<M> {
    /// An empty aggregator that uses `merge`.
    #[must_use]
    pub fn with_merge(settings: JoinSettings, counters: Arc<Counters>, merge: M) -> Self {
        Self {
            pending: Pending::new(settings, counters.clone()),
            finish: Finish { counters, clocks: ProcessClocks::default(), merge },
        }
    }

    /// Joins by `join` from now on; what waits already keeps the deadline that it has.
    pub const fn set_join(&mut self, join: JoinSettings) {
        self.pending.set_join(join);
    }

    /// Forgets what was learnt of routes that are not kept, because their names gave way.
    pub fn retain_routes(&mut self, is_kept: impl Fn(LabelId) -> bool) {
        self.pending.retain_routes(is_kept);
    }

    /// Notes in `contexts` which trace contexts the upstream is found to continue, while it is found out.
    pub fn learn_contexts(&mut self, contexts: Arc<LearntContexts>) {
        self.pending.learn_contexts(contexts);
    }

    /// Takes a closed ledger, which is merged into `sink` now or when its spans have arrived.
    pub fn ledger(&mut self, ledger: impl Into<Box<Ledger>>, now: Stamp, sink: &mut impl FnMut(Exchange)) {
        let ledger = ledger.into();
        self.finish.counters.add(Counter::LedgerOverflowed, u64::from(ledger.overflowed));
        self.pending.ledger(ledger, now, &mut |ledger, spans, lacks| self.finish.one(ledger, spans, lacks, sink));
    }

    /// Takes received spans, and merges the ledgers that are due.
    pub fn spans(&mut self, spans: Vec<IncomingSpan>, now: Stamp, sink: &mut impl FnMut(Exchange)) {
        spans.into_iter().for_each(|span| self.pending.span(span, now));
        self.merge_due(now, sink);
    }

    /// Merges again the exchanges to which spans were added that came late. Each of them went to a sink before.
    pub fn mend(&mut self, sink: &mut impl FnMut(Exchange)) {
        self.pending.take_changed(&mut |ledger, spans, lacks| self.finish.again(ledger, spans, lacks, sink));
    }

    /// Merges the ledgers that are due, and drops spans that can have no exchange any more. To be called several times per
    /// `quiet_ns`, after the ledgers that wait were taken; costs next to nothing if none is due.
    pub fn tick(&mut self, now: Stamp, sink: &mut impl FnMut(Exchange)) {
        self.merge_due(now, sink);
        self.pending.drop_strays(now);
    }

    fn merge_due(&mut self, now: Stamp, sink: &mut impl FnMut(Exchange)) {
        self.pending.tick(now, &mut |ledger, spans, lacks| self.finish.one(ledger, spans, lacks, sink));
    }

    /// Merges every waiting ledger with the spans it has.
    pub fn flush(&mut self, now: Stamp, sink: &mut impl FnMut(Exchange)) {
        self.pending.flush(now, &mut |ledger, spans, lacks| self.finish.one(ledger, spans, lacks, sink));
    }

    /// The number of waiting ledgers, and the number of spans held without an exchange.
    #[must_use]
    pub fn fill(&self) -> (usize, usize) {
        self.pending.fill()
    }
}

#[derive(Debug)]
struct Finish<M> {
    counters: Arc<Counters>,
    clocks: ProcessClocks,
    merge: M,
}

impl<M: Fn(Box<Ledger>, Vec<TracedSpan>) -> Exchange> Finish<M> {
    /// Merges an exchange for the first time.
    fn one(&mut self, ledger: Box<Ledger>, spans: &[IncomingSpan], is_incomplete: bool, sink: &mut impl FnMut(Exchange)) {
        let counters = self.counters.clone();
        self.merge(ledger, spans, is_incomplete, true, &mut |exchange| {
            let ClippedReports { too_long, before, after } = exchange.clipped;
            counters.add(Counter::SpansShifted, u64::from(exchange.shifted()));
            for (counter, count) in
                [(Counter::ClippedTooLong, too_long), (Counter::ClippedBefore, before), (Counter::ClippedAfter, after)]
            {
                counters.add(counter, u64::from(count));
            }
            sink(exchange);
        });
    }

    /// Merges an exchange that was merged before.
    fn again(&mut self, ledger: Box<Ledger>, spans: &[IncomingSpan], is_incomplete: bool, sink: &mut impl FnMut(Exchange)) {
        self.merge(ledger, spans, is_incomplete, false, sink);
    }

    fn merge(
        &mut self,
        mut ledger: Box<Ledger>,
        spans: &[IncomingSpan],
        is_incomplete: bool,
        is_first: bool,
        sink: &mut impl FnMut(Exchange),
    ) {
        let finished = catch_unwind(AssertUnwindSafe(|| {
            let traced = match spans {
                [] => Vec::new(),
                spans => {
                    let placed = self.clocks.place(&ledger, spans, is_first);
                    note_spans(&mut ledger, &placed)
                }
            };
            divide_sums(&mut ledger);
            let mut exchange = (self.merge)(ledger, traced);
            exchange.is_incomplete = is_incomplete;
            sink(exchange);
        }));
        if finished.is_err() {
            self.counters.bump(Counter::DroppedPanic);
        }
    }
}

/// Writes what an exchange's spans say about it into its ledger. Returns them placed.
fn note_spans(ledger: &mut Ledger, spans: &[IncomingSpan]) -> Vec<TracedSpan> {
    let (traced, report) = tree::below(ledger.span, ledger.anchor_unix_ns, spans);
    if report.server.is_some() {
        // the upstream's own span; what a body reports may be of a server behind the upstream
        (ledger.server, ledger.server_evidence) = (report.server, Some(ServerEvidence::Span));
    }
    report.note(ledger, ServerEvidence::Span);
    cache_hit::note(spans, &mut ledger.circumstances);
    if !report.work.is_empty() {
        choose_primary(&mut ledger.work);
    }
    traced
}

/// Turns sums over a request's prompts into the mean of one prompt, because the prompts run at the same time. If the number of
/// prompts is unknown, the sums are dropped.
fn divide_sums(ledger: &mut Ledger) {
    let prompts = ledger.work.get(Unit::Row).map_or(0, |(rows, _)| rows);
    ledger.reports.retain(|report| !report.is_sum || prompts > 0);
    for report in ledger.reports.iter_mut().filter(|report| report.is_sum) {
        report.duration_ns = report.duration_ns.checked_div(prompts).unwrap_or(report.duration_ns);
        report.is_sum = false;
    }
}

/// Uses the tokens that spans report as the primary unit if the body reported none.
fn choose_primary(work: &mut Work) {
    let has = |unit: &Unit| work.get(*unit).is_some_and(|(amount, _)| amount > 0);
    work.primary = work.primary.or_else(|| [Unit::OutputToken, Unit::InputToken].into_iter().find(has));
}

#[cfg(test)]
mod tests;
