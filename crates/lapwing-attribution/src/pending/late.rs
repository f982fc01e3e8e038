//! Spans that come after their exchange was merged, and spans that have none.

use std::mem;

use lapwing_ledger::{Ledger, Stamp, TraceId};
use lapwing_metrics::Counter;

use super::super::passed_contexts::reparent;
use super::super::span::IncomingSpan;
use super::Pending;
use super::waiting::{is_incomplete, mark};

/// The shortest time between two generations of requests.
const GENERATION_NS: u64 = 1_000_000_000;

impl Pending {
    /// Drops spans that can have no exchange any more. To be called after all ledgers that were closed by the last call were taken.
    pub(crate) fn drop_strays(&mut self, now: Stamp) {
        let mut gone = Vec::new();
        self.orphans.expire(now, |trace, n| gone.push((trace, n)));
        if mem::take(&mut self.generations.is_due) {
            let generation = self.counters.open_requests().advance();
            self.generations.since = now;
            let recent = &mut self.recent;
            let is_over = |trace: TraceId, came: Stamp, since: u64| {
                // what lies between a merged exchange and the span may still come
                let is_awaited = self.traces.contains_key(&trace)
                    || (self.settled.has(trace) || recent.of_trace(trace) > 0) && now.since(came) < self.join.grace_ns;
                since + 2 <= generation && !is_awaited
            };
            self.orphans.drop_if(is_over, |trace, n| gone.push((trace, n)));
        } else if now.since(self.generations.since) >= GENERATION_NS {
            self.generations.is_due = self.counters.open_requests().may_advance();
        }
        gone.into_iter().for_each(|(trace, n)| self.strayed(trace, n));
    }

    /// Calls `done` with each merged exchange to which late spans were added since the last call.
    pub(crate) fn take_changed(&mut self, done: &mut impl FnMut(Box<Ledger>, &[IncomingSpan], bool)) {
        for number in mem::take(&mut self.changed) {
            if let Some(exchange) = self.settled.get(number) {
                let missing = self.shapes.missing(exchange.set(), |_| true);
                done(exchange.ledger.clone(), &exchange.spans, is_incomplete(&exchange.ledger, missing));
            }
        }
    }

    /// Adds a span, and all spans that waited for it, to its merged exchange. Each is counted as late.
    pub(crate) fn mend(&mut self, number: u64, span: IncomingSpan, now: Stamp) {
        let Some((own, series)) = self.settled.get(number).map(|exchange| (exchange.ledger.span, exchange.ledger.series)) else {
            return self.late(span);
        };
        self.routes.sent(series, now);
        let mut todo = vec![span];
        while let Some(mut span) = todo.pop() {
            self.counters.bump(Counter::SpansLate);
            todo.extend(self.orphans.release(span.trace, Some(span.span)));
            if let Some(exchange) = self.settled.get(number) {
                self.contexts.joined(reparent(&exchange.ledger, &mut span));
            }
            let late = mark(&span, own, now);
            if self.settled.add(number, span, late, self.join.max_spans_per_exchange) {
                self.changed.insert(number);
                let evicted = self.settled.get(number).map_or(0, |exchange| self.shapes.learn_late(exchange.set(), late));
                self.counters.add(Counter::SpanShapesEvicted, evicted);
            }
        }
    }

    /// Counts a span whose exchange is already merged and forgotten, and all spans that waited for it.
    pub(crate) fn late(&mut self, span: IncomingSpan) {
        let mut todo = vec![span];
        while let Some(span) = todo.pop() {
            self.counters.bump(Counter::SpansLate);
            todo.extend(self.orphans.release(span.trace, Some(span.span)));
        }
    }

    /// Counts `n` spans of `trace` that are dropped.
    pub(crate) fn strayed(&mut self, trace: TraceId, n: usize) {
        let merged = self.recent.of_trace(trace);
        let waiting = self.traces.get(&trace).map_or(0, |t| t.waiting);
        let counter = match merged + waiting {
            0 => Counter::SpansUnmatched,
            1 if merged == 1 => Counter::SpansLate,
            1 => Counter::SpansUnmatched,
            _ => Counter::SpansAmbiguous,
        };
        self.counters.add(counter, n as u64);
    }
}
