//! The aggregator: takes closed ledgers and received spans, places each exchange's spans in the tree below Lapwing's own span, and
//! returns merged exchanges. One thread owns it; time is passed in as stamps.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use lapwing_ledger::{
    ClippedReports, Exchange, LabelId, Ledger, ServerEvidence, SpanId, Stage, Stamp, TracedSpan, Unit, Work, merge,
};
use lapwing_metrics::{Counter, Counters};
use lapwing_protocol::servers::ServerReport;
use lapwing_protocol::trace_context::LearntContexts;

use super::adapters::spans::Resolver;
use super::cache_hit;
use super::clocks::{ProcessClocks, offset};
use super::join_settings::JoinSettings;
use super::pending::Pending;
use super::span::{IncomingSpan, SpanKind};

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
    let (traced, report) = below(ledger.span, ledger.anchor_unix_ns, spans);
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

/// What a span inherits from its ancestors.
#[derive(Clone, Copy)]
struct Ancestors {
    /// The parent's index in the list; `None` below Lapwing's own span, or if the parent never arrived.
    parent: Option<usize>,
    depth: u32,
    /// The start of the nearest ancestor with a stage; `None` if no ancestor has one.
    staged_ns: Option<i64>,
    /// Whether that ancestor is a call that is downstream only because nothing says more of it.
    is_open_call: bool,
    /// Whether the span is another service's, behind the upstream.
    is_called: bool,
    /// The nearest model server's span, by the resolver's numbering.
    server: Option<usize>,
}

/// Places `spans` on the clock that reads zero at `anchor_unix_ns`.
///
/// Each span that descends from `own` is placed, and so is each tree of spans whose topmost parent is not in the list, as if it
/// were a child of `own`; spans in a cycle are not placed.
///
/// A span keeps the stage that it came with. A `CLIENT` or `PRODUCER` without a stage, below no span that has one but calls, is
/// hydration if it calls a store, else downstream. Another service's server is a `SERVER` or `CONSUMER` whose parent is a `CLIENT`
/// or `PRODUCER` of another resource. Below such a downstream call its spans are placed too: what it reports is the inner claim,
/// and the rest of the call remains downstream. Below any other call it is left out with everything below it, because the caller
/// has said what that time is. A span that starts before the nearest ancestor with a stage is moved to that ancestor's start, so
/// that it stays the inner one. The pieces of model servers' spans follow at the end. Also returns what those servers report about
/// the request as a whole, unless they are behind the upstream, and which server the upstream is if its span continues `own`.
#[must_use]
pub(crate) fn below(own: SpanId, anchor_unix_ns: u64, spans: &[IncomingSpan]) -> (Vec<TracedSpan>, ServerReport) {
    let mut resolver = Resolver::default();
    let mut placed = Vec::with_capacity(spans.len());
    let mut is_seen = vec![false; spans.len()];
    let mut by_parent: Vec<usize> = (0..spans.len()).collect();
    by_parent.sort_by_key(|i| spans[*i].parent);
    let children = |id: SpanId| {
        let parent_of = |i: &usize| spans[*i].parent;
        let from = by_parent.partition_point(|i| parent_of(i) < Some(id));
        let count = by_parent[from..].iter().take_while(|i| parent_of(i) == Some(id)).count();
        by_parent[from..from + count].iter().copied()
    };

    let mut ids: Vec<SpanId> = spans.iter().map(|s| s.span).collect();
    ids.sort_unstable();
    let is_top = |s: &IncomingSpan| s.parent.is_none_or(|p| p == own || ids.binary_search(&p).is_err());
    let top = Ancestors { parent: None, depth: 1, staged_ns: None, is_open_call: false, is_called: false, server: None };
    let mut todo: Vec<(usize, Ancestors)> =
        spans.iter().enumerate().rev().filter(|(_, s)| is_top(s)).map(|(i, _)| (i, top)).collect();

    while let Some((i, mut above)) = todo.pop() {
        let span = &spans[i];
        let is_entered = above.parent.is_some_and(|p| is_other_service(&spans[p], span));
        if std::mem::replace(&mut is_seen[i], true) || is_entered && !above.is_open_call {
            continue;
        }
        if is_entered {
            (above.is_called, above.server) = (true, None);
        }
        let is_unsaid = above.staged_ns.is_none() || above.is_open_call;
        let stage = span.stage.or_else(|| if is_unsaid { derived(span) } else { None });
        let (own_start_ns, end_ns) = (offset(span.start_unix_ns, anchor_unix_ns), offset(span.end_unix_ns, anchor_unix_ns));
        let start_ns = above.staged_ns.filter(|at| *at < end_ns).map_or(own_start_ns, |at| at.max(own_start_ns));
        let server = resolver.meet((i, span), above.server, above.depth, above.staged_ns, above.is_called);
        let (name, phase, depth, note) = (span.name.clone(), span.phase, above.depth, span.note());
        placed.push(TracedSpan { name, stage, phase, start_ns, end_ns, depth, note });
        let has_stages = stage.is_some() || span.server.as_ref().is_some_and(|server| !server.pieces.is_empty());
        let staged_ns = if has_stages { Some(start_ns) } else { above.staged_ns };
        let is_open_call = if has_stages { span.stage.is_none() && stage == Some(Stage::Downstream) } else { above.is_open_call };
        let depth = above.depth.saturating_add(1);
        let under = Ancestors { parent: Some(i), depth, staged_ns, is_open_call, is_called: above.is_called, server };
        todo.extend(children(span.span).rev().map(|child| (child, under)));
    }
    let mut report = resolver.finish(spans, |at| offset(at, anchor_unix_ns), &mut placed);
    // a server whose span lies further below is behind the upstream
    let mut topmost = spans.iter().filter(|span| span.parent == Some(own));
    report.server = topmost.find_map(|span| span.server.as_ref()?.report.server);
    (placed, report)
}

fn is_other_service(parent: &IncomingSpan, span: &IncomingSpan) -> bool {
    let calls = matches!(parent.kind, SpanKind::Client | SpanKind::Producer);
    let serves = matches!(span.kind, SpanKind::Server | SpanKind::Consumer);
    calls && serves && parent.service != span.service
}

/// The stage of a call that has none.
fn derived(span: &IncomingSpan) -> Option<Stage> {
    let calls = matches!(span.kind, SpanKind::Client | SpanKind::Producer);
    calls.then_some(if span.is_store_call { Stage::Hydration } else { Stage::Downstream })
}

#[cfg(test)]
mod tests;
