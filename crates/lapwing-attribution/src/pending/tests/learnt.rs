//! What the wait learns, and what becomes of spans that come after it.

use super::*;
use lapwing_ledger::Generation;

/// A span of another process.
fn elsewhere(n: u8, s: u64, parent: u64) -> IncomingSpan {
    IncomingSpan { kind: SpanKind::Server, process: ProcessId::of(&"elsewhere"), name: "replica".into(), ..span(n, s, parent) }
}

/// A call by the process of the server's span.
fn call(n: u8, s: u64, parent: u64) -> IncomingSpan {
    IncomingSpan { kind: SpanKind::Client, name: "call replica".into(), ..span(n, s, parent) }
}

/// A server's span.
fn server(n: u8, s: u64, parent: u64) -> IncomingSpan {
    IncomingSpan { kind: SpanKind::Server, name: "serve".into(), ..span(n, s, parent) }
}

impl Bench {
    /// The names of the spans of each exchange that was merged again, and whether it still lacks some.
    fn mended(&mut self) -> Vec<(u64, usize, bool)> {
        let mut mended = Vec::new();
        self.pending.take_changed(&mut |l, s, lacks| mended.push((u64::from_be_bytes(l.span.0), s.len(), lacks)));
        mended
    }

    /// Exchange `n` at `ms`: its server's span and call after 1 s, the callee's span after 4 s if at all. Returns when it was merged, and
    /// with how many spans.
    fn gateway(&mut self, ms: u64, n: u8, has_callee: bool) -> (u64, usize) {
        let base = 100_000 * u64::from(n);
        self.ledger(ms, ledger(n, u64::from(n)));
        for step in (20..=7_000).step_by(20) {
            if step == 1_000 {
                self.spans(ms + step, [call(n, base + 1, base), server(n, base, u64::from(n))]);
            }
            if step == 4_000 && has_callee {
                self.spans(ms + step, [elsewhere(n, base + 2, base + 1)]);
            }
            self.tick(ms + step);
            if let Some((_, spans)) = self.out.pop() {
                return (step, spans.len());
            }
        }
        panic!("never merged")
    }
}

#[test]
fn an_exchange_waits_for_the_process_that_its_like_have_and_no_longer() {
    let mut b = Bench::new(|_| {});
    for n in 1..=8 {
        assert_eq!(b.gateway(10_000 * u64::from(n), n, true), (4_260, 3), "250 ms after the last of them");
    }
    assert_eq!(b.gateway(90_000, 9, false), (6_000, 2), "one that will never come is waited for until the end");
    assert_eq!(b.counts(), [26, 0, 0, 0, 0]);
}

#[test]
fn a_call_below_which_nothing_ever_came_is_not_waited_for() {
    let mut b = Bench::new(|_| {});
    for n in 1..=4 {
        assert_eq!(b.gateway(10_000 * u64::from(n), n, false).0, 6_000);
    }
    assert_eq!(b.gateway(50_000, 5, false), (1_260, 2));
    // the callee starts to report: late at first, which teaches
    for n in 6..=10 {
        assert_eq!(b.gateway(10_000 * u64::from(n), n, false).0, 1_260);
        let base = 100_000 * u64::from(n);
        b.spans(10_000 * u64::from(n) + 4_000, [elsewhere(n, base + 2, base + 1)]);
        assert_eq!(b.mended(), [(u64::from(n), 3, false)]);
    }
    assert_eq!(b.gateway(110_000, 11, true), (4_260, 3), "half of those that were seen had one");
    assert_eq!(b.counts(), [10 * 2 + 3, 0, 0, 5, 0]);
}

#[test]
fn a_late_tree_mends_the_exchange_it_belongs_to_and_no_other() {
    let mut b = Bench::new(|j| j.max_spans_per_exchange = 4);
    b.ledger(0, ledger(1, 1));
    b.ledger(0, ledger(1, 2));
    b.spans(0, [span(1, 10, 1), span(1, 20, 2)]);
    b.tick(300);
    assert_eq!(b.out(), ["1: 10", "2: 20"]);
    assert_eq!(b.mended(), []);
    // a child before its parent; one again; one more than there is room for
    b.spans(1_000, [span(1, 12, 11), span(1, 11, 10), span(1, 11, 10), span(1, 13, 10), span(1, 14, 10)]);
    assert_eq!(b.counts(), [2, 0, 0, 5, 0]);
    assert_eq!(b.mended(), [(1, 4, false)]);
    assert_eq!(b.mended(), []);
    assert!(b.is_empty());
}

#[test]
fn siblings_without_a_server_span_end_the_wait_once_it_is_known_which_come() {
    let mut b = Bench::new(|_| {});
    let step =
        |n: u8, s: u64, name: &str| IncomingSpan { kind: SpanKind::Internal, name: name.into(), ..span(n, 10_000 + s, n.into()) };
    for n in 1..=21 {
        let n = if n < 10 { n } else { n + 90 };
        let ms = 10_000 * u64::from(n);
        b.ledger(ms, ledger(n, n.into()));
        b.spans(ms + 100, [step(n, 2, "pre"), step(n, 3, "post")]);
        b.tick(ms + 350);
        assert_eq!(b.out.len(), usize::from(n == 111), "{n}");
        b.tick(ms + 6_000);
        b.out.clear();
    }
}

#[test]
fn the_fate_of_a_span_shows_within_seconds() {
    let mut b = Bench::new(|_| {});
    let counters = b.pending.counters.clone();
    let long = counters.open_requests().begin();
    (0..2_100).step_by(20).for_each(|ms| b.tick(ms));
    // the long request is of the generation before; it may have made this span
    b.spans(2_100, [span(7, 12, 11)]);
    (2_100..9_000).step_by(20).for_each(|ms| b.tick(ms));
    assert_eq!(b.counts(), [0; 5]);
    counters.open_requests().end(long);
    (9_000..11_100).step_by(20).for_each(|ms| b.tick(ms));
    assert_eq!(b.counts(), [0, 0, 1, 0, 0]);

    // steady traffic of short requests; a stray span, and one that lies below a part that a merged exchange never got
    b.ledger(20_000, ledger(1, 1));
    b.spans(20_000, [span(1, 10, 1)]);
    b.tick(20_300);
    b.spans(20_300, [span(8, 12, 11), span(1, 13, 12)]);
    for ms in (20_300..24_000).step_by(500) {
        let short = counters.open_requests().begin();
        (ms..ms + 500).step_by(20).for_each(|ms| b.tick(ms));
        counters.open_requests().end(short);
    }
    assert_eq!(b.counts(), [1, 0, 2, 0, 0], "not late yet: what lies between may come");
    (24_000..27_000).step_by(20).for_each(|ms| b.tick(ms));
    assert_eq!(b.counts(), [1, 0, 2, 1, 0]);
    assert!(b.is_empty());
}

#[test]
fn gaps_between_tokens_go_with_the_exchange_and_are_not_kept() {
    let mut b = Bench::new(|_| {});
    let generation = Box::new(Generation { gaps_us: vec![7; 16], ..Generation::default() });
    b.ledger(0, Ledger { generation: Some(generation), ..ledger(1, 1) });
    b.spans(0, [span(1, 10, 1)]);
    let mut gaps = Vec::new();
    b.pending.flush(at(300), &mut |ledger, _, _| gaps.push(ledger.generation.map(|generation| generation.gaps_us.len())));
    assert_eq!(gaps, [Some(16)]);
    let kept = b.pending.settled.find(trace(1), id(1)).and_then(|number| b.pending.settled.get(number)).unwrap();
    assert_eq!(kept.ledger.generation.as_ref().map(|generation| generation.gaps_us.capacity()), Some(0));
}

#[test]
fn what_is_kept_of_merged_exchanges_is_bounded() {
    let mut b = Bench::new(|j| j.max_spans_per_exchange = 100);
    for n in 0..3_000_u64 {
        let trace = TraceId((u128::from(n) + 1).to_be_bytes());
        let own = 1_000_000 + n;
        b.ledger(n * 300, Ledger { trace, ..ledger(1, own) });
        let many = if n % 2 == 0 { 90 } else { 1 };
        let below = |s| IncomingSpan { trace, kind: SpanKind::Server, ..span(1, 10_000_000 + n * 100 + s, own) };
        b.spans(n * 300, (0..many).map(below));
        b.tick(n * 300 + 299);
        assert_eq!(b.out.drain(..).count(), 1);
        let [exchanges, traces, spans, owners] = b.pending.settled.sizes();
        assert!(exchanges <= 1_024 && traces <= exchanges && spans <= 16_384 && owners == spans + exchanges);
        // of the last one, late spans are taken, and they push older ones out
        b.spans(n * 300 + 299, [IncomingSpan { trace, ..span(1, 10_000_000 + n * 100 + 99, own) }]);
        assert_eq!(b.mended().len(), 1);
    }
}
