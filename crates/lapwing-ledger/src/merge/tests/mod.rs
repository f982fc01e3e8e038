//! The merge, case by case and by property.

mod generation;
mod law;

use proptest::prelude::*;

use super::*;
use crate::{SpanNote, Stamp};

const MS: u64 = 1_000_000;

fn ledger(total_ns: u64, window: Option<(u64, u64, u64)>) -> Ledger {
    let mut ledger = Ledger::open(Stamp::default(), 0);
    ledger.total_ns = total_ns;
    ledger.window = window.map(|(start_ns, head_ns, end_ns)| UpstreamWindow { start_ns, head_ns, end_ns });
    ledger
}

fn observed(stage: Stage, start_ns: u64, end_ns: u64) -> Span {
    Span { stage, event: ObservedEvent::Request, start_ns, end_ns }
}

fn report(stage: Stage, duration_ns: u64, trailing: bool) -> Report {
    Report::of(stage, duration_ns, if trailing { ReportPlace::Trailer } else { ReportPlace::Head })
}

fn traced(stage: Stage, start_ns: i64, end_ns: i64, depth: u32) -> TracedSpan {
    TracedSpan { name: "s".into(), stage: Some(stage), phase: None, start_ns, end_ns, depth, note: SpanNote::default() }
}

/// The pieces that reports or spans claim, by start.
fn pieces(ledger: &Ledger, traced: &[TracedSpan]) -> Vec<(Stage, u64, u64)> {
    let mut all: Vec<_> = placed(ledger, traced).0.iter().map(|c| (c.stage, c.start_ns, c.end_ns)).collect();
    all.sort_by_key(|p| p.1);
    all
}

#[test]
fn without_reports_the_window_is_upstream_but_for_what_was_observed() {
    let mut l = ledger(100, Some((20, 80, 90)));
    l.spans.push(observed(Stage::Ingress, 0, 20));
    l.spans.push(observed(Stage::Ingress, 0, 30)); // the response began before the request was over
    l.spans.push(observed(Stage::Egress, 85, 100));
    let e = merge(l, vec![]);
    assert_eq!((e.stage(Stage::Upstream), e.stage(Stage::Forward)), (Some((55, Source::Observed)), None));
    assert_eq!((e.account.stage_ns(Stage::Ingress), e.account.stage_ns(Stage::Egress)), (30, 15));
    assert_eq!((e.claimed_ns, e.clipped.total(), e.coverage()), (0, 0, Some(0.0)));
}

#[test]
fn without_a_window_nothing_is_claimed_and_what_asked_for_time_is_counted() {
    let mut l = ledger(50 * MS, None);
    l.reports.push(report(Stage::Forward, 5 * MS, false));
    let e = merge(l, vec![traced(Stage::Queue, 1_000_000, 9_000_000, 1)]);
    assert_eq!(e.account.stage_ns(Stage::Unattributed), 50 * MS);
    assert_eq!((e.claimed_ns, e.clipped.too_long, e.clipped.total(), e.coverage()), (0, 2, 2, None));
}

#[test]
fn reports_end_at_the_head_in_the_order_given() {
    let mut l = ledger(100, Some((10, 90, 95)));
    l.reports.extend([
        report(Stage::Preprocessing, 10, false),
        report(Stage::Forward, 30, false),
        report(Stage::Postprocessing, 5, false),
    ]);
    let expected = [(Stage::Preprocessing, 45, 55), (Stage::Forward, 55, 85), (Stage::Postprocessing, 85, 90)];
    assert_eq!(pieces(&l, &[]), expected);
    let e = merge(l, vec![]);
    assert_eq!((e.claimed_ns, e.account.stage_ns(Stage::Unattributed), e.clipped), (45, 55, ClippedReports::default()));
}

#[test]
fn a_report_longer_than_its_window_is_clipped_and_counted_once() {
    let mut l = ledger(100 * MS, Some((10 * MS, 50 * MS, 60 * MS)));
    l.reports.extend([report(Stage::Queue, 7 * MS, false), report(Stage::Forward, 1_000 * MS, false)]);
    let e = merge(l, vec![]);
    assert_eq!(e.account.stage_ns(Stage::Forward), 40 * MS);
    assert_eq!((e.account.stage_ns(Stage::Queue), e.clipped), (0, ClippedReports { too_long: 2, ..ClippedReports::default() }));
}

#[test]
fn trailers_end_at_the_head_if_they_fit_before_it_and_else_at_the_end() {
    let mut l = ledger(100, Some((10, 30, 90)));
    l.reports.push(report(Stage::Forward, 15, true));
    assert_eq!(pieces(&l, &[]), [(Stage::Forward, 15, 30)]);
    l.reports.push(report(Stage::Postprocessing, 10, true));
    assert_eq!(pieces(&l, &[]), [(Stage::Forward, 65, 80), (Stage::Postprocessing, 80, 90)]);
}

#[test]
fn the_heads_reports_stay_before_the_head_when_the_trailers_do_not_fit() {
    let mut l = ledger(100, Some((0, 20, 100)));
    l.reports.extend([report(Stage::Queue, 5, false), report(Stage::Forward, 90, true)]);
    assert_eq!(pieces(&l, &[]), [(Stage::Forward, 5, 15), (Stage::Queue, 15, 20), (Stage::Forward, 20, 100)]);
    assert_eq!(merge(l, vec![]).clipped.total(), 0);
}

#[test]
fn a_stage_reported_twice_sums_but_a_trailers_word_replaces_the_heads() {
    let mut l = ledger(100, Some((0, 100, 100)));
    l.reports.extend([report(Stage::Forward, 10, false), report(Stage::Forward, 20, false)]);
    assert_eq!(merge(l.clone(), vec![]).account.stage_ns(Stage::Forward), 30);
    l.reports.push(report(Stage::Forward, 7, true));
    let e = merge(l, vec![]);
    assert_eq!((e.account.stage_ns(Stage::Forward), e.clipped.total()), (7, 0));
}

#[test]
fn a_report_flows_around_what_is_timed() {
    let mut l = ledger(100, Some((0, 90, 100)));
    l.spans.push(observed(Stage::Egress, 70, 80));
    l.reports.push(report(Stage::Forward, 40, false));
    let e = merge(l, vec![traced(Stage::Hydration, 50, 60, 2)]);
    assert_eq!(e.account.by_source_ns(Stage::Forward, Source::Reported), 40);
    assert_eq!((e.account.stage_ns(Stage::Hydration), e.account.stage_ns(Stage::Egress)), (10, 10));
    assert_eq!(e.claimed_ns, 60);
}

#[test]
fn a_span_of_a_stage_that_is_reported_claims_nothing() {
    let mut l = ledger(100, Some((0, 100, 100)));
    l.reports.push(report(Stage::Forward, 40, false));
    let e = merge(l, vec![traced(Stage::Forward, 0, 100, 1), traced(Stage::Queue, 10, 20, 1)]);
    assert_eq!(e.account.stage_ns(Stage::Forward), 40);
    assert_eq!(e.account.by_source_ns(Stage::Queue, Source::Traced), 10);
}

#[test]
fn spans_are_clipped_to_the_window_and_counted_by_cause() {
    let l = ledger(100 * MS, Some((10 * MS, 90 * MS, 90 * MS)));
    let ms = |stage, start: i64, end: i64| traced(stage, start * 1_000_000, end * 1_000_000, 1);
    let spans = vec![
        ms(Stage::Preprocessing, -5, 20),
        ms(Stage::Postprocessing, 80, 95),
        ms(Stage::Queue, 95, 99),
        ms(Stage::Downstream, 0, 85),
        ms(Stage::Forward, 20, 70),
    ];
    let e = merge(l, spans);
    assert_eq!((e.account.stage_ns(Stage::Preprocessing), e.account.stage_ns(Stage::Postprocessing)), (10 * MS, 10 * MS));
    assert_eq!((e.account.stage_ns(Stage::Queue), e.account.stage_ns(Stage::Forward)), (0, 50 * MS));
    assert_eq!(e.clipped, ClippedReports { too_long: 1, before: 1, after: 2 });
}

#[test]
fn what_exceeds_the_window_by_a_millisecond_or_a_hundredth_of_it_is_no_fault() {
    let of = |window_ms: u64, span: TracedSpan, duration_ns: u64| {
        let mut l = ledger(1_000 * MS, Some((100 * MS, (100 + window_ms) * MS, (100 + window_ms) * MS)));
        l.reports.push(report(Stage::Queue, duration_ns, false));
        let e = merge(l, vec![span]);
        assert_eq!(e.account.stage_ns(Stage::Forward) + e.account.stage_ns(Stage::Queue), window_ms * MS, "clipped all the same");
        e.clipped.by_cause().map(|(_, count)| count)
    };
    let forward = |start_ns: i64, end_ns: i64| traced(Stage::Forward, start_ns, end_ns, 1);
    assert_eq!(of(20, forward(99_000_000, 121_000_000), 1_000_000), [0, 0, 0], "1 ms on each side, and a report of 1 ms");
    assert_eq!(of(20, forward(98_999_999, 120_000_000), 0), [1, 0, 0], "longer than the window");
    assert_eq!(of(20, forward(98_999_999, 119_000_000), MS), [0, 1, 0]);
    assert_eq!(of(20, forward(101_000_000, 121_000_001), MS), [0, 0, 1]);
    assert_eq!(of(20, forward(100_000_000, 120_000_000), 1_000_001), [1, 0, 0]);
    assert_eq!(of(500, forward(95_000_000, 605_000_000), 5_000_000), [0, 0, 0], "5 ms of 500 ms");
}

#[test]
fn a_report_of_nothing_is_a_report() {
    let mut l = ledger(100, Some((0, 100, 100)));
    l.reports.push(report(Stage::Forward, 0, false));
    let e = merge(l, vec![]);
    assert_eq!((e.account.stage_ns(Stage::Unattributed), e.clipped.total(), e.coverage()), (100, 0, Some(0.0)));
}

#[test]
fn a_report_of_no_stage_leaves_the_window_undivided() {
    let mut l = ledger(100, Some((10, 90, 90)));
    l.reports.push(report(Stage::Unattributed, 10, false));
    let spans = vec![TracedSpan { stage: None, ..traced(Stage::Queue, 10, 90, 1) }, traced(Stage::Queue, 90, 95, 1)];
    let e = merge(l, spans);
    assert_eq!((e.stage(Stage::Upstream), e.clipped.total()), (Some((80, Source::Observed)), 0));
}

#[test]
fn the_usual_request_stays_off_the_heap() {
    let mut l = ledger(1_000, Some((100, 800, 900)));
    (0..6).for_each(|i| l.spans.push(observed(Stage::Ingress, i * 10, i * 10 + 10)));
    Stage::FIRST_FIVE.iter().for_each(|s| l.reports.push(report(*s, 50, false)));
    let placing = Placing::of(&l, &[]);
    assert!(!placing.claims.spilled() && !placing.accepted.spilled());
    assert!(!placing.free(l.bounded_window()).spilled());
}

fn any_stage() -> impl Strategy<Value = Stage> {
    (0..Stage::COUNT).prop_map(|i| Stage::ALL[i])
}

fn any_ledger() -> impl Strategy<Value = Ledger> {
    let ends = 0..2_000_u64;
    let window = proptest::option::of((ends.clone(), ends.clone(), ends.clone()));
    let spans = proptest::collection::vec((any_stage(), ends.clone(), ends), 0..=Ledger::SPANS);
    let duration = prop_oneof![9 => 0..600_u64, 1 => Just(u64::MAX)];
    let reports = proptest::collection::vec((any_stage(), duration, any::<bool>()), 0..=Ledger::REPORTS);
    (0..1_500_u64, window, spans, reports).prop_map(|(total_ns, window, spans, reports)| {
        let mut l = ledger(total_ns, window);
        // the proxy never observes the window as a whole
        let spans = spans.into_iter().filter(|(stage, ..)| *stage != Stage::Upstream);
        let outbound = |at: usize| if at.is_multiple_of(3) { ObservedEvent::OutboundCall } else { ObservedEvent::Request };
        l.spans.extend(spans.enumerate().map(|(at, (stage, a, b))| Span { event: outbound(at), ..observed(stage, a, b) }));
        l.reports.extend(reports.into_iter().map(|(stage, ns, trailing)| report(stage, ns, trailing)));
        l
    })
}

fn any_traced() -> impl Strategy<Value = Vec<TracedSpan>> {
    let end = prop_oneof![18 => -500..2_500_i64, 1 => Just(i64::MIN), 1 => Just(i64::MAX)];
    let one = (proptest::option::of(any_stage()), end.clone(), end, 1..5_u32);
    proptest::collection::vec(
        one.prop_map(|(stage, a, b, depth)| TracedSpan { stage, ..traced(Stage::Queue, a, b, depth) }),
        0..40,
    )
}

/// The same, with each nanosecond made a millisecond, so that what is clipped exceeds the tolerance.
fn in_milliseconds(mut l: Ledger, mut spans: Vec<TracedSpan>) -> (Ledger, Vec<TracedSpan>) {
    l.total_ns *= MS;
    if let Some(window) = &mut l.window {
        let UpstreamWindow { start_ns, head_ns, end_ns } = *window;
        *window = UpstreamWindow { start_ns: start_ns * MS, head_ns: head_ns * MS, end_ns: end_ns * MS };
    }
    for span in &mut l.spans {
        (span.start_ns, span.end_ns) = (span.start_ns * MS, span.end_ns * MS);
    }
    l.reports.iter_mut().for_each(|report| report.duration_ns = report.duration_ns.saturating_mul(MS));
    for span in &mut spans {
        (span.start_ns, span.end_ns) = (span.start_ns.saturating_mul(1_000_000), span.end_ns.saturating_mul(1_000_000));
    }
    (l, spans)
}

#[test]
fn what_a_handler_marked_divides_the_window_as_a_report_does() {
    let mut l = ledger(100, Some((0, 90, 100)));
    let undivided = merge(l.clone(), Vec::new());
    assert_eq!((undivided.account.stage_ns(Stage::Upstream), undivided.claimed_ns), (100, 0));
    l.spans.push(Span { stage: Stage::Forward, event: ObservedEvent::Marked, start_ns: 20, end_ns: 70 });
    let marked = merge(l, Vec::new());
    assert_eq!((marked.account.stage_ns(Stage::Forward), marked.account.stage_ns(Stage::Unattributed)), (50, 50));
    assert_eq!((marked.account.total_ns(), marked.claimed_ns), (100, 50));
}

#[test]
fn outbound_calls_divide_the_window_and_are_not_reported_twice() {
    let mut l = ledger(100, Some((0, 90, 100)));
    for (start_ns, end_ns) in [(10, 20), (30, 40)] {
        l.spans.push(Span { stage: Stage::Hydration, event: ObservedEvent::OutboundCall, start_ns, end_ns });
    }
    // nothing else is known: the rest stays undivided
    let calls = merge(l.clone(), Vec::new());
    assert_eq!((calls.account.stage_ns(Stage::Hydration), calls.account.stage_ns(Stage::Upstream)), (20, 80));
    assert_eq!(calls.account.source(Stage::Hydration), Some(Source::Observed));
    // a report of hydration has the calls in it
    l.report(report(Stage::Hydration, 25, false));
    l.report(report(Stage::Hydration, 26, true));
    l.report(report(Stage::Forward, 30, false));
    let reported = merge(l.clone(), Vec::new());
    let ns = |stage| reported.account.stage_ns(stage);
    assert_eq!((ns(Stage::Hydration), ns(Stage::Forward), ns(Stage::Unattributed)), (26, 30, 44));
    // so has a span around them
    l.reports.clear();
    let spanned = merge(l, vec![traced(Stage::Hydration, 5, 45, 1), traced(Stage::Forward, 45, 75, 1)]);
    let ns = |stage| spanned.account.stage_ns(stage);
    assert_eq!(
        (ns(Stage::Hydration), ns(Stage::Forward), spanned.account.by_source_ns(Stage::Hydration, Source::Observed)),
        (40, 30, 20)
    );
    assert_eq!(spanned.account.total_ns(), 100);
}

proptest! {
    #[test]
    fn the_stages_sum_to_the_total_whatever_anybody_says(l in any_ledger(), spans in any_traced()) {
        let total_ns = l.total_ns;
        let e = merge(l, spans);
        prop_assert_eq!(e.account.total_ns(), total_ns);
        prop_assert!(e.coverage().is_none_or(|c| (0.0..=1.0).contains(&c)));
    }

    #[test]
    fn reports_and_spans_own_nothing_outside_the_window(l in any_ledger(), spans in any_traced()) {
        let w = l.bounded_window();
        for claim in placed(&l, &spans).0.iter().filter(|c| c.source != Source::Observed) {
            prop_assert!(w.start_ns <= claim.start_ns && claim.start_ns < claim.end_ns && claim.end_ns <= w.end_ns);
        }
    }

    #[test]
    fn no_stage_owns_more_than_the_total_and_no_source_more_than_it_may(l in any_ledger(), spans in any_traced()) {
        let window_ns = l.bounded_window().length_ns();
        let total_ns = l.total_ns;
        let e = merge(l, spans);
        for stage in Stage::ALL {
            prop_assert!(e.account.stage_ns(stage) <= total_ns);
        }
        let by_source = |source| Stage::ALL.iter().map(|s| e.account.by_source_ns(*s, source)).sum::<u64>();
        let said = [Source::Reported, Source::Traced].map(by_source);
        prop_assert!(said.iter().sum::<u64>() <= window_ns);
        prop_assert!(said[0] + said[1] <= e.claimed_ns && e.claimed_ns <= window_ns);
        for source in [Source::Traced, Source::Reported] {
            prop_assert_eq!(e.account.by_source_ns(Stage::Unattributed, source), 0);
            prop_assert_eq!(e.account.by_source_ns(Stage::Upstream, source), 0);
        }
    }

    /// Spans side by side, in any order, among reports of any stage and size.
    #[test]
    fn a_span_that_nobody_overlaps_gets_exactly_its_time(
        cuts in proptest::collection::btree_set(100..900_u64, 0..24),
        whose in proptest::collection::vec((any_stage(), 1..5_u32), 12),
        order in Just((0..12_usize).collect::<Vec<_>>()).prop_shuffle(),
        said in any_ledger(),
    ) {
        let mut l = ledger(1_000, Some((100, 850, 900)));
        l.spans.extend([observed(Stage::Ingress, 0, 100), observed(Stage::Egress, 900, 1_000)]);
        l.reports.extend(said.reports.iter().copied().filter(|r| r.stage.index() % 2 == 0));
        let cuts: Vec<i64> = cuts.into_iter().map(u64::cast_signed).collect();
        let apart: Vec<TracedSpan> =
            cuts.chunks_exact(2).zip(&whose).map(|(c, (stage, depth))| traced(*stage, c[0], c[1], *depth)).collect();
        let spans: Vec<TracedSpan> = order.iter().filter_map(|i| apart.get(*i)).cloned().collect();
        let e = merge(l, spans);
        for stage in Stage::ALL {
            let own = || apart.iter().filter(|s| s.stage == Some(stage));
            let is_reported = e.ledger.reports.iter().any(|r| r.stage == stage);
            let expected = if is_reported || !names_time(stage) { 0 } else { own().map(|s| s.end_ns - s.start_ns).sum() };
            prop_assert_eq!(e.account.by_source_ns(stage, Source::Traced).cast_signed(), expected);
        }
    }

    #[test]
    fn the_window_is_upstream_if_and_only_if_nothing_was_reported(l in any_ledger(), spans in any_traced()) {
        let w = l.bounded_window();
        let is_claimed = l.reports.iter().any(says) || !Placing::of(&l, &spans).accepted.is_empty();
        let e = merge(l, spans);
        let observed = |t: u64| e.ledger.spans.iter().any(|s| s.start_ns <= t && t < s.end_ns);
        let free = (w.start_ns..w.end_ns).filter(|t| !observed(*t)).count() as u64;
        let expected = if is_claimed { 0 } else { free };
        prop_assert_eq!(e.account.stage_ns(Stage::Upstream), expected);
        prop_assert!(is_claimed || e.claimed_ns == 0);
    }

    /// Reports take free time only: each gets all of its duration, or is counted; nothing timed loses any.
    #[test]
    fn a_report_eats_nobodys_duration(l in any_ledger(), spans in any_traced()) {
        let (l, spans) = in_milliseconds(l, spans);
        let named = |s: Stage| l.reports.iter().any(|r| r.stage == s);
        let spans: Vec<_> = spans.into_iter().filter(|s| s.stage.is_none_or(|s| !named(s))).collect();
        let e = merge(l.clone(), spans.clone());
        let without = merge(Ledger { reports: Default::default(), ..l.clone() }, spans.clone());
        for stage in Stage::ALL {
            let timed = [Source::Traced, Source::Observed].map(|s| (e.account.by_source_ns(stage, s), without.account.by_source_ns(stage, s)));
            prop_assert_eq!(timed[0].0, timed[0].1);
            prop_assert!(!names_time(stage) || timed[1].0 == timed[1].1);
            let trailing = l.reports.iter().any(|r| r.stage == stage && r.place == ReportPlace::Trailer);
            let said = l.reports.iter().filter(|r| says(r) && r.stage == stage && (r.place == ReportPlace::Trailer) == trailing).fold(0_u64, |n, r| n.saturating_add(r.duration_ns));
            let got = e.account.by_source_ns(stage, Source::Reported);
            prop_assert!(got <= said);
            let calls = l.spans.iter().filter(|span| span.stage == stage && span.event == ObservedEvent::OutboundCall);
            let beyond = said.saturating_sub(calls.map(|span| span.end_ns.saturating_sub(span.start_ns)).sum());
            let spans_clipped = placed(&Ledger { reports: Default::default(), ..l.clone() }, &spans).1.total();
            // what is missing was counted, unless every report lacks less than the tolerance
            let tolerated_ns = Ledger::REPORTS as u64 * l.bounded_window().tolerance_ns();
            prop_assert!(beyond.saturating_sub(got) <= tolerated_ns || e.clipped.total() > spans_clipped);
        }
    }
}
