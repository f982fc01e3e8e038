//! What is learnt of routes, and what an exchange is then missing.

use std::sync::Arc;

use super::*;
use crate::SpanKind;
use lapwing_ledger::TraceId;

const MS: u64 = 1_000_000;
const OWN: u64 = 1;

fn at(ms: u64) -> Stamp {
    Stamp::default().plus(ms * MS)
}

fn id(n: u64) -> SpanId {
    SpanId(n.to_be_bytes())
}

fn shape(service: &str, name: &str) -> SpanShape {
    let span = IncomingSpan {
        trace: TraceId([1; 16]),
        span: id(2),
        parent: None,
        name: name.into(),
        kind: SpanKind::Internal,
        stage: None,
        phase: None,
        is_store_call: false,
        start_unix_ns: 0,
        end_unix_ns: 0,
        service: Arc::from(service),
        process: ProcessId::default(),
        cache: crate::CacheLookups::default(),
        server: None,
        shifted_ns: 0,
        shared: None,
    };
    SpanShape::of(&span)
}

/// A span of one process (by number), that came so many milliseconds after its exchange closed.
fn mark(span: u64, parent: u64, name: &str, process: u64, ms: u64) -> SpanMark {
    let (id, parent, shape) = (id(span), id(parent), shape("app/1", name));
    SpanMark { id, parent, shape, process: ProcessId::of(&process), came: at(ms), calls: name.starts_with("call") }
}

fn set(marks: &[SpanMark]) -> SpanSet<'_> {
    SpanSet { series: SeriesKey::default(), own: id(OWN), closed: at(0), marks }
}

fn missing(shapes: &Shapes, marks: &[SpanMark]) -> MissingSpans {
    shapes.missing(set(marks), |_| false)
}

fn learn(shapes: &mut Shapes, times: usize, marks: &[SpanMark]) {
    for _ in 0..times {
        shapes.learn(set(marks));
    }
}

#[test]
fn names_with_ids_and_instances_of_a_service_are_one_shape() {
    assert_eq!(shape("app/1", "unified Req 3f2a9c01"), shape("app/2", "unified Req 77be0d12"));
    assert_ne!(shape("app/1", "GET /users"), shape("app/1", "GET /models"));
    assert_ne!(shape("app/1", "GET /users"), shape("gateway", "GET /users"));
}

#[test]
fn a_child_of_another_process_is_expected_once_half_of_a_few_had_one() {
    let mut shapes = Shapes::default();
    let proxy = [mark(2, OWN, "proxy", 1, 900), mark(3, 2, "call replica", 1, 900)];
    let whole = [proxy[0], proxy[1], mark(4, 3, "replica", 2, 4_000)];
    assert!(missing(&shapes, &proxy).is_unknown && !missing(&shapes, &whole).is_unknown);
    learn(&mut shapes, 4, &whole);
    let lacks = missing(&shapes, &proxy);
    assert!(lacks.is_incomplete && !lacks.is_unknown);
    assert_eq!(lacks.until, Some(at(0).plus(u64::MAX)), "one batch tells nothing about the next");
    for ms in 3_985..4_000 {
        shapes.learn(set(&[proxy[0], proxy[1], mark(4, 3, "replica", 2, ms)]));
    }
    assert_eq!(missing(&shapes, &proxy).until, Some(at(16_000)), "four times 4 s, from when the exchange closed");
    assert_eq!(missing(&shapes, &whole), MissingSpans::default());
    // each call has its own child
    let twice = [whole[0], whole[1], whole[2], mark(5, 2, "call replica", 1, 900)];
    assert!(missing(&shapes, &twice).is_incomplete);
    // the callee reports no more
    learn(&mut shapes, 2_000, &proxy);
    let lacks = missing(&shapes, &proxy);
    assert!(!lacks.is_incomplete && !lacks.is_unknown, "{lacks:?}");
}

#[test]
fn a_call_that_belongs_to_another_exchange_is_not_waited_for() {
    let shapes = Shapes::default();
    let call = [mark(2, OWN, "serve", 1, 5), mark(3, 2, "call", 1, 5)];
    assert!(!shapes.missing(set(&call), |span| span == id(3)).is_unknown);
}

#[test]
fn a_branch_of_one_process_is_not_waited_for_and_counts_only_where_nearly_all_have_it() {
    let mut shapes = Shapes::default();
    let miss = [mark(2, OWN, "serve", 1, 5), mark(3, 2, "forward", 1, 4)];
    let hit = [mark(2, OWN, "serve", 1, 5)];
    for n in 0..40 {
        shapes.learn(set(if n % 4 == 0 { &hit } else { &miss }));
    }
    assert!(!missing(&shapes, &hit).is_incomplete, "a quarter are cache hits");
    learn(&mut shapes, 400, &miss);
    let lacks = missing(&shapes, &hit);
    assert_eq!((lacks.is_incomplete, lacks.until, lacks.knows_tops), (true, Some(at(5)), true), "it came with its parent");
    assert!(missing(&shapes, &[]).is_incomplete);
    let known = shapes.sizes();
    assert_eq!(known, (3, 2));
}

#[test]
fn an_exchange_without_any_span_is_incomplete_where_half_have_some() {
    let mut shapes = Shapes::default();
    let some = [mark(2, OWN, "serve", 1, 5)];
    for n in 0..8 {
        shapes.learn(set(if n % 2 == 0 { &some } else { &[] }));
    }
    assert!(missing(&shapes, &[]).is_incomplete);
    learn(&mut shapes, 2_000, &[]);
    assert!(!missing(&shapes, &[]).is_incomplete);
}

#[test]
fn a_late_span_teaches_that_more_is_coming() {
    let mut shapes = Shapes::default();
    let early = [mark(2, OWN, "front", 1, 5)];
    let whole = [early[0], mark(3, 2, "engine", 2, 3_000)];
    for _ in 0..4 {
        shapes.learn(set(&early));
        shapes.learn_late(set(&whole), whole[1]);
    }
    let lacks = missing(&shapes, &early);
    assert_eq!((lacks.is_incomplete, lacks.until > Some(at(60_000))), (true, true));
}

#[test]
fn what_is_learnt_is_bounded_and_what_is_seen_stays() {
    let mut shapes = Shapes::default();
    let word = |n: u64| -> String { format!("{n:020b}").chars().map(|c| if c == '0' { 'a' } else { 'b' }).collect() };
    let evicted: u64 = (0..2_000)
        .map(|n| {
            let marks = [
                mark(2, OWN, "serve", 1, 5),
                mark(3, 2, "call replica", 1, 5),
                mark(4, 3, "replica", 2, 900),
                mark(5, 2, &word(n), 1, 5),
                mark(6, 5, &word(n + 5_000), 1, 5),
            ];
            shapes.learn(set(&marks))
        })
        .sum();
    let (known, children) = shapes.sizes();
    assert!(known <= SHAPES && children <= SHAPES * CHILDREN, "{known} {children}");
    assert!(evicted > 4_000, "{evicted}");
    let lacks = missing(&shapes, &[mark(2, OWN, "serve", 1, 5), mark(3, 2, "call replica", 1, 5)]);
    assert!(lacks.is_incomplete && lacks.until > Some(at(900)));
}
