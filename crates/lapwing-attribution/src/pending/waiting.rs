//! What waits: an exchange for its spans, with what has come for it, and spans whose exchange is not known yet, because it has not closed or a
//! parent in between has not arrived. Those spans are bounded in number and in age; beyond the bound the trace that has waited longest
//! is dropped.

use std::collections::BTreeSet;
use std::collections::hash_map::Entry;

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use lapwing_ledger::{Ledger, Outcome, SpanId, Stamp, TraceId};

use super::super::shapes::{MissingSpans, SpanMark, SpanSet, SpanShape};
use super::super::span::{IncomingSpan, SpanKind};

/// A closed ledger, and the spans that have come for it.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) ledger: Box<Ledger>,
    pub(crate) deadline: Stamp,
    pub(crate) due: Stamp,
    /// When its last span arrived.
    pub(crate) last: Stamp,
    /// Whether the upstream has finished with it, as far as its spans show. See [`Waiting::tells_the_end`].
    pub(crate) is_ended: bool,
    /// When it closed.
    pub(crate) closed: Stamp,
    pub(crate) spans: Vec<IncomingSpan>,
    /// What is known about each of its spans.
    pub(crate) marks: Vec<SpanMark>,
}

impl Waiting {
    pub(crate) fn set(&self) -> SpanSet<'_> {
        SpanSet { series: self.ledger.series, own: self.ledger.span, closed: self.closed, marks: &self.marks }
    }

    /// Whether `span`, which joins this exchange, ends after everything the upstream does for it: its server span, or any span
    /// with others below it (a span is known to be ours only once the spans above it have arrived). A single span below our own
    /// that is neither may be one of several, and the others may be in the exporter's next batch.
    pub(crate) fn tells_the_end(&self, span: &IncomingSpan) -> bool {
        span.parent != Some(self.ledger.span) || matches!(span.kind, SpanKind::Server | SpanKind::Consumer)
    }
}

/// Whether an exchange counts as incomplete. A handler that failed or was cancelled skips stages for a reason.
pub(crate) fn is_incomplete(ledger: &Ledger, missing: MissingSpans) -> bool {
    missing.is_incomplete && ledger.outcome == Outcome::Ok
}

/// What the wait depends on, of a span that joins the exchange whose own span is `own`.
pub(crate) fn mark(span: &IncomingSpan, own: SpanId, came: Stamp) -> SpanMark {
    let is_call = matches!(span.kind, SpanKind::Client | SpanKind::Producer) && !span.is_store_call;
    let waits = span.server.as_ref().is_some_and(|server| server.waits_from_unix_ns.is_some());
    let (id, parent, shape) = (span.span, span.parent.unwrap_or(own), SpanShape::of(span));
    SpanMark { id, parent, shape, process: span.process, came, calls: is_call || waits }
}

/// A trace that has an exchange waiting.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    pub(crate) owners: FxHashMap<SpanId, Owner>,
    pub(crate) waiting: u32,
    /// How many exchanges have waited since the trace came in.
    pub(crate) seen: u32,
    /// The newest of them.
    pub(crate) newest: u64,
    pub(crate) outside: usize,
    /// The clients' spans of the exchanges that wait.
    pub(crate) callers: Vec<SpanId>,
    /// The clients' spans that were passed to the upstream, and the exchange of each.
    pub(crate) passed: SmallVec<[(SpanId, u64); 1]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    Exchange(u64),
    /// The span descends from a root span without passing one of our exchanges.
    Outside,
}

/// The steps between generations of requests.
#[derive(Debug, Default)]
pub(crate) struct Generations {
    /// When the current one began.
    pub(crate) since: Stamp,
    /// Whether the next one begins at the next tick. All requests of the generation before have ended, and their ledgers come
    /// before that tick.
    pub(crate) is_due: bool,
}

impl Trace {
    /// The only exchange that this trace has had since it came in.
    pub(crate) fn only(&self) -> Option<u64> {
        (self.seen == 1).then_some(self.newest)
    }
}

/// Spans by trace and parent.
#[derive(Debug)]
pub(crate) struct Orphans {
    traces: FxHashMap<TraceId, Held>,
    /// When each trace's oldest span is due to be dropped.
    order: BTreeSet<(Stamp, TraceId)>,
    len: usize,
    capacity: usize,
    age_ns: u64,
}

#[derive(Debug)]
struct Held {
    by_parent: FxHashMap<Option<SpanId>, Vec<(Stamp, IncomingSpan)>>,
    len: usize,
    due: Stamp,
    /// When the newest span came, and the generation of requests that was current then.
    newest: (Stamp, u64),
}

impl Orphans {
    /// An empty table for `capacity` spans, each for at most `age_ns`.
    pub(crate) fn new(capacity: usize, age_ns: u64) -> Self {
        Self { traces: FxHashMap::default(), order: BTreeSet::new(), len: 0, capacity, age_ns }
    }

    /// Applies these bounds from now on. Spans that are already held leave when the next ones arrive, or by age.
    pub(crate) const fn set(&mut self, capacity: usize, age_ns: u64) {
        (self.capacity, self.age_ns) = (capacity, age_ns);
    }

    /// How many spans are held.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// The sizes of every structure: spans, traces, due times, parents, spans again.
    #[cfg(test)]
    pub(crate) fn sizes(&self) -> [usize; 5] {
        let parents = self.traces.values().map(|held| held.by_parent.len()).sum();
        let spans = self.traces.values().flat_map(|held| held.by_parent.values()).map(Vec::len).sum();
        [self.len, self.traces.len(), self.order.len(), parents, spans]
    }

    /// Whether any span of `trace` is held.
    pub(crate) fn has(&self, trace: TraceId) -> bool {
        self.traces.contains_key(&trace)
    }

    /// Holds a span that came in this generation of requests. If the table is full, drops the trace that has waited longest and returns how many spans it had.
    pub(crate) fn hold(&mut self, span: IncomingSpan, now: Stamp, generation: u64) -> usize {
        let trace = span.trace;
        let due = now.plus(self.age_ns);
        let held = self.traces.entry(trace).or_insert_with(|| {
            self.order.insert((due, trace));
            Held { by_parent: FxHashMap::default(), len: 0, due, newest: (now, generation) }
        });
        held.newest = (now, generation);
        match held.by_parent.entry(span.parent) {
            Entry::Occupied(siblings) => siblings.into_mut().push((now, span)),
            // most have no siblings here; a fresh vector would make room for four
            Entry::Vacant(place) => drop(place.insert(vec![(now, span)])),
        }
        held.len += 1;
        self.len += 1;
        match self.order.first() {
            Some((_, oldest)) if self.len > self.capacity => self.drop_trace(*oldest),
            _ => 0,
        }
    }

    /// Removes and returns the children of `parent` (of no parent for `None`).
    pub(crate) fn release(&mut self, trace: TraceId, parent: Option<SpanId>) -> Vec<IncomingSpan> {
        let Some(held) = self.traces.get_mut(&trace) else { return Vec::new() };
        let Some(spans) = held.by_parent.remove(&parent) else { return Vec::new() };
        held.len -= spans.len();
        self.len -= spans.len();
        if held.len == 0 {
            self.drop_trace(trace);
        }
        spans.into_iter().map(|(_, span)| span).collect()
    }

    /// Drops the spans that are too old, and calls `gone` with each trace and the number of its spans dropped.
    pub(crate) fn expire(&mut self, now: Stamp, mut gone: impl FnMut(TraceId, usize)) {
        while let Some((due, trace)) = self.order.first().copied().filter(|(due, _)| *due <= now) {
            self.order.remove(&(due, trace));
            let Some(held) = self.traces.get_mut(&trace) else { continue };
            let age_ns = self.age_ns;
            let mut oldest: Option<Stamp> = None;
            let before = held.len;
            held.by_parent.retain(|_, spans| {
                spans.retain(|(came, _)| now.since(*came) < age_ns);
                oldest = oldest.into_iter().chain(spans.first().map(|(came, _)| *came)).min();
                !spans.is_empty()
            });
            held.len = held.by_parent.values().map(Vec::len).sum();
            let went = before - held.len;
            self.len -= went;
            match oldest {
                Some(came) => {
                    held.due = came.plus(age_ns);
                    self.order.insert((held.due, trace));
                }
                None => drop(self.traces.remove(&trace)),
            }
            gone(trace, went);
        }
    }

    /// Drops the traces for which `is_over`, by when their newest span came and the generation of requests then.
    pub(crate) fn drop_if(&mut self, mut is_over: impl FnMut(TraceId, Stamp, u64) -> bool, mut gone: impl FnMut(TraceId, usize)) {
        let is_over = |(trace, held): &(&TraceId, &Held)| is_over(**trace, held.newest.0, held.newest.1);
        let over: Vec<TraceId> = self.traces.iter().filter(is_over).map(|(trace, _)| *trace).collect();
        over.into_iter().for_each(|trace| gone(trace, self.drop_trace(trace)));
    }

    /// Drops everything.
    pub(crate) fn clear(&mut self, mut gone: impl FnMut(TraceId, usize)) {
        self.traces.drain().for_each(|(trace, held)| gone(trace, held.len));
        self.order.clear();
        self.len = 0;
    }

    /// Removes and returns every tree of spans whose topmost parent never arrived and one of whose top spans `fits`, except trees
    /// that contain the span `above` or descend from it: those are next to the exchange or above it, not below.
    pub(crate) fn release_unknown(
        &mut self,
        trace: TraceId,
        above: SpanId,
        fits: impl Fn(&IncomingSpan) -> bool,
    ) -> Vec<IncomingSpan> {
        let Some(held) = self.traces.get(&trace) else { return Vec::new() };
        let ids: FxHashSet<SpanId> = held.by_parent.values().flatten().map(|(_, s)| s.span).collect();
        let tops = held.by_parent.iter().filter_map(|(parent, spans)| {
            let parent = parent.filter(|p| *p != above && !ids.contains(p))?;
            spans.iter().any(|(_, s)| fits(s)).then_some(parent)
        });
        let parents: Vec<SpanId> = tops.filter_map(|top| held.tree(top, above)).flatten().collect();
        parents.into_iter().flat_map(|parent| self.release(trace, Some(parent))).collect()
    }

    fn drop_trace(&mut self, trace: TraceId) -> usize {
        let Some(held) = self.traces.remove(&trace) else { return 0 };
        self.order.remove(&(held.due, trace));
        self.len -= held.len;
        held.len
    }
}

impl Held {
    /// Every parent in the tree below `top`; `None` if `above` is in it.
    fn tree(&self, top: SpanId, above: SpanId) -> Option<Vec<SpanId>> {
        let mut seen = FxHashSet::from_iter([top]);
        let mut todo = vec![top];
        let mut parents = Vec::new();
        while let Some(parent) = todo.pop() {
            let Some(spans) = self.by_parent.get(&Some(parent)) else { continue };
            parents.push(parent);
            if spans.iter().any(|(_, s)| s.span == above) {
                return None;
            }
            todo.extend(spans.iter().map(|(_, s)| s.span).filter(|id| seen.insert(*id)));
        }
        Some(parents)
    }
}
