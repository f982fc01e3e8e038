//! The pending join: closed ledgers wait here for their spans, and spans for their ledger. Everything is bounded; each event
//! costs a few look-ups, however much is pending.
//!
//! A span belongs to an exchange if its chain of parents ends at the exchange's own span. Chains are resolved as spans arrive: a
//! span whose parent is known joins at once and takes the children that waited for it; the others are held. When the only
//! exchange that a trace ever had stops waiting, it also takes the trees whose topmost parent never arrived, if they start while
//! it ran. Spans that remain are dropped by age and counted. Time is passed in as stamps; no clock is read here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::ledger::{Ledger, SpanId, Stamp, TraceId};
use crate::metrics::{Counter, Counters};

use super::aggregator::JoinSettings;
use super::expect::{Routes, SpanExpectation, WaitDecision};
use super::orphans::Orphans;
use super::recent::Recent;
use super::span::{IncomingSpan, SpanKind};

/// Waiting ledgers, in the order in which they closed.
#[derive(Debug)]
pub(super) struct Pending {
    join: JoinSettings,
    counters: Arc<Counters>,
    waiting: BTreeMap<u64, Waiting>,
    /// When each one is examined next.
    due: BTreeSet<(Stamp, u64)>,
    traces: FxHashMap<TraceId, Trace>,
    orphans: Orphans,
    recent: Recent,
    routes: Routes,
    next: u64,
}

#[derive(Debug)]
struct Waiting {
    ledger: Box<Ledger>,
    deadline: Stamp,
    due: Stamp,
    /// When its last span arrived.
    last: Stamp,
    /// Whether the upstream has finished with it, as far as its spans tell. See [`Waiting::tells_the_end`].
    is_ended: bool,
    spans: Vec<IncomingSpan>,
}

/// A trace that has an exchange waiting.
#[derive(Debug, Default)]
struct Trace {
    owners: FxHashMap<SpanId, Owner>,
    waiting: u32,
    /// How many exchanges have waited since the trace came in.
    seen: u32,
    /// The newest of them.
    newest: u64,
    outside: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Exchange(u64),
    /// The span descends from a root span without passing one of our exchanges.
    Outside,
}

impl Waiting {
    /// Whether `span`, which joins this exchange, ends after everything the upstream does for it: its server span, or any span
    /// with others below it (a span is known to be ours only once the spans above it have arrived). A single span below our own
    /// that is neither may be one of several, and the others may be in the exporter's next batch.
    fn tells_the_end(&self, span: &IncomingSpan) -> bool {
        span.parent != Some(self.ledger.span) || matches!(span.kind, SpanKind::Server | SpanKind::Consumer)
    }
}

impl Trace {
    /// The only exchange that this trace has had since it came in.
    fn only(&self) -> Option<u64> {
        (self.seen == 1).then_some(self.newest)
    }
}

impl Pending {
    pub(super) fn new(join: JoinSettings, counters: Arc<Counters>) -> Self {
        Self {
            waiting: BTreeMap::new(),
            due: BTreeSet::new(),
            traces: FxHashMap::default(),
            orphans: Orphans::new(join.max_orphan_spans, join.orphan_ns),
            recent: Recent::default(),
            routes: Routes::new(join.expect, join.grace_ns),
            next: 0,
            join,
            counters,
        }
    }

    /// Joins by `join` from now on; what waits already keeps the deadline that it has.
    pub(super) const fn set_join(&mut self, join: JoinSettings) {
        self.join = join;
        self.orphans.set(join.max_orphan_spans, join.orphan_ns);
        self.routes.set(join.expect, join.grace_ns);
    }

    /// Takes a closed ledger: calls `done` at once if no spans are expected, else later.
    pub(super) fn ledger(&mut self, ledger: Ledger, now: Stamp, done: &mut impl FnMut(Ledger, Vec<IncomingSpan>)) {
        if !ledger.traced || self.join.expect == SpanExpectation::Never {
            return done(ledger, Vec::new());
        }
        let (trace_id, own, series) = (ledger.trace, ledger.span, ledger.series);
        let is_expected = match self.routes.wait(series, now) {
            // no span can claim anything, and an upstream that is down must not count as one that sends no spans
            _ if ledger.window.is_none() => false,
            WaitDecision::Yes => true,
            // a probe displaces no other exchange
            WaitDecision::Probe if self.waiting.len() * 2 < self.join.max_pending => true,
            WaitDecision::Probe | WaitDecision::No => self.orphans.has(trace_id),
        };
        if !is_expected || self.join.max_pending == 0 {
            self.counters.add(Counter::PendingEvicted, u64::from(is_expected));
            self.recent.push(trace_id, own, series);
            return done(ledger, Vec::new());
        }
        if self.waiting.len() >= self.join.max_pending
            && let Some(oldest) = self.waiting.keys().next().copied()
        {
            self.counters.bump(Counter::PendingEvicted);
            self.finish(oldest, now, done);
        }
        self.routes.entered(series, now);
        let seq = self.next;
        self.next += 1;
        let trace = self.traces.entry(trace_id).or_default();
        trace.owners.insert(own, Owner::Exchange(seq));
        (trace.waiting, trace.seen, trace.newest) = (trace.waiting + 1, trace.seen.saturating_add(1), seq);
        let due = now.plus(self.join.grace_ns);
        self.due.insert((due, seq));
        let waiting = Waiting { ledger: Box::new(ledger), deadline: due, due, last: now, is_ended: false, spans: Vec::new() };
        self.waiting.insert(seq, waiting);
        self.gauge();
        let early = self.orphans.release(trace_id, Some(own));
        early.into_iter().for_each(|span| self.adopt(Owner::Exchange(seq), span, now));
        let roots = self.orphans.release(trace_id, None);
        roots.into_iter().for_each(|span| self.adopt(Owner::Outside, span, now));
    }

    /// Takes a received span.
    pub(super) fn span(&mut self, span: IncomingSpan, now: Stamp) {
        if self.join.expect == SpanExpectation::Never {
            return self.counters.bump(Counter::SpansUnmatched);
        }
        let trace = self.traces.get(&span.trace);
        if let Some(trace) = trace {
            let owner = match span.parent {
                Some(parent) => trace.owners.get(&parent).copied(),
                None => Some(Owner::Outside),
            };
            if let Some(owner) = owner {
                return self.adopt(owner, span, now);
            }
        }
        if let Some(series) = span.parent.and_then(|parent| self.recent.series(span.trace, parent)) {
            self.routes.sent(series, now);
            return self.late(span);
        }
        if let Some(only) = trace.and_then(Trace::only).and_then(|seq| self.waiting.get_mut(&seq)) {
            only.last = now;
        }
        let shed = self.orphans.hold(span, now);
        self.counters.add(Counter::SpansShed, shed as u64);
    }

    /// Finishes the exchanges that are due.
    pub(super) fn tick(&mut self, now: Stamp, done: &mut impl FnMut(Ledger, Vec<IncomingSpan>)) {
        while let Some((due, seq)) = self.due.first().copied().filter(|(due, _)| *due <= now) {
            let Some(waiting) = self.waiting.get(&seq) else {
                self.due.remove(&(due, seq));
                continue;
            };
            let until = self.until(seq, waiting, now);
            if until <= now {
                self.finish(seq, now, done);
            } else {
                self.reschedule(seq, until);
            }
        }
        let mut gone = Vec::new();
        self.orphans.expire(now, |trace, n| gone.push((trace, n)));
        gone.into_iter().for_each(|(trace, n)| self.strayed(trace, n));
    }

    /// Finishes all exchanges, and drops all spans without an exchange.
    pub(super) fn flush(&mut self, now: Stamp, done: &mut impl FnMut(Ledger, Vec<IncomingSpan>)) {
        while let Some(seq) = self.waiting.keys().next().copied() {
            self.finish(seq, now, done);
        }
        let mut gone = Vec::new();
        self.orphans.clear(|trace, n| gone.push((trace, n)));
        gone.into_iter().for_each(|(trace, n)| self.strayed(trace, n));
    }

    /// The number of waiting exchanges, and the number of spans held.
    pub(super) fn fill(&self) -> (usize, usize) {
        (self.waiting.len(), self.orphans.len())
    }

    /// The sizes of every structure: exchanges, due times, traces, owned spans, and what [`Orphans`] hold.
    #[cfg(test)]
    pub(super) fn sizes(&self) -> [usize; 9] {
        let owners = self.traces.values().map(|t| t.owners.len()).sum();
        let [len, traces, order, parents, spans] = self.orphans.sizes();
        [self.waiting.len(), self.due.len(), self.traces.len(), owners, len, traces, order, parents, spans]
    }

    /// When an exchange is finished or examined again.
    fn until(&self, seq: u64, waiting: &Waiting, now: Stamp) -> Stamp {
        let quiet_at = waiting.last.plus(self.join.quiet_ns);
        // spans that can only be its own lack a parent that tells where they belong and may still arrive
        let is_torn = || {
            let trace = waiting.ledger.trace;
            self.orphans.has(trace) && self.traces.get(&trace).and_then(Trace::only) == Some(seq)
        };
        let until = match waiting.is_ended {
            false => waiting.deadline,
            true if quiet_at <= now && is_torn() => now.plus(self.join.quiet_ns),
            true => quiet_at,
        };
        until.min(waiting.deadline)
    }

    /// Assigns `span`, and all spans that waited for it, to `owner`.
    fn adopt(&mut self, owner: Owner, span: IncomingSpan, now: Stamp) {
        let mut todo = vec![span];
        while let Some(span) = todo.pop() {
            let (trace_id, id) = (span.trace, span.span);
            let Some(trace) = self.traces.get_mut(&trace_id) else {
                self.counters.bump(Counter::SpansUnmatched);
                continue;
            };
            let is_known = trace.owners.contains_key(&id);
            let is_kept = match owner {
                // sent again by an exporter that missed the response, or our own id; it claims nothing twice
                Owner::Exchange(_) if is_known => {
                    self.counters.bump(Counter::SpansJoined);
                    false
                }
                Owner::Exchange(seq) => self.join(seq, span, now),
                Owner::Outside => {
                    self.counters.bump(Counter::SpansUnmatched);
                    trace.outside += 1;
                    trace.outside <= self.join.max_spans_per_exchange
                }
            };
            if is_kept && let Some(trace) = self.traces.get_mut(&trace_id) {
                trace.owners.entry(id).or_insert(owner);
            }
            todo.extend(self.orphans.release(trace_id, Some(id)));
        }
    }

    /// Joins a span to a waiting exchange; false if the exchange has no room for it.
    fn join(&mut self, seq: u64, span: IncomingSpan, now: Stamp) -> bool {
        let Some(waiting) = self.waiting.get_mut(&seq) else {
            self.counters.bump(Counter::SpansLate);
            return false;
        };
        waiting.last = now;
        self.routes.sent(waiting.ledger.series, now);
        let ends = waiting.tells_the_end(&span);
        let has_room = waiting.spans.len() < self.join.max_spans_per_exchange;
        self.counters.bump(if has_room { Counter::SpansJoined } else { Counter::SpansShed });
        if has_room {
            waiting.spans.push(span);
        }
        if ends && !std::mem::replace(&mut waiting.is_ended, true) {
            let until = now.plus(self.join.quiet_ns).min(waiting.deadline);
            self.reschedule(seq, until);
        }
        has_room
    }

    fn reschedule(&mut self, seq: u64, due: Stamp) {
        if let Some(waiting) = self.waiting.get_mut(&seq) {
            self.due.remove(&(waiting.due, seq));
            waiting.due = due;
            self.due.insert((due, seq));
        }
    }

    /// Ends the wait of one exchange, with the spans that arrived for it.
    fn finish(&mut self, seq: u64, now: Stamp, done: &mut impl FnMut(Ledger, Vec<IncomingSpan>)) {
        let Some(Waiting { ledger, due, mut spans, .. }) = self.waiting.remove(&seq) else { return };
        self.due.remove(&(due, seq));
        if let Some(trace) = self.traces.get(&ledger.trace) {
            if trace.only() == Some(seq) && self.recent.of_trace(ledger.trace) == 0 {
                spans.extend(self.unknown(&ledger, self.join.max_spans_per_exchange.saturating_sub(spans.len())));
            }
            self.leave(&ledger, &spans);
        }
        self.routes.left(ledger.series, now, !spans.is_empty());
        self.recent.push(ledger.trace, ledger.span, ledger.series);
        self.gauge();
        done(*ledger, spans);
    }

    /// Removes and returns the spans of unknown ancestry that can only belong to this exchange, at most `room` of them.
    fn unknown(&mut self, ledger: &Ledger, room: usize) -> Vec<IncomingSpan> {
        let ran = ledger.anchor_unix_ns..=ledger.anchor_unix_ns.saturating_add(ledger.total_ns);
        let mut unknown = self.orphans.release_unknown(ledger.trace, ledger.parent, |s| ran.contains(&s.start_unix_ns));
        let shed = unknown.len().saturating_sub(room);
        unknown.truncate(room);
        self.counters.add(Counter::SpansJoined, unknown.len() as u64);
        self.counters.add(Counter::SpansShed, shed as u64);
        unknown
    }

    /// Removes an exchange from its trace.
    fn leave(&mut self, ledger: &Ledger, spans: &[IncomingSpan]) {
        let Some(trace) = self.traces.get_mut(&ledger.trace) else { return };
        trace.waiting -= 1;
        if trace.waiting == 0 {
            self.traces.remove(&ledger.trace);
            return;
        }
        trace.owners.remove(&ledger.span);
        for span in spans {
            trace.owners.remove(&span.span);
        }
    }

    /// Counts a span whose exchange is already merged, and all spans that waited for it.
    fn late(&mut self, span: IncomingSpan) {
        let mut todo = vec![span];
        while let Some(span) = todo.pop() {
            self.counters.bump(Counter::SpansLate);
            todo.extend(self.orphans.release(span.trace, Some(span.span)));
        }
    }

    /// Counts `n` spans of `trace` that are dropped.
    fn strayed(&self, trace: TraceId, n: usize) {
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

    fn gauge(&self) {
        self.counters.set(Counter::Pending, self.waiting.len() as u64);
    }
}

#[cfg(test)]
mod tests;
