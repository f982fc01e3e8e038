//! Which spans are moved, by how much, and what is left where it is. Times are milliseconds; the window is 10 to 110.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::{CacheLookups, ProcessId, ServerSpan, SharedSpan};
use lapwing_ledger::{Stage, Stamp, TraceId, TracedSpan, UpstreamWindow, merge};

const MS: u64 = 1_000_000;
const WALL: u64 = 1_000_000 * MS;
const OWN: u64 = 1;

fn ledger() -> Ledger {
    let mut ledger = Ledger::open(Stamp::default(), WALL);
    ledger.span = id(OWN);
    ledger.total_ns = 120 * MS;
    ledger.window = Some(UpstreamWindow { start_ns: 10 * MS, head_ns: 110 * MS, end_ns: 110 * MS });
    ledger
}

fn id(n: u64) -> SpanId {
    SpanId(n.to_be_bytes())
}

/// A span of the service `app`, whose clock is `skew` ahead.
fn span(n: u64, parent: u64, (from, to): (u64, u64), skew: i64) -> IncomingSpan {
    let at = |ms: u64| (WALL + ms * MS).saturating_add_signed(skew * 1_000_000);
    IncomingSpan {
        trace: TraceId([1; 16]),
        span: id(n),
        parent: Some(id(parent)),
        name: "span".into(),
        kind: SpanKind::Internal,
        stage: Some(Stage::Forward),
        phase: None,
        is_store_call: false,
        start_unix_ns: at(from),
        end_unix_ns: at(to),
        service: Arc::from("app"),
        process: ProcessId::default(),
        cache: CacheLookups::default(),
        server: None,
        shifted_ns: 0,
        shared: None,
    }
}

fn of(service: &str, span: IncomingSpan) -> IncomingSpan {
    IncomingSpan { service: Arc::from(service), ..span }
}

fn kind(kind: SpanKind, span: IncomingSpan) -> IncomingSpan {
    IncomingSpan { kind, stage: None, ..span }
}

/// Where the spans lie, in whole milliseconds, and by how much each was moved.
fn places(clocks: &mut ProcessClocks, spans: &[IncomingSpan]) -> Vec<(i64, i64, i64)> {
    let ms = |ns: i64| (ns + 500_000).div_euclid(1_000_000);
    let placed = clocks.place(&ledger(), spans, true);
    let at = |at: u64| ms(offset(at, WALL));
    placed.iter().map(|span| (at(span.start_unix_ns), at(span.end_unix_ns), ms(span.shifted_ns))).collect()
}

fn once(spans: &[IncomingSpan]) -> Vec<(i64, i64, i64)> {
    places(&mut ProcessClocks::default(), spans)
}

#[test]
fn a_clock_that_is_off_moves_all_spans_of_its_process_by_one_amount() {
    let group =
        |skew| [kind(SpanKind::Server, span(2, OWN, (12, 107), skew)), span(3, 2, (20, 100), skew), span(4, 2, (100, 105), skew)];
    assert_eq!(once(&group(25)), [(15, 110, -22), (23, 103, -22), (103, 108, -22)], "ahead");
    assert_eq!(once(&group(-25)), [(10, 105, 23), (18, 98, 23), (98, 103, 23)], "behind");
    assert_eq!(once(&group(3_600_000))[1], (23, 103, -3_599_997), "an hour");
    assert_eq!(once(&group(0)), [(12, 107, 0), (20, 100, 0), (100, 105, 0)]);
    assert_eq!(once(&group(2))[1], (22, 102, 0), "within the window");
}

#[test]
fn a_span_of_eighty_counts_as_eighty_with_a_clock_that_is_off() {
    let spans = [kind(SpanKind::Server, span(2, OWN, (12, 107), 25)), span(3, 2, (20, 100), 25)];
    let mut clocks = ProcessClocks::default();
    let placed = clocks.place(&ledger(), &spans, true);
    let (traced, _) = crate::aggregator::below(id(OWN), WALL, &placed);
    let exchange = merge(ledger(), traced);
    assert_eq!((exchange.account.stage_ns(Stage::Forward), exchange.clipped.total(), exchange.shifted()), (80 * MS, 0, 2));
    assert_eq!(exchange.account.total_ns(), exchange.ledger.total_ns);
}

#[test]
fn a_group_that_is_too_long_is_left_to_be_clipped_but_its_server_span_finds_its_place() {
    let long = [span(2, OWN, (0, 130), 0)];
    assert_eq!(once(&long), [(0, 130, 0)]);
    // work that goes on in the background, below a server span that fits
    let background = [kind(SpanKind::Server, span(2, OWN, (12, 107), 25)), span(3, 2, (20, 100), 25), span(4, 2, (90, 300), 25)];
    assert_eq!(once(&background), [(15, 110, -22), (23, 103, -22), (93, 303, -22)]);
    assert_eq!(once(&[kind(SpanKind::Server, span(2, OWN, (12, 107), 0)), span(4, 2, (90, 300), 0)])[1], (90, 300, 0));
}

#[test]
fn work_after_the_response_is_no_clock_that_is_ahead() {
    // what ends late is a small part of what would fit, however often
    let mut clocks = ProcessClocks::default();
    for _ in 0..3 * AGREED {
        assert_eq!(places(&mut clocks, &[span(2, OWN, (80, 118), 0)]), [(80, 118, 0)]);
    }
    // it is no clock where the process begins sooner in other exchanges, be they in between or too long to fit anywhere
    for soon in [(12, 100), (12, 119)] {
        let mut clocks = ProcessClocks::default();
        for _ in 0..3 * AGREED {
            assert_eq!(places(&mut clocks, &[span(2, OWN, soon, 0)])[0].2, 0);
            assert_eq!(places(&mut clocks, &[span(2, OWN, (20, 118), 0)]), [(20, 118, 0)], "after one of {soon:?}");
        }
    }
    // a few that end late among many that say nothing
    let mut clocks = ProcessClocks::default();
    for n in 0..10 * AGREED {
        let end = if n % 16 == 15 { 118 } else { 60 };
        assert_eq!(places(&mut clocks, &[span(2, OWN, (20, end), 0)])[0].2, 0, "{n}");
    }
}

/// As of Ray Serve: each process ends its span after the answer has gone on, and no span is a client's.
#[test]
fn a_replica_is_not_moved_before_what_routed_to_it() {
    let server = |n, parent, times, service, skew| of(service, kind(SpanKind::Server, span(n, parent, times, skew)));
    let spans = |gateway, skew| {
        [
            // in any order
            server(6, 5, (96, 116), "replica", skew),
            server(2, OWN, (11, 111), "proxy", 0),
            server(3, 2, (gateway, 118), "gateway", 0),
            server(4, 3, (22, 90), "gateway", 0),
            server(5, 3, (94, 97), "gateway", 0),
        ]
    };
    let mut clocks = ProcessClocks::default();
    for n in 0..6 * AGREED {
        let gateway = if n % 4 == 0 { 13 } else { 20 };
        let placed = places(&mut clocks, &spans(gateway, 0));
        assert_eq!(placed.iter().map(|at| at.2).collect::<Vec<_>>(), [0; 5], "{n}");
    }
    assert_eq!(once(&spans(13, -1_000))[0].2, 914, "a clock that is behind is seen by itself");
    // where the gateway never begins sooner, only knowledge of the server helps
    assert_eq!(once(&spans(20, 0))[2].2, -8);
    let outlasts = |span| {
        let server = Some(Box::new(ServerSpan { outlasts_answer: true, ..ServerSpan::default() }));
        IncomingSpan { server, ..span }
    };
    for skew in [0, -1_000] {
        let placed = once(&spans(20, skew).map(outlasts));
        assert_eq!(placed.iter().map(|at| at.2).collect::<Vec<_>>(), [if skew == 0 { 0 } else { 914 }, 0, 0, 0, 0]);
    }
}

#[test]
fn a_called_service_has_a_clock_of_its_own_and_lies_in_the_call() {
    let spans = |upstream, store| {
        [
            kind(SpanKind::Server, span(2, OWN, (12, 107), upstream)),
            kind(SpanKind::Client, span(3, 2, (40, 70), upstream)),
            of("store", kind(SpanKind::Server, span(4, 3, (45, 65), store))),
            of("store", span(5, 4, (50, 60), store)),
        ]
    };
    assert_eq!(once(&spans(0, 1_000)).iter().map(|at| at.2).collect::<Vec<_>>(), [0, 0, -995, -995]);
    assert_eq!(once(&spans(0, -1_000))[3], (45, 55, 995), "by the least that makes it fit");
    assert_eq!(once(&spans(25, 0)).iter().map(|at| at.2).collect::<Vec<_>>(), [-22, -22, 0, 0]);
    assert_eq!(once(&spans(0, 0))[2], (45, 65, 0));
}

#[test]
fn what_several_exchanges_have_in_common_decides() {
    let mut clocks = ProcessClocks::default();
    // long requests show how much the clock differs; a short one would fit where it is
    for _ in 0..AGREED {
        places(&mut clocks, &[span(2, OWN, (11, 109), 25)]);
    }
    assert_eq!(places(&mut clocks, &[span(2, OWN, (30, 50), 25)]), [(31, 51, -24)]);
    // a clock that is right: work after the response stays after it
    let mut clocks = ProcessClocks::default();
    for _ in 0..AGREED {
        places(&mut clocks, &[span(2, OWN, (12, 109), 0)]);
    }
    assert_eq!(places(&mut clocks, &[span(2, OWN, (100, 130), 0)]), [(100, 130, 0)]);
    // a clock that was set: it is learnt anew
    for _ in 0..AGREED {
        places(&mut clocks, &[span(2, OWN, (12, 109), 500)]);
    }
    assert_eq!(places(&mut clocks, &[span(2, OWN, (12, 109), 500)]), [(13, 110, -499)]);
}

#[test]
fn processes_are_told_apart_by_their_resource_and_their_number_is_bounded() {
    let told = |n: u64, span: IncomingSpan| IncomingSpan { process: ProcessId::of(&n), ..span };
    let two = [told(1, span(2, OWN, (12, 60), 0)), told(2, span(3, OWN, (60, 107), 25))];
    assert_eq!(once(&two), [(12, 60, 0), (63, 110, -22)]);
    let by_connection = |n: u64, span: IncomingSpan| IncomingSpan { process: ProcessId::of_connection(&n), ..span };
    let one = [by_connection(1, span(2, OWN, (12, 107), 25)), by_connection(2, span(3, 2, (20, 30), 25))];
    assert_eq!(once(&one), [(15, 110, -22), (23, 33, -22)], "exporters connect anew");
    let mut clocks = ProcessClocks::default();
    for n in 0..2 * PROCESSES as u64 {
        places(&mut clocks, &[told(n, span(2, OWN, (12, 60), 0))]);
    }
    assert_eq!(clocks.processes.len(), PROCESSES);
}

#[test]
fn a_batch_and_spans_without_a_time_say_nothing_of_a_clock() {
    let unset = IncomingSpan { start_unix_ns: 0, end_unix_ns: 0, ..span(4, 2, (0, 0), 0) };
    let batch = IncomingSpan { shared: Some(Box::new(SharedSpan { by: 2, copy_of: Some(id(9)) })), ..span(3, 2, (90, 130), 0) };
    assert_eq!(once(&[kind(SpanKind::Server, span(2, OWN, (12, 107), 0)), batch, unset])[1], (90, 130, 0));
}

proptest! {
    #[test]
    fn whatever_the_clocks_say_order_and_gaps_stay_and_time_is_conserved(
        spans in prop::collection::vec((2..9_u64, 1..9_u64, 0..200_u64, 0..150_u64, 0..3_usize, 0..3_usize), 1..12),
        skews in [-3_000..3_000_i64, -3_000..3_000_i64, -3_000..3_000_i64],
    ) {
        let kinds = [SpanKind::Internal, SpanKind::Client, SpanKind::Server];
        let names = ["a", "b", "c"];
        let spans: Vec<_> = spans.into_iter().map(|(n, parent, from, length, service, k)| {
            let span = of(names[service], span(n, parent, (from, from + length), skews[service]));
            IncomingSpan { kind: kinds[k], ..span }
        }).collect();
        let mut clocks = ProcessClocks::default();
        let placed = clocks.place(&ledger(), &spans, true);
        for (came, span) in spans.iter().zip(placed.iter()) {
            prop_assert_eq!(span.end_unix_ns - span.start_unix_ns, came.end_unix_ns - came.start_unix_ns);
            let of_same = placed.iter().filter(|other| other.service == span.service);
            prop_assert!(of_same.clone().all(|other| other.shifted_ns == span.shifted_ns));
        }
        let (traced, _): (Vec<TracedSpan>, _) = crate::aggregator::below(id(OWN), WALL, &placed);
        let exchange = merge(ledger(), traced);
        prop_assert_eq!(exchange.account.total_ns(), exchange.ledger.total_ns);
    }
}
