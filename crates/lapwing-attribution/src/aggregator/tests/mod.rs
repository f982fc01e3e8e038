//! The aggregator returns each exchange merged and exactly once, whatever its input and in whatever order.

mod tree;

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::{ProcessId, SpanExpectation};
use lapwing_ledger::{Basis, Report, ReportPlace, SpanId, Stage, TraceId, UpstreamWindow};
use lapwing_protocol::servers::ServerReport;

use super::super::span::ServerSpan;

const MS: u64 = 1_000_000;
const WALL: u64 = 1_000_000 * MS;
const TOTAL: u64 = 100 * MS;
const SPAN_COUNTERS: [Counter; 5] =
    [Counter::SpansJoined, Counter::SpansAmbiguous, Counter::SpansUnmatched, Counter::SpansLate, Counter::SpansShed];

fn at(ms: u64) -> Stamp {
    Stamp::default().plus(ms * MS)
}

fn id(n: u64) -> SpanId {
    SpanId(n.to_be_bytes())
}

fn ledger(trace: u8, own: u64) -> Ledger {
    let mut ledger = Ledger::open(at(0), WALL);
    (ledger.trace, ledger.span, ledger.parent) = (TraceId([trace; 16]), id(own), id(own + 5_000));
    (ledger.traced, ledger.total_ns) = (true, TOTAL);
    ledger.window = Some(UpstreamWindow { start_ns: 10 * MS, head_ns: 90 * MS, end_ns: 90 * MS });
    ledger
}

fn span(trace: u8, span: u64, parent: Option<u64>, from_ms: u64, to_ms: u64) -> IncomingSpan {
    IncomingSpan {
        trace: TraceId([trace; 16]),
        span: id(span),
        parent: parent.map(id),
        name: "s".into(),
        kind: SpanKind::Internal,
        stage: Some(Stage::Forward),
        phase: None,
        is_store_call: false,
        start_unix_ns: WALL + from_ms * MS,
        end_unix_ns: WALL + to_ms * MS,
        service: Arc::from("app/1"),
        process: ProcessId::default(),
        cache: crate::CacheLookups::default(),
        server: None,
        shifted_ns: 0,
        shared: None,
    }
}

fn server(trace: u8, n: u64, own: u64) -> IncomingSpan {
    IncomingSpan { kind: SpanKind::Server, stage: None, ..span(trace, n, Some(own), 12, 88) }
}

fn spans_counted(counters: &Counters) -> u64 {
    SPAN_COUNTERS.iter().map(|c| counters.get(*c)).sum()
}

#[test]
fn an_exchange_comes_out_with_the_time_its_spans_claim() {
    let counters = Arc::new(Counters::default());
    let mut aggregator = Aggregator::new(JoinSettings::default(), counters.clone());
    let mut out = Vec::new();
    aggregator.ledger(Ledger { overflowed: 3, ..ledger(1, 1) }, at(0), &mut |e| out.push(e));
    let queued = IncomingSpan { stage: Some(Stage::Queue), ..span(1, 12, Some(10), 5, 20) };
    aggregator.spans(vec![span(1, 11, Some(10), 20, 70), queued, server(1, 10, 1)], at(5), &mut |e| out.push(e));
    assert_eq!((out.len(), aggregator.fill()), (0, (1, 0)));
    aggregator.tick(at(255), &mut |e| out.push(e));
    let e = &out[0];
    assert_eq!((e.account.stage_ns(Stage::Forward), e.account.stage_ns(Stage::Queue)), (50 * MS, 10 * MS));
    assert_eq!((e.traced.len(), e.claimed_ns, e.clipped.before), (3, 60 * MS, 1));
    assert_eq!((counters.get(Counter::ClippedBefore), counters.get(Counter::LedgerOverflowed)), (1, 3));
    assert_eq!((aggregator.fill(), counters.get(Counter::Pending)), ((0, 0), 0));
}

/// The result for sums over `prompts` prompts: queue, forward, clipped.
fn of_sums(prompts: Option<u64>) -> (u64, u64, u32) {
    let mut sums = ledger(1, 1);
    sums.traced = false;
    if let Some(prompts) = prompts {
        sums.work.set(Unit::Row, prompts, Basis::Counted);
    }
    for (stage, ms) in [(Stage::Queue, 160), (Stage::Forward, 400)] {
        sums.report(Report { is_sum: true, resolution_ns: 1_000_000, ..Report::of(stage, ms * MS, ReportPlace::Head) });
    }
    let mut out = Vec::new();
    Aggregator::new(JoinSettings::default(), Arc::default()).ledger(sums, at(0), &mut |e| out.push(e));
    let e = &out[0];
    (e.account.stage_ns(Stage::Queue), e.account.stage_ns(Stage::Forward), e.clipped.too_long)
}

#[test]
fn sums_over_prompts_become_the_mean_of_one() {
    assert_eq!(of_sums(Some(8)), (20 * MS, 50 * MS, 0));
    assert_eq!(of_sums(Some(1)), (0, 80 * MS, 2), "a sum of one is its own");
    assert_eq!(of_sums(None), (0, 0, 0), "of nobody knows how many: claimed by no report");
}

#[test]
fn tokens_that_only_spans_tell_choose_the_primary_unit() {
    let primary = |work: &[(Unit, u64)], known: Option<Unit>| {
        let mut report = ServerReport::default();
        report.work.extend(work.iter().copied());
        let report = Some(Box::new(ServerSpan { report, ..ServerSpan::default() }));
        let mut aggregator = Aggregator::new(JoinSettings::default(), Arc::default());
        let mut out = Vec::new();
        let mut one = ledger(1, 1);
        one.work.primary = known;
        aggregator.ledger(one, at(0), &mut |e| out.push(e));
        aggregator.spans(vec![IncomingSpan { server: report, ..server(1, 10, 1) }], at(1), &mut |e| out.push(e));
        aggregator.tick(at(6_100), &mut |e| out.push(e));
        out[0].ledger.work.primary
    };
    assert_eq!(primary(&[(Unit::InputToken, 9), (Unit::OutputToken, 4)], None), Some(Unit::OutputToken));
    assert_eq!(primary(&[(Unit::InputToken, 9), (Unit::OutputToken, 0)], None), Some(Unit::InputToken));
    assert_eq!(primary(&[(Unit::InputToken, 9)], Some(Unit::Row)), Some(Unit::Row));
    assert_eq!(primary(&[], None), None);
}

#[test]
fn nested_requests_of_one_trace_share_no_time() {
    let mut aggregator = Aggregator::new(JoinSettings::default(), Arc::default());
    let mut out = Vec::new();
    // The handler of 1 calls, by its span 11, through us: request 2, whose server is another service.
    let inner = Ledger { parent: id(11), ..ledger(1, 2) };
    aggregator.ledger(inner, at(0), &mut |e| out.push(e));
    aggregator.ledger(ledger(1, 1), at(1), &mut |e| out.push(e));
    let call = IncomingSpan { kind: SpanKind::Client, stage: None, ..span(1, 11, Some(10), 30, 60) };
    let inner_server = IncomingSpan { service: Arc::from("other/1"), ..server(1, 20, 2) };
    let all = vec![span(1, 21, Some(20), 40, 50), inner_server, call, span(1, 12, Some(10), 60, 80), server(1, 10, 1)];
    aggregator.spans(all, at(2), &mut |e| out.push(e));
    aggregator.tick(at(252), &mut |e| out.push(e));
    let of = |own| out.iter().find(|e| e.ledger.span == id(own)).map(|e| &e.account).unwrap();
    assert_eq!((of(1).stage_ns(Stage::Downstream), of(1).stage_ns(Stage::Forward)), (30 * MS, 20 * MS));
    assert_eq!((of(2).stage_ns(Stage::Downstream), of(2).stage_ns(Stage::Forward)), (0, 10 * MS));
}

#[test]
fn a_panicking_merge_is_counted_and_the_others_go_on() {
    let counters = Arc::new(Counters::default());
    let join = JoinSettings { max_pending: 2, expect: SpanExpectation::Always, ..JoinSettings::default() };
    let refuse = |ledger: Box<Ledger>, traced: Vec<TracedSpan>| {
        assert_ne!(ledger.span, id(2), "refused");
        merge(ledger, traced)
    };
    let mut aggregator = Aggregator::with_merge(join, counters.clone(), refuse);
    let mut out = Vec::new();
    let mut sink = |e: Exchange| {
        assert_ne!(e.ledger.span, id(3), "refused");
        out.push(e.ledger.span);
    };
    (1..=4).for_each(|n| aggregator.ledger(ledger(1, n), at(0), &mut sink));
    aggregator.tick(at(6_000), &mut sink);
    aggregator.ledger(ledger(1, 5), at(6_000), &mut sink);
    aggregator.flush(at(6_000), &mut sink);
    assert_eq!((out, counters.get(Counter::DroppedPanic)), (vec![id(1), id(4), id(5)], 2));
    assert_eq!((aggregator.fill(), counters.get(Counter::Pending)), ((0, 0), 0));
}

#[test]
fn a_late_span_is_merged_into_what_the_exchange_was_made_of() {
    let counters = Arc::new(Counters::default());
    let mut aggregator = Aggregator::new(JoinSettings::default(), counters.clone());
    let mut out = Vec::new();
    aggregator.ledger(ledger(1, 1), at(0), &mut |e| out.push(e));
    aggregator.spans(vec![span(1, 11, Some(10), 20, 70), server(1, 10, 1)], at(5), &mut |e| out.push(e));
    aggregator.tick(at(255), &mut |e| out.push(e));
    // the work below the server's forward: 20 ms of it were a queue, and 10 ms came before
    let queued = IncomingSpan { stage: Some(Stage::Queue), ..span(1, 12, Some(11), 30, 50) };
    let hydration = IncomingSpan { stage: Some(Stage::Hydration), ..span(1, 13, Some(10), 5, 20) };
    aggregator.spans(vec![queued, hydration], at(900), &mut |e| out.push(e));
    assert_eq!((out.len(), counters.get(Counter::ClippedBefore)), (1, 0));
    aggregator.mend(&mut |e| out.push(e));
    aggregator.mend(&mut |e| out.push(e));
    let stages = |e: &Exchange| [Stage::Hydration, Stage::Queue, Stage::Forward].map(|stage| e.account.stage_ns(stage) / MS);
    assert_eq!(out.iter().map(stages).collect::<Vec<_>>(), [[0, 0, 50], [10, 20, 30]]);
    assert!(out.iter().all(|e| e.account.total_ns() == TOTAL));
    assert_eq!((counters.get(Counter::SpansLate), counters.get(Counter::ClippedBefore)), (2, 0), "it was recorded before");
    assert_eq!(out[1].clipped.before, 1);
}

#[test]
fn flush_merges_what_waits_with_what_is_there() {
    let counters = Arc::new(Counters::default());
    let mut aggregator =
        Aggregator::new(JoinSettings { expect: SpanExpectation::Always, ..JoinSettings::default() }, counters.clone());
    let mut out = Vec::new();
    (1..=3).for_each(|n| aggregator.ledger(ledger(n, n.into()), at(0), &mut |e| out.push(e)));
    aggregator.spans(vec![server(2, 10, 2), span(9, 11, Some(8), 0, 1)], at(1), &mut |e| out.push(e));
    aggregator.flush(at(1), &mut |e| out.push(e));
    let traced: Vec<_> = out.iter().map(|e| (e.ledger.span, e.traced.len())).collect();
    assert_eq!(traced, [(id(1), 0), (id(2), 1), (id(3), 0)]);
    assert_eq!((aggregator.fill(), spans_counted(&counters)), ((0, 0), 2));
}

/// Something that comes in.
#[derive(Clone, Debug)]
enum Event {
    Ledger { trace: u8, own: u64, route: u32 },
    Spans(Vec<(u8, u64, Option<u64>, bool, u64)>),
    Wait(u64),
}

/// Few ids, so that chains, repetitions and cycles happen: 1..=6 may be exchanges' own spans, 5001.. their callers'.
fn any_event() -> impl Strategy<Value = Event> {
    let link = prop_oneof![1..30_u64, 1..7_u64, 5_001..5_007_u64];
    let one = (1..4_u8, 1..30_u64, proptest::option::weighted(0.9, link), any::<bool>(), 0..120_u64);
    prop_oneof![
        (1..4_u8, 1..7_u64, 0..2_u32).prop_map(|(trace, own, route)| Event::Ledger { trace, own, route }),
        proptest::collection::vec(one, 1..8).prop_map(Event::Spans),
        prop_oneof![0..300_u64, 0..7_000_u64].prop_map(Event::Wait),
    ]
}

fn any_join() -> impl Strategy<Value = JoinSettings> {
    let expect =
        prop_oneof![3 => Just(SpanExpectation::Auto), 3 => Just(SpanExpectation::Always), 1 => Just(SpanExpectation::Never)];
    (0..6_usize, 1..6_usize, 0..12_usize, expect).prop_map(|(max_pending, max_spans, max_orphans, expect)| JoinSettings {
        max_pending,
        max_spans_per_exchange: max_spans,
        max_orphan_spans: max_orphans,
        expect,
        ..JoinSettings::default()
    })
}

proptest! {
    #[test]
    fn every_ledger_comes_out_once_and_every_span_is_counted_once(
        join in any_join(),
        events in proptest::collection::vec(any_event(), 0..80),
    ) {
        let counters = Arc::new(Counters::default());
        let mut aggregator = Aggregator::new(join, counters.clone());
        let names = lapwing_ledger::LabelTable::new(4);
        let (mut now, mut n_in, mut n_spans) = (0, HashMap::new(), 0_u64);
        let mut out = Vec::new();
        let mut sink = |e: Exchange| out.push(e);
        for event in events {
            match event {
                Event::Ledger { trace, own, route } => {
                    let mut l = ledger(trace, own);
                    l.series.route = names.intern(&route.to_string());
                    // The number of its coming, so that it is known again.
                    l.request_bytes = n_in.len() as u64;
                    // An own span id is drawn at random and never used twice.
                    l.span = if n_in.values().any(|used| *used == l.span) { id(100_000 + l.request_bytes) } else { l.span };
                    n_in.insert(l.request_bytes, l.span);
                    aggregator.ledger(l, at(now), &mut sink);
                }
                Event::Spans(spans) => {
                    n_spans += spans.len() as u64;
                    let spans = spans.into_iter().map(|(trace, n, parent, serves, from)| {
                        let kind = if serves { SpanKind::Server } else { SpanKind::Client };
                        IncomingSpan { kind, ..span(trace, n, parent, from, from + 30) }
                    });
                    aggregator.spans(spans.collect(), at(now), &mut sink);
                }
                Event::Wait(ms) => {
                    now += ms;
                    aggregator.tick(at(now), &mut sink);
                }
            }
            let (waiting, held) = aggregator.fill();
            prop_assert!(waiting <= join.max_pending && held <= join.max_orphan_spans);
            prop_assert_eq!(counters.get(Counter::Pending), waiting as u64);
            prop_assert_eq!(spans_counted(&counters) + held as u64, n_spans);
            let sizes = aggregator.pending.sizes();
            let owners = join.max_pending * (1 + join.max_spans_per_exchange) + waiting * join.max_spans_per_exchange;
            let bounds = [waiting, waiting, waiting, owners, held, held, held, held, held];
            prop_assert!(sizes.iter().zip(bounds).all(|(size, bound)| *size <= bound), "{:?} of {:?}", sizes, bounds);
        }
        aggregator.flush(at(now), &mut sink);
        prop_assert_eq!(spans_counted(&counters), n_spans);
        prop_assert_eq!(aggregator.pending.sizes(), [0; 9]);
        let mut seen: Vec<_> = out.iter().map(|e| e.ledger.request_bytes).collect();
        seen.sort_unstable();
        prop_assert_eq!(seen, (0..n_in.len() as u64).collect::<Vec<_>>());
        for e in &out {
            prop_assert_eq!(e.account.total_ns(), TOTAL);
            prop_assert!(e.traced.len() <= join.max_spans_per_exchange);
        }
        let joined: usize = out.iter().map(|e| e.traced.len()).sum();
        prop_assert!(joined as u64 <= counters.get(Counter::SpansJoined));
    }

    /// Whatever the order in which they come, spans in time and room enough end where they belong.
    #[test]
    fn the_order_of_coming_does_not_matter(order in Just((0..14_usize).collect::<Vec<_>>()).prop_shuffle()) {
        let counters = Arc::new(Counters::default());
        let mut aggregator = Aggregator::new(JoinSettings { expect: SpanExpectation::Always, ..JoinSettings::default() }, counters.clone());
        let mut out = Vec::new();
        let mut sink = |e: Exchange| out.push((e.ledger.span, e.traced.len(), e.account.stage_ns(Stage::Forward)));
        for (ms, n) in (0..).zip(order) {
            match n {
                // Two requests of one trace, and one of another.
                0..=1 => aggregator.ledger(ledger(1, n as u64 + 1), at(ms), &mut sink),
                2 => aggregator.ledger(ledger(2, 3), at(ms), &mut sink),
                n => {
                    let own = (n - 3) % 3 + 1;
                    let trace = if own == 3 { 2 } else { 1 };
                    let base = 100 * own as u64;
                    let s = match (n - 3) / 3 {
                        0 => server(trace, base, own as u64),
                        1 => IncomingSpan { stage: None, ..span(trace, base + 1, Some(base), 15, 80) },
                        2 => span(trace, base + 2, Some(base + 1), 20, 50),
                        _ => span(trace, base + 3, Some(base + 1), 40, 50 + own as u64),
                    };
                    aggregator.spans(vec![s], at(ms), &mut sink);
                }
            }
        }
        aggregator.tick(at(6_100), &mut sink);
        out.sort_unstable();
        // Eleven spans: request 3 has no fourth.
        prop_assert_eq!(out, [(id(1), 4, 31 * MS), (id(2), 4, 32 * MS), (id(3), 3, 30 * MS)]);
        prop_assert_eq!(counters.get(Counter::SpansJoined), 11);
    }
}
