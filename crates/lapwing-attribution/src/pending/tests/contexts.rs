//! Spans that continue another context than `traceparent`, and how it is found out which one the upstream continues.

use super::*;
use lapwing_ledger::PassedContext;
use lapwing_protocol::trace_context::LearntContexts;
use lapwing_settings::{ContextKind, ContextSet};

fn passed(n: u8, s: u64, is_clients: bool) -> PassedContext {
    PassedContext { trace: trace(n), span: id(s), is_clients, kind: ContextSet::of(&[ContextKind::B3]).bits() }
}

/// An exchange in trace 1 to whose upstream these were passed too.
fn ledger_with(own: u64, contexts: impl IntoIterator<Item = PassedContext>) -> Ledger {
    Ledger { passed_contexts: Some(Box::new(contexts.into_iter().collect())), ..ledger(1, own) }
}

fn server(n: u8, s: u64, parent: u64) -> IncomingSpan {
    IncomingSpan { kind: SpanKind::Server, ..span(n, s, parent) }
}

#[test]
fn a_tree_below_another_context_joins_before_and_after_the_ledger() {
    for is_early in [true, false] {
        let mut b = Bench::new(|_| {});
        let spans = [span(2, 31, 30), server(2, 30, 50), span(2, 32, 31)];
        if is_early {
            b.spans(1, spans.clone());
        }
        b.ledger(1, ledger_with(1, [passed(2, 50, false)]));
        if !is_early {
            b.spans(2, spans);
        }
        b.flush(10);
        let out = b.out();
        assert!(out.len() == 1 && ["30", "31", "32"].iter().all(|name| out[0].contains(name)), "{out:?}");
        assert_eq!(b.counts()[..3], [3, 0, 0]);
        assert_eq!(b.pending.sizes(), [0; 9]);
    }
}

#[test]
fn a_late_span_below_another_context_mends_its_exchange() {
    let mut b = Bench::new(|join| join.grace_ns = 5 * MS);
    b.ledger(1, ledger_with(1, [passed(2, 50, false)]));
    b.spans(2, [server(2, 30, 50)]);
    b.tick(400);
    assert_eq!(b.out(), ["1: 30"]);
    b.spans(410, [span(2, 31, 30), server(2, 33, 50)]);
    let mut mended = Vec::new();
    b.pending.take_changed(&mut |ledger, spans, _| mended.push((ledger.span, spans.len())));
    assert_eq!(mended, [(id(1), 3)]);
}

#[test]
fn of_requests_by_one_span_of_a_client_the_one_that_ran_has_the_spans() {
    let mut b = Bench::new(|_| {});
    let clients = || [passed(1, 50, true)];
    let second = Ledger { anchor_unix_ns: WALL + 100 * MS, ..ledger_with(2, clients()) };
    b.ledger(1, ledger_with(1, clients()));
    b.ledger(1, second);
    b.spans(2, [server(1, 30, 50)]);
    b.spans(2, [IncomingSpan { start_unix_ns: WALL + 105 * MS, end_unix_ns: WALL + 106 * MS, ..server(1, 31, 50) }]);
    b.flush(10);
    assert_eq!(b.out(), ["1: 30", "2: 31"]);
}

#[test]
fn a_span_for_several_requests_is_in_each_of_them_once() {
    let mut b = Bench::new(|_| {});
    let shared = |n: u8, s: u64, parent: u64| IncomingSpan {
        shared: Some(Box::new(SharedSpan { by: 2, copy_of: Some(id(77)) })),
        ..span(n, s, parent)
    };
    b.ledger(1, ledger(1, 1));
    b.ledger(1, ledger(2, 2));
    b.spans(2, [server(1, 20, 1), server(2, 21, 2), shared(1, 70, 20), shared(2, 71, 21), shared(1, 72, 1)]);
    b.flush(10);
    assert_eq!(b.out(), ["1: 20 70", "2: 21 71"]);
}

/// Requests without spans, and traces that the upstream began; what is sent to it after each.
#[test]
fn what_the_upstream_continues_is_found_out() {
    let mut b = Bench::new(|join| join.grace_ns = 5 * MS);
    let learnt = Arc::new(LearntContexts::default());
    b.pending.learn_contexts(learnt.clone());
    let mut ms = 0;
    let mut round = |b: &mut Bench, n: u8| {
        for i in 0..4_u8 {
            b.ledger(ms, ledger(100 + n * 10 + i, 1));
        }
        ms += 10;
        for i in 0..4_u8 {
            let alone = IncomingSpan { kind: SpanKind::Server, ..root(10 + n * 10 + i, 5) };
            b.spans(ms, [alone]);
        }
        b.tick(ms);
        learnt.get()
    };
    use ContextKind::{B3, B3Multi, Jaeger};
    assert_eq!(round(&mut b, 0).kinds().collect::<Vec<_>>(), [B3, B3Multi]);
    assert_eq!(round(&mut b, 1).kinds().collect::<Vec<_>>(), [Jaeger]);
    // a span joins: that is it
    let jaeger = PassedContext { kind: ContextSet::of(&[Jaeger]).bits(), ..passed(200, 50, false) };
    b.ledger(50, ledger_with(1, [jaeger]));
    b.spans(51, [server(200, 20, 50)]);
    assert_eq!(round(&mut b, 2).kinds().collect::<Vec<_>>(), [Jaeger]);
}

#[test]
fn what_one_client_sends_and_the_upstream_continues_is_sent_for_all() {
    let mut b = Bench::new(|_| {});
    let learnt = Arc::new(LearntContexts::default());
    b.pending.learn_contexts(learnt.clone());
    b.ledger(1, ledger(3, 1));
    b.spans(2, [server(3, 20, 1)]);
    assert!(learnt.get().is_empty());
    b.ledger(3, ledger_with(1, [passed(2, 50, false)]));
    b.spans(4, [server(2, 30, 50)]);
    assert_eq!(learnt.get(), ContextSet::of(&[ContextKind::B3]));
}

#[test]
fn an_upstream_that_continues_traceparent_gets_nothing_else() {
    let mut b = Bench::new(|join| join.grace_ns = 5 * MS);
    let learnt = Arc::new(LearntContexts::default());
    b.pending.learn_contexts(learnt.clone());
    for n in 0..20_u8 {
        let ms = u64::from(n) * 20;
        b.ledger(ms, ledger(n + 1, 1));
        // a probe of the server itself, and the request's own span
        b.spans(ms + 10, [IncomingSpan { kind: SpanKind::Server, ..root(100 + n, 5) }, server(n + 1, 20, 1)]);
        b.tick(ms + 10);
    }
    assert!(learnt.get().is_empty());
}
