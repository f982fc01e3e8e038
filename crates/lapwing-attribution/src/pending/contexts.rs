//! Trace contexts beside `traceparent`: exchanges whose spans may come below another one, and which of them the upstream continues.

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use super::super::span::{IncomingSpan, SpanKind};
use super::{Owner, Pending, Trace};
use lapwing_ledger::{Ledger, PassedContext, SpanId, Stamp, TraceId};
use lapwing_protocol::trace_context::LearntContexts;
use lapwing_settings::{ContextKind, ContextSet};

/// So many requests without spans, and so many traces that the upstream began itself, make it worth while to try other contexts.
const FEW: u32 = 4;
/// The same where spans have joined before.
const MANY: u32 = 64;
/// What is tried, one after the other. Servers that read B3 mostly read both ways of it.
const TRIED: [ContextSet; 4] = [
    ContextSet::of(&[ContextKind::B3, ContextKind::B3Multi]),
    ContextSet::of(&[ContextKind::Jaeger]),
    ContextSet::of(&[ContextKind::XRay]),
    ContextSet::of(&[ContextKind::Datadog]),
];

/// The traces in which spans of the exchange may come.
pub(crate) fn traces(ledger: &Ledger) -> SmallVec<[TraceId; 1]> {
    let mut traces: SmallVec<[TraceId; 1]> = smallvec![ledger.trace];
    for passed in ledger.passed_contexts.iter().flat_map(|passed| passed.iter()) {
        if !traces.contains(&passed.trace) {
            traces.push(passed.trace);
        }
    }
    traces
}

/// Makes Lapwing's own span the parent of a span that continues another context of the same request. Returns which contexts it may be.
pub(crate) fn hang_below_own(ledger: &Ledger, span: &mut IncomingSpan) -> ContextSet {
    let Some(passed) = &ledger.passed_contexts else { return ContextSet::NONE };
    let is_parent = |passed: &&PassedContext| passed.trace == span.trace && Some(passed.span) == span.parent;
    let kinds = passed.iter().filter(is_parent).fold(ContextSet::NONE, |kinds, one| kinds.or(ContextSet::of_bits(one.kind)));
    if !kinds.is_empty() {
        span.parent = Some(ledger.span);
    }
    kinds
}

impl Pending {
    /// Notes there which contexts the upstream continues, while it is found out.
    pub(crate) fn learn_contexts(&mut self, learnt: Arc<LearntContexts>) {
        self.contexts.learnt = Some(learnt);
    }

    /// Lets spans below the other contexts of an exchange find it.
    pub(crate) fn register_passed(&mut self, seq: u64, ledger: &Ledger) {
        let Some(passed) = &ledger.passed_contexts else { return };
        for trace in traces(ledger).into_iter().filter(|trace| *trace != ledger.trace) {
            self.traces.entry(trace).or_default().waiting += 1;
        }
        for passed in passed.iter() {
            let trace = self.traces.entry(passed.trace).or_default();
            if passed.is_clients {
                trace.passed.push((passed.span, seq));
            } else {
                trace.owners.insert(passed.span, Owner::Exchange(seq));
            }
        }
    }

    /// The exchange that a span belongs to whose parent is a client's. If the client made several requests by that span, it is the
    /// only one that ran when the span began.
    pub(crate) fn owner_by_client(&self, trace: &Trace, parent: SpanId, span: &IncomingSpan) -> Option<Owner> {
        let mut named: SmallVec<[u64; 2]> = trace.passed.iter().filter(|(of, _)| *of == parent).map(|(_, seq)| *seq).collect();
        named.dedup();
        if let ([only], SpanKind::Server | SpanKind::Consumer) = (&named[..], span.kind) {
            return Some(Owner::Exchange(*only));
        }
        let ran = |seq: &&u64| {
            self.waiting.get(*seq).is_some_and(|waiting| {
                let from = waiting.ledger.anchor_unix_ns;
                (from..=from.saturating_add(waiting.ledger.total_ns)).contains(&span.start_unix_ns)
            })
        };
        let mut running = named.iter().filter(ran);
        let first = running.next()?;
        running.next().is_none().then_some(Owner::Exchange(*first))
    }

    /// Remembers an exchange that is merged.
    pub(crate) fn remember(&mut self, ledger: &Ledger) {
        self.recent.push(ledger.trace, ledger.span, ledger.series);
        for passed in ledger.passed_contexts.iter().flat_map(|passed| passed.iter()) {
            self.recent.push(passed.trace, passed.span, ledger.series);
        }
    }
}

/// Finds out which context an upstream continues that does not continue `traceparent`: while requests stay without spans, and the
/// upstream begins traces of its own, one after the other is sent. The first that is followed by a span that joins stays.
#[derive(Debug, Default)]
pub(crate) struct ContextTrial {
    /// Where the data plane reads what to send; `None` if nothing is to be found out.
    learnt: Option<Arc<LearntContexts>>,
    /// How many of [`TRIED`] were sent, the current one included; more than all of them: none was continued.
    tried: usize,
    is_found: bool,
    /// Requests since a span joined, and when the first of them closed.
    requests: u32,
    since: Stamp,
    /// Server spans without a parent since then.
    roots: u32,
}

impl ContextTrial {
    /// A request closed.
    pub(crate) fn closed(&mut self, ledger: &Ledger, now: Stamp) {
        if self.learnt.is_none() || !ledger.traced || ledger.window.is_none() || ledger.is_copy {
            return;
        }
        if self.requests == 0 {
            self.since = now;
        }
        self.requests = self.requests.saturating_add(1);
    }

    /// A span came for a request that is merged.
    pub(crate) const fn came(&mut self) {
        (self.requests, self.roots) = (0, 0);
    }

    /// A span joined: below one of these contexts, or below `traceparent` if there is none.
    pub(crate) fn joined(&mut self, by: ContextSet) {
        self.came();
        let Some(learnt) = self.learnt.as_deref() else { return };
        let sent = learnt.get();
        let stay = if self.is_found { sent.or(by) } else { by };
        if stay != sent {
            learnt.set(stay);
        }
        if stay != sent && !stay.is_empty() {
            tracing::info!(contexts = %stay, "the upstream continues these trace contexts: they are sent with every request");
        }
        self.is_found = true;
    }

    /// A span came that belongs to no request so far.
    pub(crate) fn unmatched(&mut self, span: &IncomingSpan, now: Stamp, grace_ns: u64) {
        let Some(learnt) = &self.learnt else { return };
        if span.parent.is_some() || !matches!(span.kind, SpanKind::Server | SpanKind::Consumer) || self.tried > TRIED.len() {
            return;
        }
        self.roots = self.roots.saturating_add(1);
        let few = if self.is_found { MANY } else { FEW };
        if self.roots < few || self.requests < few || now.since(self.since) < grace_ns {
            return;
        }
        let next = TRIED.get(self.tried).copied().unwrap_or_default();
        learnt.set(next);
        (self.tried, self.is_found, self.requests, self.roots) = (self.tried + 1, false, 0, 0);
        if next.is_empty() {
            tracing::warn!(
                "the upstream's spans belong to no request: it continues none of the trace contexts that Lapwing can send"
            );
        } else {
            tracing::info!(contexts = %next, "the upstream's spans continue no request: these trace contexts are sent to it too");
        }
    }
}
