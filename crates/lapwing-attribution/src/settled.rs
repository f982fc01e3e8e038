//! The exchanges merged last that had waited for spans, with what they were merged from, so that late spans can mend them. Bounded
//! in exchanges and in spans; the oldest is dropped.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::passed_contexts::traces_of;
use super::shapes::{SpanMark, SpanSet};
use super::span::IncomingSpan;
use lapwing_ledger::{Ledger, SpanId, Stamp, TraceId};

/// How many exchanges are kept: about 1.2 KB each.
const EXCHANGES: usize = 1024;
/// How many spans all of them have together: about 300 bytes each.
const SPANS: usize = 16_384;

/// An exchange that was merged.
#[derive(Debug)]
pub(crate) struct SettledExchange {
    /// As it was before its spans were merged in, without the gaps between tokens.
    pub(crate) ledger: Box<Ledger>,
    pub(crate) closed: Stamp,
    pub(crate) spans: Vec<IncomingSpan>,
    pub(crate) marks: Vec<SpanMark>,
}

/// Merged exchanges, by the order in which they were merged.
#[derive(Debug, Default)]
pub(crate) struct Settled {
    exchanges: VecDeque<SettledExchange>,
    /// The number of the first one.
    first: u64,
    traces: FxHashMap<TraceId, SmallVec<[u64; 1]>>,
    /// The exchange of each span, and of each exchange's own span.
    owners: FxHashMap<(TraceId, SpanId), u64>,
    spans: usize,
}

impl SettledExchange {
    pub(crate) fn set(&self) -> SpanSet<'_> {
        SpanSet { series: self.ledger.series, own: self.ledger.span, closed: self.closed, marks: &self.marks }
    }

    /// Its own span, the parents that the upstream may have taken instead, and its spans.
    fn ids(&self) -> impl Iterator<Item = (TraceId, SpanId)> {
        let passed =
            self.ledger.passed_contexts.iter().flat_map(|passed| passed.iter()).map(|passed| (passed.trace, passed.span));
        let spans = self.spans.iter().map(|span| (span.trace, span.span));
        std::iter::once((self.ledger.trace, self.ledger.span)).chain(passed).chain(spans)
    }

    fn traces(&self) -> SmallVec<[TraceId; 1]> {
        traces_of(&self.ledger)
    }
}

impl Settled {
    pub(crate) fn push(&mut self, exchange: SettledExchange) {
        if self.owners.capacity() == 0 {
            // what they hold soon, so that they need not grow step by step
            self.exchanges.reserve(EXCHANGES);
            self.traces.reserve(EXCHANGES);
            self.owners.reserve(4 * EXCHANGES);
        }
        let number = self.first + self.exchanges.len() as u64;
        exchange.traces().into_iter().for_each(|trace| self.traces.entry(trace).or_default().push(number));
        self.owners.extend(exchange.ids().map(|id| (id, number)));
        self.spans += exchange.spans.len();
        self.exchanges.push_back(exchange);
        self.trim();
    }

    /// The exchange that the span `parent` belongs to.
    pub(crate) fn find(&self, trace: TraceId, parent: SpanId) -> Option<u64> {
        self.owners.get(&(trace, parent)).copied()
    }

    /// Whether any exchange of `trace` is kept.
    pub(crate) fn has(&self, trace: TraceId) -> bool {
        self.traces.contains_key(&trace)
    }

    /// Whether `span` made a request that is kept.
    pub(crate) fn has_caller(&self, trace: TraceId, span: SpanId) -> bool {
        let is_its = |number: &u64| self.get(*number).is_some_and(|exchange| exchange.ledger.parent == span);
        self.traces.get(&trace).is_some_and(|numbers| numbers.iter().any(is_its))
    }

    pub(crate) fn get(&self, number: u64) -> Option<&SettledExchange> {
        self.exchanges.get(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    /// Adds a span that came late; false if the exchange has it, has no room for it or is no longer kept.
    pub(crate) fn add(&mut self, number: u64, span: IncomingSpan, mark: SpanMark, most: usize) -> bool {
        let id = (span.trace, span.span);
        let Some(at) = number.checked_sub(self.first).and_then(|at| usize::try_from(at).ok()) else { return false };
        let Some(exchange) = self.exchanges.get_mut(at) else { return false };
        if exchange.spans.len() >= most || self.owners.contains_key(&id) {
            return false;
        }
        self.owners.insert(id, number);
        exchange.spans.push(span);
        exchange.marks.push(mark);
        self.spans += 1;
        self.trim();
        true
    }

    fn trim(&mut self) {
        while self.exchanges.len() > EXCHANGES || (self.spans > SPANS && self.exchanges.len() > 1) {
            let Some(oldest) = self.exchanges.pop_front() else { return };
            let number = self.first;
            for id in oldest.ids() {
                // an id that was used twice belongs to the later exchange
                if self.owners.get(&id) == Some(&number) {
                    self.owners.remove(&id);
                }
            }
            self.first += 1;
            self.spans -= oldest.spans.len();
            for trace in oldest.traces() {
                let Some(numbers) = self.traces.get_mut(&trace) else { continue };
                numbers.retain(|known| *known != number);
                if numbers.is_empty() {
                    self.traces.remove(&trace);
                }
            }
        }
    }

    /// Exchanges, traces, spans, owned ids.
    #[cfg(test)]
    pub(crate) fn sizes(&self) -> [usize; 4] {
        [self.exchanges.len(), self.traces.len(), self.spans, self.owners.len()]
    }
}
