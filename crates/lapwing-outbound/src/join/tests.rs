//! Whose time a wait was, and that it is counted once.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::call::Wait;
use crate::config::Downstream;
use crate::figures::Lasted;
use lapwing_ledger::{SpanId, UpstreamWindow, merge};
use lapwing_metrics::Counters;

fn downstreams() -> Downstreams {
    let text = r#"[{"name": "features", "listen": "127.0.0.1:1", "to": "redis://127.0.0.1", "kind": "redis"},
        {"name": "audit", "listen": "127.0.0.1:2", "to": "http://127.0.0.1", "kind": "http", "stage": "downstream"}]"#;
    let config: Vec<Downstream> = serde_json::from_str(text).unwrap();
    Downstreams::of(&config, &Arc::new(Counters::default())).unwrap()
}

fn at(ns: u64) -> Stamp {
    Stamp::default().plus(ns)
}

/// A request from `from` to `to`, whose window begins and ends 10 ns inside it.
fn request(from: u64, to: u64) -> Ledger {
    let total_ns = to - from;
    let window = Some(UpstreamWindow { start_ns: 10, head_ns: total_ns - 10, end_ns: total_ns - 10 });
    Ledger { total_ns, window, trace: TraceId::random(), span: SpanId::random(), ..Ledger::open(at(from), 0) }
}

/// A joiner that has taken these waits of the downstreams at these places.
fn joiner(all: &Downstreams, waits: &[(usize, u64, u64, Asked)]) -> WaitJoiner {
    let mut joiner = WaitJoiner::new(all.clone());
    for (of, from, to, asked) in waits {
        let wait = Wait { began: at(*from), ended: at(*to), asked: *asked };
        all.waits.push(JoinableWait { of: all.list[*of].clone(), wait }).unwrap();
        joiner.take();
    }
    joiner
}

fn pieces(ledger: &Ledger) -> Vec<(Stage, u64, u64)> {
    ledger.spans.iter().map(|span| (span.stage, span.start_ns, span.end_ns)).collect()
}

fn joined(all: &Downstreams, join: WaitJoin) -> u64 {
    let count = |one: &Arc<crate::DownstreamState>| {
        let figures = one.figures.lock();
        figures.waits().find(|(of, _)| *of == join).map_or(0, |(_, Lasted { count, .. })| count)
    };
    all.list.iter().map(count).sum()
}

#[test]
fn waits_that_began_while_a_request_was_alone_are_its_own() {
    let all = downstreams();
    let alone = Asked::Alone;
    let waits = [
        (0, 990, 999, alone),
        (0, 1020, 1050, alone),
        (0, 1040, 1080, alone),
        (1, 1030, 1100, alone),
        (0, 1150, 1190, alone),
        (0, 2010, 2020, alone),
    ];
    let mut joiner = joiner(&all, &waits);
    let mut ledger = request(1000, 1200);
    joiner.attach(&mut ledger);
    // two at once count once, and nothing exceeds the window
    let (hydration, downstream) = (Stage::Hydration, Stage::Downstream);
    assert_eq!(pieces(&ledger), [(hydration, 20, 80), (hydration, 150, 190), (downstream, 30, 100)]);
    assert_eq!((joined(&all, WaitJoin::Alone), joiner.fill()), (4, 2));
    let mut next = request(2000, 2100);
    joiner.attach(&mut next);
    assert_eq!(pieces(&next), [(hydration, 10, 20)]);
    let mut copy = Ledger { is_copy: true, ..request(980, 1200) };
    joiner.attach(&mut copy);
    assert_eq!((pieces(&copy), joiner.fill()), (Vec::new(), 1), "a copy's server is another one");
}

#[test]
fn a_trace_tells_requests_at_the_same_time_apart() {
    let all = downstreams();
    let (mut a, mut b) = (request(1000, 1500), request(1100, 1400));
    let of = |ledger: &Ledger| Asked::Trace(ledger.trace, SpanId::random());
    let mut joiner = joiner(
        &all,
        &[(1, 1150, 1200, of(&a)), (1, 1160, 1300, of(&b)), (1, 1160, 1300, Asked::Trace(TraceId::random(), a.span))],
    );
    joiner.attach(&mut b);
    joiner.attach(&mut a);
    assert_eq!((pieces(&a), pieces(&b)), (vec![(Stage::Downstream, 150, 200)], vec![(Stage::Downstream, 60, 200)]));
    assert_eq!((joined(&all, WaitJoin::Trace), joiner.fill()), (2, 1));
    // of two requests of one trace, the one whose span the call names has it, however early that began
    let mut first = request(1000, 1500);
    let mut second = Ledger { trace: first.trace, ..request(1200, 1600) };
    let mut joiner = tests::joiner(&all, &[(1, 1250, 1300, Asked::Trace(first.trace, second.span))]);
    joiner.attach(&mut second);
    joiner.attach(&mut first);
    assert_eq!((pieces(&second), pieces(&first)), (vec![(Stage::Downstream, 50, 100)], Vec::new()));
}

#[test]
fn what_waits_and_what_a_request_is_given_is_bounded() {
    let all = downstreams();
    let mut joiner = WaitJoiner::new(all.clone());
    for n in 0..(MAX_WAITS + 100) as u64 {
        let asked = if n % 2 == 0 { Asked::Alone } else { Asked::Trace(TraceId::random(), SpanId::random()) };
        let wait = Wait { began: at(1000 + 10 * n), ended: at(1005 + 10 * n), asked };
        all.waits.push(JoinableWait { of: all.list[0].clone(), wait }).unwrap();
        joiner.take();
    }
    assert_eq!((joiner.fill(), joiner.by_trace.len(), joined(&all, WaitJoin::Unmatched)), (MAX_WAITS, MAX_WAITS / 2, 100));
    let mut ledger = request(990, 10_000_000);
    joiner.attach(&mut ledger);
    assert_eq!((ledger.spans.len(), usize::from(ledger.overflowed)), (MAX_PIECES, MAX_WAITS / 2 - MAX_PIECES));
    assert_eq!(joiner.fill(), MAX_WAITS / 2);
}

#[tokio::test]
async fn ledgers_wait_until_what_was_handed_on_is_noted() {
    let all = downstreams();
    let joiner = WaitJoiner::new(all.clone());
    joiner.settle().await;
    all.progress.enter();
    let noted = async {
        sleep(SETTLE * 3).await;
        all.progress.leave();
        all.progress.enter();
    };
    let settled = async {
        joiner.settle().await;
        all.progress.number()
    };
    let (number, ()) = tokio::join!(settled, noted);
    assert_eq!(number, 3, "another period has begun, and need not be waited for");
}

proptest! {
    #[test]
    fn the_stages_of_a_request_sum_to_its_time_and_no_wait_counts_twice(
        waits in prop::collection::vec((0..2_usize, 0..2000_u64, 0..400_u64), 0..40),
        from in 0..1000_u64,
        length in 20..1000_u64,
    ) {
        let all = downstreams();
        let waits: Vec<_> = waits.into_iter().map(|(of, from, ns)| (of, from, from + ns, Asked::Alone)).collect();
        let mut joiner = joiner(&all, &waits);
        let mut ledger = request(from, from + length);
        joiner.attach(&mut ledger);
        let exchange = merge(ledger, Vec::new());
        prop_assert_eq!(exchange.account.total_ns(), length);
        for (of, stage) in [(0, Stage::Hydration), (1, Stage::Downstream)] {
            let own = |t: &u64| waits.iter().any(|(by, a, b, _)| *by == of && (from..=from + length).contains(a) && (a..b).contains(&t));
            let union = (from + 10..from + length - 10).filter(own).count() as u64;
            let observed = exchange.ledger.spans.iter().filter(|span| span.stage == stage).map(|span| span.end_ns - span.start_ns).sum::<u64>();
            prop_assert_eq!(observed, union);
            prop_assert!(exchange.account.stage_ns(stage) <= union);
        }
    }
}
