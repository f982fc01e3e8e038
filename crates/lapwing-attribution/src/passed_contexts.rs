//! What follows from the contexts other than `traceparent` that an exchange passed to its upstream.

use smallvec::{SmallVec, smallvec};

use super::span::IncomingSpan;
use lapwing_ledger::{Ledger, PassedContext, TraceId};
use lapwing_settings::ContextSet;

/// The traces in which spans of the exchange may come.
pub(crate) fn traces_of(ledger: &Ledger) -> SmallVec<[TraceId; 1]> {
    let mut traces: SmallVec<[TraceId; 1]> = smallvec![ledger.trace];
    for passed in ledger.passed_contexts.iter().flat_map(|passed| passed.iter()) {
        if !traces.contains(&passed.trace) {
            traces.push(passed.trace);
        }
    }
    traces
}

/// Makes Lapwing's own span the parent of a span that continues another context of the same request. Returns which contexts it may be.
pub(crate) fn reparent(ledger: &Ledger, span: &mut IncomingSpan) -> ContextSet {
    let Some(passed) = &ledger.passed_contexts else { return ContextSet::NONE };
    let is_parent = |passed: &&PassedContext| passed.trace == span.trace && Some(passed.span) == span.parent;
    let kinds = passed.iter().filter(is_parent).fold(ContextSet::NONE, |kinds, one| kinds.or(ContextSet::of_bits(one.kind)));
    if !kinds.is_empty() {
        span.parent = Some(ledger.span);
    }
    kinds
}
