//! The pending join, event by event: which exchange gets which span, when the wait ends, what is counted, and that no table
//! grows without bound.

mod contexts;
mod learnt;

use super::*;
use crate::{ProcessId, SharedSpan, SpanKind};
use lapwing_ledger::{LabelTable, SeriesKey, UpstreamWindow};

/// Units of the tests' clock; the wall clock is [`WALL`] ahead of the stamps.
const MS: u64 = 1_000_000;
const WALL: u64 = 1_000_000 * MS;
/// How long every request of the tests took.
const TOTAL: u64 = 10 * MS;

fn at(ms: u64) -> Stamp {
    Stamp::default().plus(ms * MS)
}

fn trace(n: u8) -> TraceId {
    TraceId([n; 16])
}

fn id(n: u64) -> SpanId {
    SpanId(n.to_be_bytes())
}

/// A closed ledger whose own span is `own` and whose caller's is `own + 1000`; it started with the tests' clock.
fn ledger(n: u8, own: u64) -> Ledger {
    let mut ledger = Ledger::open(at(0), WALL);
    (ledger.trace, ledger.span, ledger.parent) = (trace(n), id(own), id(own + 1000));
    (ledger.traced, ledger.total_ns, ledger.window) = (true, TOTAL, Some(UpstreamWindow::default()));
    ledger
}

/// A span one millisecond into the request; a server span if it hangs from an exchange's own (those are below 10).
fn span(n: u8, span: u64, parent: u64) -> IncomingSpan {
    IncomingSpan {
        trace: trace(n),
        span: id(span),
        parent: Some(id(parent)),
        name: span.to_string().into(),
        kind: if parent < 10 { SpanKind::Server } else { SpanKind::Internal },
        stage: None,
        phase: None,
        is_store_call: false,
        start_unix_ns: WALL + MS,
        end_unix_ns: WALL + 2 * MS,
        service: Arc::from("app/1"),
        process: ProcessId::default(),
        cache: crate::CacheLookups::default(),
        server: None,
        shifted_ns: 0,
        shared: None,
    }
}

fn root(n: u8, s: u64) -> IncomingSpan {
    IncomingSpan { parent: None, ..span(n, s, 0) }
}

/// The series of another route, by number.
fn other(route: u32) -> SeriesKey {
    let names = LabelTable::new(64);
    let name = (0..=route).map(|n| names.intern(&n.to_string())).last().unwrap_or_default();
    SeriesKey { route: name, ..SeriesKey::default() }
}

/// A table, and what came out of it: own span, and the names of its spans.
struct Bench {
    pending: Pending,
    out: Vec<(SpanId, Vec<String>)>,
}

impl Bench {
    fn new(change: impl FnOnce(&mut JoinSettings)) -> Self {
        let mut join = JoinSettings { expect: SpanExpectation::Always, ..JoinSettings::default() };
        change(&mut join);
        Self { pending: Pending::new(join, Arc::default()), out: Vec::new() }
    }

    fn ledger(&mut self, ms: u64, ledger: Ledger) {
        self.pending.ledger(ledger.into(), at(ms), &mut |l, s, _| self.out.push(merged(&l, s)));
    }

    fn spans(&mut self, ms: u64, spans: impl IntoIterator<Item = IncomingSpan>) {
        spans.into_iter().for_each(|s| self.pending.span(s, at(ms)));
    }

    fn tick(&mut self, ms: u64) {
        self.pending.tick(at(ms), &mut |l, s, _| self.out.push(merged(&l, s)));
        self.pending.drop_strays(at(ms));
    }

    fn flush(&mut self, ms: u64) {
        self.pending.flush(at(ms), &mut |l, s, _| self.out.push(merged(&l, s)));
    }

    /// What came out since the last call, as `own: names in order`.
    fn out(&mut self) -> Vec<String> {
        let own = |id: SpanId| u64::from_be_bytes(id.0);
        self.out.drain(..).map(|(id, names)| format!("{}: {}", own(id), names.join(" "))).collect()
    }

    /// Joined, ambiguous, unmatched, late, shed.
    fn counts(&self) -> [u64; 5] {
        use Counter::{SpansAmbiguous, SpansJoined, SpansLate, SpansShed, SpansUnmatched};
        [SpansJoined, SpansAmbiguous, SpansUnmatched, SpansLate, SpansShed].map(|c| self.pending.counters.get(c))
    }

    fn evicted(&self) -> u64 {
        self.pending.counters.get(Counter::PendingEvicted)
    }

    fn is_empty(&self) -> bool {
        self.pending.sizes() == [0; 9]
    }
}

fn merged(ledger: &Ledger, spans: &[IncomingSpan]) -> (SpanId, Vec<String>) {
    let mut names: Vec<String> = spans.iter().map(|s| s.name.to_string()).collect();
    names.sort();
    (ledger.span, names)
}

#[test]
fn children_come_first_and_the_server_span_ends_the_wait() {
    let mut b = Bench::new(|_| {});
    b.ledger(0, ledger(1, 1));
    b.spans(100, [span(1, 12, 11), span(1, 11, 10), span(1, 10, 1)]);
    b.tick(349);
    assert_eq!(b.out(), [""; 0], "not quiet yet");
    b.tick(350);
    assert_eq!((b.out(), b.counts()), (vec!["1: 10 11 12".to_owned()], [3, 0, 0, 0, 0]));
    assert!(b.is_empty());
}

#[test]
fn spans_may_come_before_their_ledger() {
    let mut b = Bench::new(|_| {});
    b.spans(0, [span(1, 11, 10), root(1, 20), span(1, 21, 20), span(1, 10, 1)]);
    b.ledger(5, ledger(1, 1));
    b.tick(260);
    assert_eq!((b.out(), b.counts()), (vec!["1: 10 11".to_owned()], [2, 0, 2, 0, 0]));
    assert!(b.is_empty());
}

#[test]
fn each_request_of_a_trace_gets_what_descends_from_its_own_span() {
    let mut b = Bench::new(|_| {});
    // The second is made by the first's handler: its caller's span is the first's span 12.
    let mut nested = ledger(1, 2);
    nested.parent = id(12);
    b.ledger(0, nested);
    b.spans(1, [span(1, 31, 30), span(1, 11, 10)]);
    b.ledger(2, ledger(1, 1));
    b.ledger(3, ledger(1, 3));
    b.spans(4, [span(1, 30, 2), span(1, 12, 10), span(1, 10, 1), span(1, 40, 3)]);
    b.tick(300);
    let mut out = b.out();
    out.sort();
    assert_eq!(out, ["1: 10 11 12", "2: 30 31", "3: 40"]);
    assert_eq!(b.counts(), [6, 0, 0, 0, 0]);
    assert!(b.is_empty());
}

#[test]
fn without_a_server_span_the_grace_period_ends_the_wait() {
    let mut b = Bench::new(|_| {});
    let leaf = |n| IncomingSpan { kind: SpanKind::Internal, ..span(1, n, 1) };
    b.ledger(0, ledger(1, 1));
    b.spans(100, [leaf(10)]);
    b.tick(5_000);
    b.spans(5_000, [leaf(11)]);
    b.tick(5_999);
    assert_eq!(b.out(), [""; 0], "one of several, the rest of which may be in the next batch");
    b.tick(6_000);
    assert_eq!(b.out(), ["1: 10 11"]);

    b.ledger(7_000, ledger(2, 2));
    b.spans(7_000, [span(2, 21, 20), IncomingSpan { kind: SpanKind::Internal, ..span(2, 20, 2) }]);
    b.tick(7_250);
    assert_eq!(b.out(), ["2: 20 21"], "but a span that others lie below ends after them");
}

#[test]
fn every_span_puts_the_end_off_but_not_beyond_the_grace_period() {
    let mut b = Bench::new(|_| {});
    b.ledger(0, ledger(1, 1));
    b.spans(0, [span(1, 10, 1)]);
    for (n, ms) in (100..5_800).step_by(200).enumerate() {
        b.spans(ms, [span(1, 100 + n as u64, 10)]);
        b.tick(ms + 199);
        assert_eq!(b.out(), [""; 0], "at {ms}");
    }
    b.tick(6_000);
    assert_eq!(b.out().len(), 1);
}

#[test]
fn a_child_without_its_parent_is_waited_for() {
    let mut b = Bench::new(|_| {});
    b.ledger(0, ledger(1, 1));
    b.spans(0, [span(1, 10, 1), span(1, 12, 11)]);
    b.tick(3_000);
    assert_eq!(b.out(), [""; 0]);
    b.spans(3_000, [span(1, 11, 10)]);
    b.tick(3_250);
    assert_eq!((b.out(), b.counts()), (vec!["1: 10 11 12".to_owned()], [3, 0, 0, 0, 0]));
}

#[test]
fn unknown_ancestry_joins_the_only_exchange_of_its_trace_that_ran_then() {
    let mut b = Bench::new(|_| {});
    b.ledger(0, ledger(1, 1));
    let before = IncomingSpan { start_unix_ns: WALL - 1, ..span(1, 13, 500) };
    let beside = span(1, 14, 1001);
    b.spans(0, [span(1, 12, 499), span(1, 11, 12), before, beside]);
    b.tick(6_000);
    assert_eq!((b.out(), b.counts()), (vec!["1: 11 12".to_owned()], [2, 0, 0, 0, 0]));
    b.tick(60_000);
    assert_eq!(b.counts(), [2, 0, 0, 2, 0], "the others are given up");
    assert!(b.is_empty());
}

#[test]
fn unknown_ancestry_is_ambiguous_between_two_exchanges_even_if_one_is_merged() {
    let mut b = Bench::new(|_| {});
    b.ledger(0, ledger(1, 1));
    b.ledger(0, ledger(1, 2));
    b.spans(0, [span(1, 12, 499), span(1, 11, 12)]);
    b.tick(6_000);
    assert_eq!(b.out(), ["1: ", "2: "]);
    b.ledger(6_001, ledger(1, 3));
    b.tick(12_001);
    assert_eq!(b.out(), ["3: "]);
    b.tick(60_000);
    assert_eq!(b.counts(), [0, 2, 0, 0, 0]);
    assert!(b.is_empty());
}

#[test]
fn spans_of_no_request_are_unmatched() {
    let mut b = Bench::new(|_| {});
    let counters = b.pending.counters.clone();
    let open = counters.open_requests().begin();
    b.spans(0, [span(7, 12, 11), root(7, 11), span(8, 5, 5)]);
    (0..60_000).step_by(20).for_each(|ms| b.tick(ms));
    assert_eq!(b.counts(), [0; 5], "a request that was open when they came is open still");
    b.tick(60_000);
    assert_eq!(b.counts(), [0, 0, 3, 0, 0]);
    counters.open_requests().end(open);
    b.ledger(60_000, ledger(1, 1));
    b.spans(60_000, [root(1, 20), span(1, 21, 20)]);
    assert_eq!(b.counts(), [0, 0, 5, 0, 0], "above or beside ours");
    b.flush(60_000);
    assert_eq!(b.out(), ["1: "]);
    assert!(b.is_empty());
}

#[test]
fn a_repeated_span_claims_nothing_twice() {
    let mut b = Bench::new(|_| {});
    b.ledger(0, ledger(1, 1));
    b.spans(0, [span(1, 11, 10), span(1, 11, 10), span(1, 10, 1), span(1, 10, 1), span(1, 11, 10), span(1, 1, 10)]);
    b.tick(250);
    assert_eq!((b.out(), b.counts()), (vec!["1: 10 11".to_owned()], [6, 0, 0, 0, 0]));
}

#[test]
fn an_exchange_keeps_so_many_spans_and_sheds_the_rest() {
    let mut b = Bench::new(|j| j.max_spans_per_exchange = 2);
    b.ledger(0, ledger(1, 1));
    b.spans(0, [span(1, 10, 1), span(1, 11, 10), span(1, 12, 10), span(1, 13, 10)]);
    b.ledger(0, ledger(2, 2));
    b.spans(0, (20..25).map(|n| span(2, n, 499)));
    b.tick(6_000);
    assert_eq!(b.out(), ["1: 10 11", "2: 20 21"]);
    assert_eq!(b.counts(), [4, 0, 0, 0, 5]);
}

#[test]
fn past_max_pending_the_oldest_is_merged_with_what_is_there() {
    let mut b = Bench::new(|j| j.max_pending = 2);
    (1..=2).for_each(|n| b.ledger(0, ledger(n, n.into())));
    b.spans(0, [span(1, 10, 1)]);
    (3..=4).for_each(|n| b.ledger(0, ledger(n, n.into())));
    assert_eq!((b.out(), b.evicted()), (vec!["1: 10".to_owned(), "2: ".to_owned()], 2));
    assert_eq!(b.pending.counters.get(Counter::Pending), 2);
    b.spans(1, [span(1, 11, 1)]);
    assert_eq!(b.counts(), [1, 0, 0, 1, 0]);
    b.flush(1);
    assert!(b.is_empty());

    let mut b = Bench::new(|j| j.max_pending = 0);
    b.ledger(0, ledger(1, 1));
    assert_eq!((b.out(), b.evicted()), (vec!["1: ".to_owned()], 1));
}

#[test]
fn a_flood_of_foreign_traces_stays_bounded() {
    let mut b = Bench::new(|j| j.max_orphan_spans = 100);
    b.ledger(0, ledger(1, 1));
    for n in 0..10_000_u64 {
        let foreign = TraceId((u128::from(n) | 1 << 120).to_be_bytes());
        b.spans(n, [IncomingSpan { trace: foreign, ..span(0, n + 100, n + 99) }]);
        assert!(b.pending.orphans.sizes().iter().all(|len| *len <= 100));
    }
    assert_eq!((b.pending.traces.len(), b.pending.due.len(), b.counts()), (1, 1, [0, 0, 0, 0, 9_900]));
    // One trace that never ends: the spans next to the exchange are not remembered one by one.
    b.spans(0, (0..10_000).map(|n| root(1, 10_000 + n)));
    let owners = b.pending.traces[&trace(1)].owners.len();
    assert!(owners <= 1 + b.pending.join.max_spans_per_exchange, "{owners}");
    b.flush(10_000);
    assert!(b.is_empty());
    assert_eq!(b.counts(), [0, 0, 10_100, 0, 9_900]);
}

#[test]
fn a_route_that_never_sent_lets_only_probes_wait_and_they_take_nobodys_place() {
    let mut b = Bench::new(|j| (j.expect, j.max_pending) = (SpanExpectation::Auto, 600));
    let many = |b: &mut Bench, ms, route: SeriesKey| {
        for n in 0..1_000 {
            b.ledger(ms, Ledger { series: route, ..ledger(1, 10_000 + ms * 1_000 + n) });
        }
    };
    many(&mut b, 0, SeriesKey::default());
    assert_eq!((b.pending.waiting.len(), b.evicted()), (300, 0), "half of the table at most");
    b.tick(6_000);
    many(&mut b, 6_000, SeriesKey::default());
    assert_eq!(b.pending.waiting.len(), 0, "it is known to be silent");
    b.pending.join.max_pending = 8_192;
    many(&mut b, 6_001, other(1));
    many(&mut b, 6_001, other(2));
    assert_eq!((b.pending.waiting.len(), b.evicted()), (2 * super::super::expect::PROBES as usize, 0));
    b.flush(6_001);
    assert_eq!(b.out.len(), 4_000, "each came out once");
}

#[test]
fn a_late_span_makes_its_route_wait_again() {
    let mut b = Bench::new(|j| j.expect = SpanExpectation::Auto);
    b.ledger(0, ledger(1, 1));
    b.tick(6_000);
    b.ledger(6_000, ledger(2, 2));
    assert_eq!((b.out(), b.pending.fill()), (vec!["1: ".to_owned(), "2: ".to_owned()], (0, 0)), "silent");
    b.spans(6_500, [span(2, 11, 10), span(2, 10, 2)]);
    assert_eq!(b.counts(), [0, 0, 0, 2, 0]);
    b.ledger(6_500, ledger(3, 3));
    b.ledger(6_500, Ledger { series: other(1), ..ledger(4, 4) });
    assert_eq!(b.pending.fill(), (2, 0));
    b.tick(12_500);
    b.ledger(12_500, ledger(5, 5));
    assert_eq!(b.pending.fill(), (1, 0), "one miss does not silence a route that sent spans");
}

#[test]
fn a_silent_routes_exchange_waits_if_its_spans_are_here_already() {
    let mut b = Bench::new(|j| j.expect = SpanExpectation::Auto);
    b.ledger(0, ledger(1, 1));
    b.tick(6_000);
    b.spans(6_000, [span(2, 11, 10)]);
    b.ledger(6_001, ledger(2, 2));
    b.spans(6_002, [span(2, 10, 2)]);
    b.tick(6_300);
    assert_eq!(b.out(), ["1: ", "2: 10 11"]);
}

#[test]
fn a_request_that_no_upstream_answered_does_not_wait_and_silences_no_route() {
    let mut b = Bench::new(|j| j.expect = SpanExpectation::Auto);
    b.ledger(0, ledger(1, 1));
    b.spans(0, [span(1, 10, 1)]);
    b.tick(6_000);
    (0..100).for_each(|n| b.ledger(9_000, Ledger { window: None, ..ledger(2, 100 + n) }));
    assert_eq!((b.out().len(), b.pending.fill(), b.evicted()), (101, (0, 0), 0));
    b.ledger(20_000, ledger(3, 3));
    assert_eq!(b.pending.fill(), (1, 0));
    b.spans(20_000, [span(2, 20, 150)]);
    assert_eq!(b.counts(), [1, 0, 0, 1, 0]);
}

#[test]
fn unsampled_requests_and_expect_never_do_not_wait() {
    let mut b = Bench::new(|_| {});
    b.ledger(0, Ledger { traced: false, ..ledger(1, 1) });
    assert_eq!((b.out(), b.is_empty()), (vec!["1: ".to_owned()], true));

    let mut b = Bench::new(|j| j.expect = SpanExpectation::Never);
    b.spans(0, [span(1, 10, 1)]);
    b.ledger(0, ledger(1, 1));
    b.spans(0, [span(1, 11, 1)]);
    assert_eq!((b.out(), b.counts(), b.is_empty()), (vec!["1: ".to_owned()], [0, 0, 2, 0, 0], true));
}
