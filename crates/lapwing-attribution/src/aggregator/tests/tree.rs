//! Ancestry, stages and clocks of received spans.

use std::sync::Arc;

use proptest::prelude::*;

use crate::ServerSpan;
use crate::aggregator::*;

const OWN: u8 = 100;

fn id(n: u8) -> SpanId {
    SpanId([0, 0, 0, 0, 0, 0, 0, n])
}

fn span(n: u8, parent: u8, start: u64, end: u64) -> IncomingSpan {
    IncomingSpan {
        span: id(n),
        parent: Some(id(parent)),
        name: n.to_string().into(),
        stage: None,
        start_unix_ns: 1_000 + start,
        end_unix_ns: 1_000 + end,
        ..super::span(1, 0, None, 0, 0)
    }
}

fn staged(stage: Stage, s: IncomingSpan) -> IncomingSpan {
    IncomingSpan { stage: Some(stage), ..s }
}

fn call(s: IncomingSpan) -> IncomingSpan {
    IncomingSpan { kind: SpanKind::Client, ..s }
}

fn server(service: &str, s: IncomingSpan) -> IncomingSpan {
    IncomingSpan { kind: SpanKind::Server, service: Arc::from(service), ..s }
}

fn place(spans: Vec<IncomingSpan>) -> Vec<(String, Option<Stage>, i64, i64, u32)> {
    let placed = below(id(OWN), 1_000, &spans).0;
    let mut all: Vec<_> = placed.into_iter().map(|s| (s.name.into_string(), s.stage, s.start_ns, s.end_ns, s.depth)).collect();
    all.sort();
    all
}

fn at(n: u8, stage: Option<Stage>, start: i64, end: i64, depth: u32) -> (String, Option<Stage>, i64, i64, u32) {
    (n.to_string(), stage, start, end, depth)
}

#[test]
fn depth_counts_from_our_own_span_and_offsets_from_the_anchor() {
    let spans = vec![span(3, 2, 20, 30), span(1, OWN, 5, 90), span(2, 1, 10, 40)];
    assert_eq!(place(spans), [at(1, None, 5, 90, 1), at(2, None, 10, 40, 2), at(3, None, 20, 30, 3)]);
    let early = below(id(OWN), 2_000, &[span(1, OWN, 0, 10)]).0;
    assert_eq!((early[0].start_ns, early[0].end_ns), (-1_000, -990));
}

#[test]
fn what_a_called_service_reports_is_inside_the_call() {
    let spans = vec![
        server("app/1", span(1, OWN, 0, 100)),
        call(span(2, 1, 10, 50)),
        server("other/1", span(3, 2, 12, 48)),
        staged(Stage::Forward, span(4, 3, 13, 40)),
        IncomingSpan { is_store_call: true, ..call(span(5, 3, 41, 44)) },
        server("app/1", span(6, 2, 12, 48)),
        call(span(7, 3, 44, 47)),
        server("third/1", span(8, 7, 45, 46)),
        staged(Stage::Queue, span(9, 8, 45, 46)),
    ];
    let expected = [
        at(1, None, 0, 100, 1),
        at(2, Some(Stage::Downstream), 10, 50, 2),
        at(3, None, 12, 48, 3),
        at(4, Some(Stage::Forward), 13, 40, 4),
        at(5, Some(Stage::Hydration), 41, 44, 4),
        at(6, None, 12, 48, 3),
        at(7, Some(Stage::Downstream), 44, 47, 4),
        at(8, None, 45, 46, 5),
        at(9, Some(Stage::Queue), 45, 46, 6),
    ];
    assert_eq!(place(spans), expected);
}

#[test]
fn a_relays_call_hides_nothing_of_the_server_behind_it() {
    let spans = vec![
        server("relay/1", span(1, OWN, 0, 100)),
        call(IncomingSpan { service: "relay/1".into(), ..span(2, 1, 1, 99) }),
        server("app/1", span(3, 2, 2, 98)),
        staged(Stage::Forward, span(4, 3, 10, 90)),
    ];
    let stages: Vec<_> = place(spans).into_iter().map(|s| s.1).collect();
    assert_eq!(stages, [None, Some(Stage::Downstream), None, Some(Stage::Forward)]);
}

#[test]
fn a_called_server_reports_nothing_about_the_request_as_a_whole() {
    let telling = |s: IncomingSpan| {
        let report = ServerReport { first_token_ns: Some(5), ..ServerReport::default() };
        IncomingSpan { server: Some(Box::new(ServerSpan { report, ..ServerSpan::default() })), ..s }
    };
    let called = [call(span(1, OWN, 0, 100)), telling(server("other/1", span(2, 1, 10, 90)))];
    assert_eq!(below(id(OWN), 1_000, &called).1.first_token_ns, None);
    assert_eq!(below(id(OWN), 1_000, &[telling(span(1, OWN, 0, 100))]).1.first_token_ns, Some(5));
}

#[test]
fn below_a_call_whose_stage_is_given_another_service_is_left_out() {
    let below_the_call = |call: IncomingSpan| {
        let called = [server("other/1", span(3, 2, 12, 48)), staged(Stage::Queue, span(4, 3, 13, 47))];
        let outer = staged(Stage::Forward, span(1, OWN, 0, 100));
        place([outer, call].into_iter().chain(called).collect()).len()
    };
    assert_eq!(below_the_call(call(span(2, 1, 10, 50))), 2, "the span above the call says what it is");
    assert_eq!(below_the_call(staged(Stage::Downstream, call(span(2, OWN, 10, 50)))), 2, "the call itself does");
    assert_eq!(below_the_call(call(span(2, OWN, 10, 50))), 4);
    let store = IncomingSpan { is_store_call: true, ..call(span(2, OWN, 10, 50)) };
    assert_eq!(below_the_call(store), 2, "a store's own spans divide nothing");
}

#[test]
fn a_call_without_a_stage_is_hydration_or_downstream_unless_an_ancestor_owns_it() {
    let store = |s| IncomingSpan { is_store_call: true, ..call(s) };
    let spans = vec![
        store(span(1, OWN, 0, 10)),
        call(span(2, OWN, 10, 20)),
        staged(Stage::Preprocessing, span(3, OWN, 20, 40)),
        store(span(4, 3, 22, 30)),
        staged(Stage::Forward, call(span(5, OWN, 40, 60))),
    ];
    let stages: Vec<_> = place(spans).into_iter().map(|s| s.1).collect();
    let expected = [Some(Stage::Hydration), Some(Stage::Downstream), Some(Stage::Preprocessing), None, Some(Stage::Forward)];
    assert_eq!(stages, expected);
}

#[test]
fn a_child_that_starts_before_its_staged_parent_starts_with_it() {
    let spans = vec![
        staged(Stage::Forward, span(1, OWN, 10, 50)),
        span(2, 1, 4, 40),
        staged(Stage::Queue, span(3, 2, 8, 30)),
        staged(Stage::Hydration, span(4, 1, 2, 9)),
    ];
    let placed = place(spans);
    assert_eq!(placed[2], at(3, Some(Stage::Queue), 10, 30, 3));
    assert_eq!(placed[3], at(4, Some(Stage::Hydration), 2, 9, 2), "nothing to be inside of");
}

#[test]
fn cycles_and_double_ids_end() {
    let spans =
        vec![span(1, 2, 0, 1), span(2, 1, 0, 1), span(3, 3, 0, 1), span(4, OWN, 0, 1), span(4, 5, 0, 1), span(5, 4, 0, 1)];
    let names: Vec<_> = place(spans).into_iter().map(|s| s.0).collect();
    assert_eq!(names, ["4", "4", "5"]);
}

#[test]
fn trees_whose_top_is_missing_hang_from_our_span() {
    assert_eq!(place(vec![span(2, 1, 0, 9), span(3, 2, 1, 8)]), [at(2, None, 0, 9, 1), at(3, None, 1, 8, 2)]);
}

proptest! {
    #[test]
    fn no_span_is_placed_twice_whatever_the_links(links in proptest::collection::vec((0..12_u8, 0..12_u8), 0..40)) {
        let spans: Vec<_> = links.iter().map(|(n, parent)| span(*n, if *parent == 0 { OWN } else { *parent }, 0, 10)).collect();
        prop_assert!(below(id(OWN), 1_000, &spans).0.len() <= links.len());
    }
}
