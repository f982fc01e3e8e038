//! The laws of time, checked from outside: ledgers as the request path closes them, reports, and spans as an upstream sends
//! them go through the aggregator, and its results are checked to the nanosecond. Units: nanoseconds.

use std::sync::Arc;

use lapwing_attribution::{Aggregator, CacheLookups, IncomingSpan, JoinSettings, ProcessId, SpanExpectation, SpanKind};
use lapwing_ledger::{
    Exchange, Ledger, ObservedEvent, Report, ReportPlace, Source, SpanId, SpanNote, Stage, Stamp, TraceId, TracedSpan,
    UpstreamWindow, merge, waterfall_bars,
};
use lapwing_metrics::{Counter, Counters};
use proptest::prelude::*;

const WALL: u64 = 1_700_000_000_000_000_000;
const EVENTS: [ObservedEvent; 4] =
    [ObservedEvent::Request, ObservedEvent::Connect, ObservedEvent::Response, ObservedEvent::Backpressure];

fn id(n: u64) -> SpanId {
    SpanId(n.to_be_bytes())
}

fn start() -> Stamp {
    Stamp::default().plus(1)
}

fn any_stage() -> impl Strategy<Value = Stage> {
    (0..Stage::COUNT).prop_map(|i| Stage::ALL[i])
}

/// A ledger made from stamps. Its spans and reports may overlap, nest, exceed the end, or be too many.
fn any_ledger() -> impl Strategy<Value = Ledger> {
    let end = || 0..3_000_u64;
    let spans = proptest::collection::vec((any_stage(), 0..EVENTS.len(), end(), end()), 0..Ledger::SPANS + 4);
    let duration = prop_oneof![20 => 0..800_u64, 1 => Just(u64::MAX), 1 => Just(u64::MAX / 2)];
    let reports = proptest::collection::vec((any_stage(), duration, any::<bool>()), 0..Ledger::REPORTS + 4);
    let window = proptest::option::of((end(), end(), end()));
    (0..2_000_u64, window, spans, reports).prop_map(|(total_ns, window, spans, reports)| {
        let mut l = Ledger::open(start(), WALL);
        (l.trace, l.span, l.parent, l.traced) = (TraceId([1; 16]), id(1), id(2), true);
        l.total_ns = total_ns;
        l.window = window.map(|(start_ns, head_ns, end_ns)| UpstreamWindow { start_ns, head_ns, end_ns });
        for (stage, event, from, to) in spans {
            l.observe(stage, EVENTS[event], start().plus(from), start().plus(to));
        }
        for (stage, duration_ns, trailing) in reports {
            l.report(Report::of(stage, duration_ns, if trailing { ReportPlace::Trailer } else { ReportPlace::Head }));
        }
        l
    })
}

/// Spans of the request's trace: below it, below each other, in cycles, without a known parent, from other clocks and services.
fn any_spans() -> impl Strategy<Value = Vec<IncomingSpan>> {
    let at = || prop_oneof![20 => WALL - 500..WALL + 3_000, 1 => Just(0), 1 => Just(u64::MAX)];
    let kind = proptest::sample::select(vec![SpanKind::Internal, SpanKind::Server, SpanKind::Client, SpanKind::Unspecified]);
    let parent = prop_oneof![4 => Just(Some(1)), 8 => (10..40_u64).prop_map(Some), 1 => Just(Some(2)), 1 => Just(None)];
    let one = (10..40_u64, parent, proptest::option::of(any_stage()), kind, any::<bool>(), at(), at());
    let span = one.prop_map(|(n, parent, stage, kind, is_store_call, start_unix_ns, end_unix_ns)| IncomingSpan {
        trace: TraceId([1; 16]),
        span: id(n),
        parent: parent.map(id),
        name: n.to_string().into(),
        kind,
        stage,
        phase: None,
        is_store_call,
        start_unix_ns,
        end_unix_ns,
        service: Arc::from(if n % 3 == 0 { "a/1" } else { "b/1" }),
        process: ProcessId::default(),
        cache: CacheLookups::default(),
        server: None,
        shifted_ns: 0,
        shared: None,
    });
    proptest::collection::vec(span, 0..40)
}

/// The exchange that results from a ledger and spans, `early` of which arrive before it; and the counters.
fn exchange(ledger: Ledger, mut spans: Vec<IncomingSpan>, early: usize) -> (Exchange, Arc<Counters>) {
    let counters = Arc::new(Counters::default());
    let mut aggregator =
        Aggregator::new(JoinSettings { expect: SpanExpectation::Always, ..JoinSettings::default() }, counters.clone());
    let mut out = Vec::new();
    let late = spans.split_off(early.min(spans.len()));
    aggregator.spans(spans, start(), &mut |e| out.push(e));
    aggregator.ledger(ledger, start(), &mut |e| out.push(e));
    aggregator.spans(late, start(), &mut |e| out.push(e));
    aggregator.flush(start(), &mut |e| out.push(e));
    assert_eq!(out.len(), 1, "one ledger, one exchange");
    (out.remove(0), counters)
}

/// The window's ends inside the request.
fn window(e: &Exchange) -> (u64, u64) {
    let w = e.ledger.window.unwrap_or_default();
    let from = w.start_ns.min(e.ledger.total_ns);
    (from, w.end_ns.clamp(from, e.ledger.total_ns))
}

proptest! {
    #[test]
    fn time_is_conserved(l in any_ledger(), spans in any_spans(), early in 0..40_usize) {
        let (e, _) = exchange(l, spans, early);
        let stages: u64 = Stage::ALL.iter().map(|s| e.account.stage_ns(*s)).sum();
        prop_assert_eq!(stages, e.ledger.total_ns);
        prop_assert_eq!(e.account.total_ns(), e.ledger.total_ns);
        for stage in Stage::ALL {
            let by_source: u64 = Source::ALL.iter().map(|s| e.account.by_source_ns(stage, *s)).sum();
            prop_assert_eq!(by_source, e.account.stage_ns(stage));
            prop_assert_eq!(e.stage(stage).map_or(0, |(ns, _)| ns), by_source);
        }
    }

    #[test]
    fn reports_and_spans_stay_in_the_window(l in any_ledger(), spans in any_spans(), early in 0..40_usize) {
        let (e, _) = exchange(l, spans, early);
        let (from, to) = window(&e);
        let said: u64 = Stage::ALL
            .iter()
            .flat_map(|s| [Source::Reported, Source::Traced].map(|by| e.account.by_source_ns(*s, by)))
            .sum();
        prop_assert!(said <= to - from);
        prop_assert!(e.claimed_ns <= to - from);
        prop_assert!(e.coverage().is_none_or(|c| (0.0..=1.0).contains(&c)));
    }

    #[test]
    fn what_the_proxy_observed_stands_whatever_others_say(l in any_ledger(), spans in any_spans()) {
        let (with, _) = exchange(l.clone(), spans, 0);
        let without = merge(Ledger { reports: Default::default(), window: None, ..l }, Vec::new());
        for stage in Stage::ALL.into_iter().filter(|s| !matches!(s, Stage::Upstream | Stage::Unattributed)) {
            let observed = |e: &Exchange| e.account.by_source_ns(stage, Source::Observed);
            prop_assert_eq!(observed(&with), observed(&without));
        }
    }

    #[test]
    fn what_is_rendered_lies_in_the_request_and_covers_what_is_owned(l in any_ledger(), spans in any_spans()) {
        let (e, _) = exchange(l, spans, 0);
        let bars = waterfall_bars(&e);
        for bar in &bars {
            prop_assert!(bar.start_ns <= bar.end_ns && bar.end_ns <= e.ledger.total_ns);
            prop_assert!(!bar.name.is_empty());
        }
        prop_assert!(bars.is_sorted_by_key(|b| b.start_ns));
        for (stage, source) in Stage::ALL.into_iter().flat_map(|s| Source::ALL.map(|by| (s, by))) {
            let covers = |t: u64| bars.iter().any(|b| (b.stage, b.source) == (stage, source) && b.start_ns <= t && t < b.end_ns);
            let nobodys = |t: u64| !bars.iter().any(|b| b.start_ns <= t && t < b.end_ns);
            let is_rest = (stage, source) == (Stage::Unattributed, Source::Observed);
            let most = (0..e.ledger.total_ns).filter(|t| covers(*t) || (is_rest && nobodys(*t))).count() as u64;
            prop_assert!(e.account.by_source_ns(stage, source) <= most, "{:?} by {:?}", stage, source);
        }
    }

    #[test]
    fn every_span_is_counted_once_and_what_is_placed_is_joined(l in any_ledger(), spans in any_spans(), early in 0..40_usize) {
        use Counter::{SpansAmbiguous, SpansJoined, SpansLate, SpansShed, SpansUnmatched};
        let n = spans.len() as u64;
        let (e, counters) = exchange(l, spans, early);
        let counted = [SpansJoined, SpansAmbiguous, SpansUnmatched, SpansLate, SpansShed].map(|c| counters.get(c));
        prop_assert_eq!(counted.iter().sum::<u64>(), n);
        prop_assert!(e.traced.len() as u64 <= counted[0]);
        let clipped = [Counter::ClippedTooLong, Counter::ClippedBefore, Counter::ClippedAfter].map(|c| counters.get(c));
        prop_assert_eq!(clipped, e.clipped.by_cause().map(|(_, count)| u64::from(count)));
        prop_assert_eq!(counters.get(Counter::LedgerOverflowed), u64::from(e.ledger.overflowed));
    }

    /// A pipeline as servers report it: every way of reporting gives exactly the same figures.
    #[test]
    fn a_truthful_upstream_is_reported_truthfully(
        steps in proptest::collection::vec((1..200_u64, 0..50_u64), 4),
        slack in 1..300_u64,
    ) {
        let stages = [Stage::Hydration, Stage::Preprocessing, Stage::Forward, Stage::Postprocessing];
        let busy: u64 = steps.iter().map(|(ns, pause)| ns + pause).sum();
        let (from, head) = (100, 100 + slack + busy);
        let mut base = Ledger::open(start(), WALL);
        (base.trace, base.span, base.parent, base.traced) = (TraceId([1; 16]), id(1), id(2), true);
        base.window = Some(UpstreamWindow { start_ns: from, head_ns: head, end_ns: head });
        base.total_ns = head + 50;
        base.observe(Stage::Ingress, ObservedEvent::Request, start(), start().plus(from));
        base.observe(Stage::Egress, ObservedEvent::Response, start().plus(head), start().plus(head + 50));

        let (mut by_header, mut by_trailer) = (base.clone(), base.clone());
        let mut traced: Vec<TracedSpan> = Vec::new();
        let mut at = from + slack;
        for (stage, (ns, pause)) in stages.into_iter().zip(&steps) {
            by_header.report(Report::of(stage, *ns, ReportPlace::Head));
            by_trailer.report(Report::of(stage, *ns, ReportPlace::Trailer));
            let (start_ns, end_ns) = (at.cast_signed(), (at + ns).cast_signed());
            traced.push(TracedSpan { name: stage.name().into(), stage: Some(stage), phase: None, start_ns, end_ns, depth: 2, note: SpanNote::default() });
            at += ns + pause;
        }
        for e in [merge(by_header, Vec::new()), merge(by_trailer, Vec::new()), merge(base, traced)] {
            for (stage, (ns, _)) in stages.into_iter().zip(&steps) {
                prop_assert_eq!(e.account.stage_ns(stage), *ns);
            }
            prop_assert_eq!((e.account.stage_ns(Stage::Ingress), e.account.stage_ns(Stage::Egress)), (from, 50));
            prop_assert_eq!((e.clipped.total(), e.claimed_ns), (0, steps.iter().map(|(ns, _)| ns).sum::<u64>()));
        }
    }
}
