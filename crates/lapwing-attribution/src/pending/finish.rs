//! Until when an exchange waits, and what becomes of it then.

use std::mem;

use lapwing_ledger::{Ledger, SpanId, Stamp};
use lapwing_metrics::Counter;

use super::super::passed_contexts::traces_of;
use super::super::settled::SettledExchange;
use super::super::shapes::MissingSpans;
use super::super::span::IncomingSpan;
use super::waiting::{Waiting, is_incomplete, mark};
use super::{Owner, Pending, Trace};

impl Pending {
    /// When an exchange is finished or examined again.
    pub(crate) fn until(&self, seq: u64, waiting: &Waiting, now: Stamp) -> Stamp {
        let quiet_at = waiting.last.plus(self.join.quiet_ns);
        if waiting.deadline <= now || (quiet_at > now && !waiting.spans.is_empty()) {
            return quiet_at.min(waiting.deadline);
        }
        // spans that can only be its own lack a parent, which shows where they belong and may still arrive
        let trace = self.traces.get(&waiting.ledger.trace);
        let is_torn = self.orphans.has(waiting.ledger.trace) && trace.and_then(Trace::only) == Some(seq);
        let missing = self.missing(waiting);
        let until = if missing.is_unknown || !(waiting.is_ended || missing.knows_tops) {
            waiting.deadline
        } else if is_torn && quiet_at <= now {
            now.plus(self.join.quiet_ns)
        } else {
            quiet_at.max(missing.until.unwrap_or_default())
        };
        until.min(waiting.deadline)
    }

    /// What an exchange lacks, by what others of its route have.
    pub(crate) fn missing(&self, waiting: &Waiting) -> MissingSpans {
        let trace_id = waiting.ledger.trace;
        let is_followed = |call: SpanId| {
            let waits = self.traces.get(&trace_id).is_some_and(|trace| trace.callers.contains(&call));
            waits || self.settled.has_caller(trace_id, call)
        };
        self.shapes.missing(waiting.set(), is_followed)
    }

    pub(crate) fn reschedule(&mut self, seq: u64, due: Stamp) {
        if let Some(waiting) = self.waiting.get_mut(&seq) {
            self.due.remove(&(waiting.due, seq));
            waiting.due = due;
            self.due.insert((due, seq));
        }
    }

    /// Ends the wait of one exchange, with the spans that arrived for it. It is learnt from if it waited as long as it should.
    pub(crate) fn finish(
        &mut self,
        seq: u64,
        now: Stamp,
        is_learnt: bool,
        done: &mut impl FnMut(Box<Ledger>, &[IncomingSpan], bool),
    ) {
        let Some(mut waiting) = self.waiting.remove(&seq) else { return };
        self.due.remove(&(waiting.due, seq));
        if let Some(trace) = self.traces.get(&waiting.ledger.trace) {
            if trace.only() == Some(seq) && self.recent.of_trace(waiting.ledger.trace) == 0 {
                let room = self.join.max_spans_per_exchange.saturating_sub(waiting.spans.len());
                let unknown = self.unknown(&waiting.ledger, room);
                waiting.marks.extend(unknown.iter().map(|span| mark(span, waiting.ledger.span, now)));
                waiting.spans.extend(unknown);
            }
            self.leave(seq, &waiting.ledger, &waiting.spans);
        }
        let lacks = is_incomplete(&waiting.ledger, self.missing(&waiting));
        if is_learnt {
            let evicted = self.shapes.learn(waiting.set());
            self.counters.add(Counter::SpanShapesEvicted, evicted);
        }
        let Waiting { mut ledger, closed, spans, marks, .. } = waiting;
        self.routes.left(ledger.series, now, !spans.is_empty());
        self.remember(&ledger);
        self.gauge();
        // what is kept for late spans is kept without the gaps between tokens: they may take 64 KiB
        let gaps_us = ledger.generation.as_mut().map(|generation| mem::take(&mut generation.gaps_us));
        let mut merged = ledger.clone();
        if let (Some(generation), Some(gaps_us)) = (&mut merged.generation, gaps_us) {
            generation.gaps_us = gaps_us;
        }
        done(merged, &spans, lacks);
        self.settled.push(SettledExchange { ledger, closed, spans, marks });
    }

    /// Removes and returns the spans of unknown ancestry that can only belong to this exchange, at most `room` of them.
    pub(crate) fn unknown(&mut self, ledger: &Ledger, room: usize) -> Vec<IncomingSpan> {
        let ran = ledger.anchor_unix_ns..=ledger.anchor_unix_ns.saturating_add(ledger.total_ns);
        let mut unknown = self.orphans.release_unknown(ledger.trace, ledger.parent, |s| ran.contains(&s.start_unix_ns));
        let shed = unknown.len().saturating_sub(room);
        unknown.truncate(room);
        self.counters.add(Counter::SpansJoined, unknown.len() as u64);
        self.counters.add(Counter::SpansShed, shed as u64);
        unknown
    }

    /// Removes an exchange from its trace.
    pub(crate) fn leave(&mut self, seq: u64, ledger: &Ledger, spans: &[IncomingSpan]) {
        if let Some(trace) = self.traces.get_mut(&ledger.trace)
            && let Some(at) = trace.callers.iter().position(|caller| *caller == ledger.parent)
        {
            trace.callers.swap_remove(at);
        }
        for id in traces_of(ledger) {
            let Some(trace) = self.traces.get_mut(&id) else { continue };
            trace.waiting -= 1;
            if trace.waiting == 0 {
                self.traces.remove(&id);
                continue;
            }
            trace.passed.retain(|(_, of)| *of != seq);
            let passed = ledger.passed_contexts.iter().flat_map(|passed| passed.iter()).map(|passed| passed.span);
            for span in spans.iter().map(|span| span.span).chain(passed).chain([ledger.span]) {
                if trace.owners.get(&span) == Some(&Owner::Exchange(seq)) {
                    trace.owners.remove(&span);
                }
            }
        }
    }
}
