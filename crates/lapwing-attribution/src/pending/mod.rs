//! The pending join: closed ledgers wait here for their spans, and spans for their ledger. Everything is bounded; each event
//! costs a few look-ups, however much is pending.
//!
//! A span belongs to an exchange if its chain of parents ends at the exchange's own span. Chains are resolved as spans arrive: a
//! span whose parent is known joins at once and takes the children that waited for it; the others are held. When the only
//! exchange that a trace ever had stops waiting, it also takes the trees whose topmost parent never arrived, if they start while
//! it ran. A span of an exchange that was merged already is added to it, so that it can be merged again. Spans that remain are
//! dropped and counted as soon as no request that was open when they came is open any more, else by age. How long an exchange
//! waits is learnt ([`Shapes`]). Time is passed in as stamps; no clock is read here.

mod context_trial;
mod contexts;
mod late;
mod waiting;

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use lapwing_ledger::{LabelId, Ledger, SpanId, Stamp, TraceId};
use lapwing_metrics::{Counter, Counters};

use self::context_trial::ContextTrial;
use self::waiting::{Generations, Orphans, Owner, Trace, Waiting, is_incomplete, mark};
use super::expect::{Routes, SpanExpectation, WaitDecision};
use super::join_settings::JoinSettings;
use super::passed_contexts::{reparent, traces_of};
use super::recent::Recent;
use super::settled::{Settled, SettledExchange};
use super::shapes::{MissingSpans, Shapes};
use super::span::IncomingSpan;

/// An exchange's own span and those of its upstream: room is reserved for this many at once.
const USUAL_SPANS: usize = 9;

/// Waiting ledgers, in the order in which they closed.
#[derive(Debug)]
pub(crate) struct Pending {
    join: JoinSettings,
    counters: Arc<Counters>,
    waiting: BTreeMap<u64, Waiting>,
    /// When each one is examined next.
    due: BTreeSet<(Stamp, u64)>,
    traces: FxHashMap<TraceId, Trace>,
    orphans: Orphans,
    recent: Recent,
    routes: Routes,
    shapes: Shapes,
    settled: Settled,
    /// Merged exchanges that late spans were added to.
    changed: BTreeSet<u64>,
    generations: Generations,
    contexts: ContextTrial,
    next: u64,
}

impl Pending {
    pub(crate) fn new(join: JoinSettings, counters: Arc<Counters>) -> Self {
        Self {
            waiting: BTreeMap::new(),
            due: BTreeSet::new(),
            traces: FxHashMap::default(),
            orphans: Orphans::new(join.max_orphan_spans, join.orphan_ns),
            recent: Recent::default(),
            routes: Routes::new(join.expect, join.grace_ns),
            shapes: Shapes::default(),
            settled: Settled::default(),
            changed: BTreeSet::new(),
            generations: Generations::default(),
            contexts: ContextTrial::default(),
            next: 0,
            join,
            counters,
        }
    }

    /// Joins by `join` from now on; what waits already keeps the deadline that it has.
    pub(crate) const fn set_join(&mut self, join: JoinSettings) {
        self.join = join;
        self.orphans.set(join.max_orphan_spans, join.orphan_ns);
        self.routes.set(join.expect, join.grace_ns);
    }

    /// Forgets what was learnt of routes that are not kept.
    pub(crate) fn retain_routes(&mut self, is_kept: impl Fn(LabelId) -> bool) {
        self.routes.retain(&is_kept);
        self.shapes.retain(&is_kept);
    }

    /// Takes a closed ledger: calls `done` at once if no spans are expected, else later. `done` gets the ledger, its spans, and
    /// whether spans are missing that exchanges like it have.
    pub(crate) fn ledger(&mut self, ledger: Box<Ledger>, now: Stamp, done: &mut impl FnMut(Box<Ledger>, &[IncomingSpan], bool)) {
        self.contexts.closed(&ledger, now);
        if !ledger.traced || self.join.expect == SpanExpectation::Never {
            return done(ledger, &[], false);
        }
        let (trace_id, own, series) = (ledger.trace, ledger.span, ledger.series);
        let is_expected = match self.routes.wait(series, now) {
            // no span can claim anything, and an upstream that is down must not count as one that sends no spans
            _ if ledger.window.is_none() => false,
            WaitDecision::Yes => true,
            // a probe displaces no other exchange
            WaitDecision::Probe if self.waiting.len() * 2 < self.join.max_pending => true,
            WaitDecision::Probe | WaitDecision::No => traces_of(&ledger).iter().any(|trace| self.orphans.has(*trace)),
        };
        if !is_expected || self.join.max_pending == 0 {
            self.counters.add(Counter::PendingEvicted, u64::from(is_expected));
            self.remember(&ledger);
            return done(ledger, &[], false);
        }
        if self.waiting.len() >= self.join.max_pending
            && let Some(oldest) = self.waiting.keys().next().copied()
        {
            self.counters.bump(Counter::PendingEvicted);
            self.finish(oldest, now, false, done);
        }
        self.routes.entered(series, now);
        let seq = self.next;
        self.next += 1;
        let trace = self.traces.entry(trace_id).or_default();
        if trace.owners.is_empty() {
            trace.owners.reserve(USUAL_SPANS);
        }
        trace.owners.insert(own, Owner::Exchange(seq));
        trace.callers.push(ledger.parent);
        (trace.waiting, trace.seen, trace.newest) = (trace.waiting + 1, trace.seen.saturating_add(1), seq);
        self.register_passed(seq, &ledger);
        let due = now.plus(self.join.grace_ns);
        self.due.insert((due, seq));
        let passed = ledger.passed_contexts.clone();
        let waiting =
            Waiting { ledger, deadline: due, due, last: now, is_ended: false, closed: now, spans: Vec::new(), marks: Vec::new() };
        self.waiting.insert(seq, waiting);
        self.gauge();
        let mut early = self.orphans.release(trace_id, Some(own));
        early.extend(passed.iter().flat_map(|passed| passed.iter()).flat_map(|at| self.orphans.release(at.trace, Some(at.span))));
        early.into_iter().for_each(|span| self.adopt(Owner::Exchange(seq), span, now));
        let roots = self.orphans.release(trace_id, None);
        roots.into_iter().for_each(|span| self.adopt(Owner::Outside, span, now));
        if let Some(waiting) = self.waiting.get(&seq).filter(|waiting| waiting.spans.is_empty()) {
            let until = self.until(seq, waiting, now);
            self.reschedule(seq, until);
        }
    }

    /// Takes a received span.
    pub(crate) fn span(&mut self, span: IncomingSpan, now: Stamp) {
        if self.join.expect == SpanExpectation::Never {
            return self.counters.bump(Counter::SpansUnmatched);
        }
        let trace = self.traces.get(&span.trace);
        if let Some(trace) = trace {
            let owner = match span.parent {
                Some(parent) => trace.owners.get(&parent).copied().or_else(|| self.owner_by_client(trace, parent, &span)),
                None => Some(Owner::Outside),
            };
            if let Some(owner) = owner {
                return self.adopt(owner, span, now);
            }
        }
        if let Some(number) = span.parent.and_then(|parent| self.settled.find(span.trace, parent)) {
            return self.mend(number, span, now);
        }
        if let Some(series) = span.parent.and_then(|parent| self.recent.series(span.trace, parent)) {
            self.routes.sent(series, now);
            self.contexts.came();
            return self.late(span);
        }
        if let Some(only) = trace.and_then(Trace::only).and_then(|seq| self.waiting.get_mut(&seq)) {
            only.last = now;
        }
        self.contexts.unmatched(&span, now, self.join.grace_ns);
        let shed = self.orphans.hold(span, now, self.counters.open_requests().generation());
        self.counters.add(Counter::SpansShed, shed as u64);
    }

    /// Finishes the exchanges that are due.
    pub(crate) fn tick(&mut self, now: Stamp, done: &mut impl FnMut(Box<Ledger>, &[IncomingSpan], bool)) {
        while let Some((due, seq)) = self.due.first().copied().filter(|(due, _)| *due <= now) {
            let Some(waiting) = self.waiting.get(&seq) else {
                self.due.remove(&(due, seq));
                continue;
            };
            let until = self.until(seq, waiting, now);
            if until <= now {
                self.finish(seq, now, true, done);
            } else {
                self.reschedule(seq, until);
            }
        }
    }

    /// Finishes all exchanges, and drops all spans without an exchange.
    pub(crate) fn flush(&mut self, now: Stamp, done: &mut impl FnMut(Box<Ledger>, &[IncomingSpan], bool)) {
        while let Some(seq) = self.waiting.keys().next().copied() {
            self.finish(seq, now, false, done);
        }
        let mut gone = Vec::new();
        self.orphans.clear(|trace, n| gone.push((trace, n)));
        gone.into_iter().for_each(|(trace, n)| self.strayed(trace, n));
    }

    /// The number of waiting exchanges, and the number of spans held.
    pub(crate) fn fill(&self) -> (usize, usize) {
        (self.waiting.len(), self.orphans.len())
    }

    /// The sizes of every structure: exchanges, due times, traces, owned spans, and what [`Orphans`] hold.
    #[cfg(test)]
    pub(crate) fn sizes(&self) -> [usize; 9] {
        let owners = self.traces.values().map(|t| t.owners.len()).sum();
        let [len, traces, order, parents, spans] = self.orphans.sizes();
        [self.waiting.len(), self.due.len(), self.traces.len(), owners, len, traces, order, parents, spans]
    }

    /// Assigns `span`, and all spans that waited for it, to `owner`.
    fn adopt(&mut self, owner: Owner, span: IncomingSpan, now: Stamp) {
        let (mut next, mut todo) = (Some(span), Vec::new());
        while let Some(span) = next.take().or_else(|| todo.pop()) {
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
    fn join(&mut self, seq: u64, mut span: IncomingSpan, now: Stamp) -> bool {
        let Some(waiting) = self.waiting.get_mut(&seq) else {
            self.counters.bump(Counter::SpansLate);
            return false;
        };
        waiting.last = now;
        self.routes.sent(waiting.ledger.series, now);
        let by = reparent(&waiting.ledger, &mut span);
        self.contexts.joined(by);
        let ends = waiting.tells_the_end(&span);
        // several links of a batch's span may lead to one request
        if span.shared.is_some() && waiting.spans.iter().any(|known| known.origin() == span.origin()) {
            self.counters.bump(Counter::SpansJoined);
            return false;
        }
        let has_room = waiting.spans.len() < self.join.max_spans_per_exchange;
        self.counters.bump(if has_room { Counter::SpansJoined } else { Counter::SpansShed });
        if has_room {
            waiting.marks.push(mark(&span, waiting.ledger.span, now));
            waiting.spans.push(span);
        }
        waiting.is_ended |= ends;
        let until = now.plus(self.join.quiet_ns).min(waiting.deadline);
        if until < waiting.due {
            self.reschedule(seq, until);
        }
        has_room
    }

    /// When an exchange is finished or examined again.
    fn until(&self, seq: u64, waiting: &Waiting, now: Stamp) -> Stamp {
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
    fn missing(&self, waiting: &Waiting) -> MissingSpans {
        let trace_id = waiting.ledger.trace;
        let is_followed = |call: SpanId| {
            let waits = self.traces.get(&trace_id).is_some_and(|trace| trace.callers.contains(&call));
            waits || self.settled.has_caller(trace_id, call)
        };
        self.shapes.missing(waiting.set(), is_followed)
    }

    fn reschedule(&mut self, seq: u64, due: Stamp) {
        if let Some(waiting) = self.waiting.get_mut(&seq) {
            self.due.remove(&(waiting.due, seq));
            waiting.due = due;
            self.due.insert((due, seq));
        }
    }

    /// Ends the wait of one exchange, with the spans that arrived for it. It is learnt from if it waited as long as it should.
    fn finish(&mut self, seq: u64, now: Stamp, is_learnt: bool, done: &mut impl FnMut(Box<Ledger>, &[IncomingSpan], bool)) {
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
    fn leave(&mut self, seq: u64, ledger: &Ledger, spans: &[IncomingSpan]) {
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

    fn gauge(&self) {
        self.counters.set(Counter::Pending, self.waiting.len() as u64);
    }
}

#[cfg(test)]
mod tests;
