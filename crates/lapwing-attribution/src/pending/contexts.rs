//! Exchanges whose spans may come below another context than `traceparent`.

use std::sync::Arc;

use smallvec::SmallVec;

use super::super::passed_contexts::traces_of;
use super::super::span::{IncomingSpan, SpanKind};
use super::Pending;
use super::waiting::{Owner, Trace};
use lapwing_ledger::{Ledger, SpanId};
use lapwing_protocol::trace_context::LearntContexts;

impl Pending {
    /// Notes there which contexts the upstream continues, while it is found out.
    pub(crate) fn learn_contexts(&mut self, learnt: Arc<LearntContexts>) {
        self.contexts.learn(learnt);
    }

    /// Lets spans below the other contexts of an exchange find it.
    pub(crate) fn register_passed(&mut self, seq: u64, ledger: &Ledger) {
        let Some(passed) = &ledger.passed_contexts else { return };
        for trace in traces_of(ledger).into_iter().filter(|trace| *trace != ledger.trace) {
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
