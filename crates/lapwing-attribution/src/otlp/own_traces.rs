//! What Lapwing changed in the traces that pass through it: which it began, which it sampled by force, and which spans are its own.
//!
//! A trace that Lapwing began is recognised by its mark, and so is Lapwing's span in it. A client's trace that Lapwing sampled by
//! force, and Lapwing's span in a client's trace, are remembered in bounded tables.

use std::hash::Hash;
use std::mem;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use lapwing_ledger::{SamplingThreshold, SpanId, TraceId, TraceMark};

/// Entries that a table remembers: at least this many, at most twice as many (5 MiB).
const REMEMBERED: usize = 65_536;

/// What Lapwing changed in traces.
#[derive(Debug)]
pub struct OwnTraces {
    mark: TraceMark,
    forced: Mutex<RecentMap<TraceId, ()>>,
    parents: Mutex<RecentMap<SpanId, SpanId>>,
    /// The ids of Lapwing's spans in contexts other than `traceparent`.
    others: Mutex<RecentMap<SpanId, SpanId>>,
    /// The share of traces that Lapwing's own spans are sent of, whatever else happens; `None` while it sends none.
    share: Option<SamplingThreshold>,
    /// Lapwing's spans that are sent for another reason.
    sent: Mutex<RecentMap<SpanId, ()>>,
}

/// Who decided that a trace is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SampledBy {
    /// Lapwing began the trace.
    Lapwing,
    /// Lapwing, although the client had decided against it.
    LapwingByForce,
    /// The client.
    Client,
}

impl OwnTraces {
    /// Recognises the traces that carry `mark`; no other is known yet.
    #[must_use]
    pub fn new(mark: TraceMark) -> Self {
        Self::with_capacity(mark, REMEMBERED)
    }

    fn with_capacity(mark: TraceMark, capacity: usize) -> Self {
        let (forced, parents) = (Mutex::new(RecentMap::new(capacity)), Mutex::new(RecentMap::new(capacity)));
        let others = Mutex::new(RecentMap::new(capacity));
        Self { mark, forced, parents, others, share: None, sent: Mutex::new(RecentMap::new(capacity)) }
    }

    /// The mark of the traces that Lapwing starts.
    #[must_use]
    pub const fn mark(&self) -> TraceMark {
        self.mark
    }

    /// Remembers a client's trace that is sampled only because Lapwing forced it. After 65,536 later ones it may be forgotten, and
    /// its spans would then be forwarded. Called on the request path: one short lock, no allocation once warm.
    pub fn force(&self, trace: TraceId) {
        self.forced.lock().insert(trace, ());
    }

    /// Remembers that Lapwing's `span` took the place of a client's `parent`. After 65,536 later ones it may be forgotten, and the
    /// children of `span` would then be forwarded with a parent that is never sent. Called on the request path: one short lock, no
    /// allocation once warm.
    pub fn record_parent(&self, span: SpanId, parent: SpanId) {
        self.parents.lock().insert(span, parent);
    }

    /// Remembers that `other` is the id of Lapwing's `span` in a context other than `traceparent`. After 65,536 later ones it may be forgotten.
    /// Called on the request path, where such contexts are written.
    pub fn record_other(&self, other: SpanId, span: SpanId) {
        self.others.lock().insert(other, span);
    }

    /// Lapwing's span with the id `span` in another context, or `span` itself.
    pub(crate) fn own_of(&self, span: SpanId) -> SpanId {
        self.others.lock().get(&span).copied().unwrap_or(span)
    }

    /// Lapwing sends its own spans of this share of traces to a collector.
    #[must_use]
    pub fn sending(self, share: SamplingThreshold) -> Self {
        Self { share: Some(share), ..self }
    }

    /// Remembers that Lapwing's `span` is sent to a collector although its trace is not of the share. After 65,536 later ones it may be
    /// forgotten.
    pub fn record_sent(&self, span: SpanId) {
        self.sent.lock().insert(span, ());
    }

    /// Whether Lapwing's `span` of `trace` is sent to a collector, as far as that is decided.
    pub(crate) fn is_sent(&self, trace: TraceId, span: SpanId) -> bool {
        self.share.is_some_and(|share| share.samples(trace) || self.sent.lock().get(&span).is_some())
    }

    /// Who decided that `trace` is sampled.
    pub(crate) fn sampled_by(&self, trace: TraceId) -> SampledBy {
        if self.mark.made(trace) {
            SampledBy::Lapwing
        } else if self.forced.lock().get(&trace).is_some() {
            SampledBy::LapwingByForce
        } else {
            SampledBy::Client
        }
    }

    /// If `span` of `trace` is Lapwing's: the span whose place it took, or `None` within where Lapwing began the trace.
    pub(crate) fn replaced_parent(&self, trace: TraceId, span: SpanId) -> Option<Option<SpanId>> {
        if self.mark.made(trace) && self.mark.root_span(trace) == span {
            return Some(None);
        }
        self.parents.lock().get(&span).map(|parent| Some(*parent))
    }
}

/// The most recent entries, in two generations: when the younger one is full, the older one is forgotten.
#[derive(Debug)]
struct RecentMap<K, V> {
    younger: FxHashMap<K, V>,
    older: FxHashMap<K, V>,
    capacity: usize,
}

impl<K: Eq + Hash, V> RecentMap<K, V> {
    fn new(capacity: usize) -> Self {
        Self { younger: FxHashMap::default(), older: FxHashMap::default(), capacity }
    }

    fn insert(&mut self, key: K, value: V) {
        if self.younger.len() >= self.capacity {
            // the older generation's memory is used again: no allocation
            mem::swap(&mut self.younger, &mut self.older);
            self.younger.clear();
        }
        self.younger.insert(key, value);
    }

    fn get(&self, key: &K) -> Option<&V> {
        self.younger.get(key).or_else(|| self.older.get(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_known_by_who_decided_that_it_is_sampled() {
        let mark = TraceMark::random();
        let own = OwnTraces::new(mark);
        let (made, forced, theirs) = (mark.make(), TraceId([7; 16]), TraceId([8; 16]));
        own.force(forced);
        assert_eq!(
            [made, forced, theirs].map(|trace| own.sampled_by(trace)),
            [SampledBy::Lapwing, SampledBy::LapwingByForce, SampledBy::Client]
        );
        assert_eq!(own.sampled_by(TraceMark::random().make()), SampledBy::Client);
    }

    #[test]
    fn lapwings_span_is_known_by_its_trace_or_because_it_was_recorded() {
        let mark = TraceMark::random();
        let own = OwnTraces::new(mark);
        let (made, ours, theirs) = (mark.make(), SpanId([1; 8]), SpanId([2; 8]));
        own.record_parent(ours, theirs);
        assert_eq!(own.replaced_parent(made, mark.root_span(made)), Some(None));
        assert_eq!(own.replaced_parent(TraceId([7; 16]), ours), Some(Some(theirs)));
        // a request that the server of a trace begun here sends through Lapwing again
        assert_eq!(own.replaced_parent(made, ours), Some(Some(theirs)));
        assert_eq!(own.replaced_parent(made, theirs), None);
    }

    #[test]
    fn a_span_is_sent_with_the_share_or_for_a_reason_of_its_own() {
        let own = OwnTraces::new(TraceMark::random());
        let (low, high) = (TraceId([0; 16]), TraceId([0xff; 16]));
        own.record_sent(SpanId([1; 8]));
        assert!(!own.is_sent(high, SpanId([1; 8])), "nothing is sent");
        let own = own.sending(SamplingThreshold::of_share(0.5));
        assert!(own.is_sent(high, SpanId([2; 8])) && own.is_sent(low, SpanId([1; 8])));
        assert!(!own.is_sent(low, SpanId([2; 8])));
    }

    #[test]
    fn as_many_as_promised_are_remembered_and_not_more_than_twice_as_many() {
        let own = OwnTraces::with_capacity(TraceMark::random(), 10);
        let (trace, span) = (|i: u8| TraceId([i; 16]), |i: u8| SpanId([i; 8]));
        for last in 1..=100 {
            own.force(trace(last));
            own.record_parent(span(last), span(last));
            let is_forced = |i: &u8| own.sampled_by(trace(*i)) == SampledBy::LapwingByForce;
            let has_parent = |i: &u8| own.replaced_parent(trace(*i), span(*i)).is_some();
            assert!((last.saturating_sub(9).max(1)..=last).all(|i| is_forced(&i) && has_parent(&i)), "{last}");
            assert!((1..=last).filter(is_forced).count() <= 20 && (1..=last).filter(has_parent).count() <= 20);
        }
    }
}
