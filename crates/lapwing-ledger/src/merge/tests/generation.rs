//! The merge of generated answers, and of reports in bodies.

use proptest::prelude::*;

use super::super::*;
use crate::{Generation, Stamp};

/// A request of 1000 ns: window 100..900, head at 150, content from 400 to 850.
fn streamed() -> Ledger {
    let mut ledger = Ledger::open(Stamp::default(), 0);
    ledger.total_ns = 1_000;
    ledger.window = Some(UpstreamWindow { start_ns: 100, head_ns: 150, end_ns: 900 });
    let mut generation = Generation::default();
    [400, 600, 850].into_iter().for_each(|at_ns| generation.content(at_ns));
    ledger.generation = Some(Box::new(generation));
    ledger
}

fn phase(phase: Phase, duration_ns: u64, place: ReportPlace) -> Report {
    Report { phase: Some(phase), ..Report::of(Stage::Forward, duration_ns, place) }
}

fn pieces(ledger: &Ledger) -> Vec<(Stage, Option<Phase>, u64, u64)> {
    let placing = Placing::of(ledger, &[]);
    let mut all: Vec<_> = placing.claims.iter().map(|c| (c.stage, c.phase, c.start_ns, c.end_ns)).collect();
    all.sort_by_key(|p| p.2);
    all
}

#[test]
fn an_unreported_stream_is_upstream_as_a_whole() {
    assert_eq!(pieces(&streamed()), [(Stage::Upstream, None, 100, 900)]);
    let e = merge(streamed(), vec![]);
    assert_eq!((e.phase(Phase::Prefill), e.phase(Phase::Decode), e.stage(Stage::Forward)), (None, None, None));
    assert_eq!((e.stage(Stage::Upstream), e.coverage()), (Some((800, Source::Observed)), Some(0.0)));
    assert_eq!(e.first_token_ns(), Some(400), "its pace is observed all the same");
}

#[test]
fn of_a_reported_stream_decode_ends_at_the_end_and_the_rest_at_the_first_content() {
    let mut l = streamed();
    l.report(Report::of(Stage::Queue, 80, ReportPlace::Body));
    l.report(phase(Phase::Prefill, 150, ReportPlace::Body));
    l.report(phase(Phase::Decode, 470, ReportPlace::Body));
    let expected = [
        (Stage::Queue, None, 170, 250),
        (Stage::Forward, Some(Phase::Prefill), 250, 400),
        (Stage::Forward, Some(Phase::Decode), 430, 900),
    ];
    assert_eq!(pieces(&l), expected);
    let e = merge(l, vec![]);
    assert_eq!((e.phase(Phase::Prefill), e.phase(Phase::Decode)), (Some((150, Source::Reported)), Some((470, Source::Reported))));
    assert_eq!((e.claimed_ns, e.clipped.total()), (700, 0));
}

#[test]
fn a_decode_longer_than_the_stream_takes_of_the_time_before_it() {
    let mut l = streamed();
    l.report(phase(Phase::Prefill, 150, ReportPlace::Body));
    l.report(phase(Phase::Decode, 520, ReportPlace::Body));
    let expected = [(Stage::Forward, Some(Phase::Prefill), 230, 380), (Stage::Forward, Some(Phase::Decode), 380, 900)];
    assert_eq!(pieces(&l), expected);
}

#[test]
fn the_body_knows_more_than_trailers_and_trailers_more_than_the_head() {
    let mut l = streamed();
    (l.generation, l.window) = (None, Some(UpstreamWindow { start_ns: 100, head_ns: 900, end_ns: 900 }));
    l.report(Report::of(Stage::Forward, 500, ReportPlace::Head));
    l.report(Report::of(Stage::Queue, 50, ReportPlace::Head));
    l.report(Report::of(Stage::Forward, 400, ReportPlace::Trailer));
    l.report(phase(Phase::Prefill, 100, ReportPlace::Body));
    l.report(phase(Phase::Decode, 200, ReportPlace::Body));
    let e = merge(l, vec![]);
    assert_eq!((e.account.stage_ns(Stage::Forward), e.account.stage_ns(Stage::Queue)), (300, 50));
    assert_eq!((e.account.phase_ns(Phase::Prefill), e.account.phase_ns(Phase::Decode)), (100, 200));
}

#[test]
fn a_stage_below_its_reports_resolution_is_there_with_nothing() {
    let mut l = streamed();
    l.generation = None;
    l.report(Report { resolution_ns: 1_000_000, ..Report::of(Stage::Queue, 0, ReportPlace::Head) });
    l.report(Report { resolution_ns: 1_000_000, ..Report::of(Stage::Forward, 40, ReportPlace::Head) });
    let e = merge(l, vec![]);
    assert_eq!((e.stage(Stage::Queue), e.resolution_ns(Stage::Queue)), (Some((0, Source::Reported)), Some(1_000_000)));
    assert_eq!(e.stage(Stage::Preprocessing), None);
}

#[test]
fn a_coarse_stage_that_found_no_room_is_not_below_its_resolution() {
    let mut l = streamed();
    l.generation = None;
    let ms = |stage, ms: u64| Report { resolution_ns: 1_000_000, ..Report::of(stage, ms * 1_000_000, ReportPlace::Head) };
    l.report(ms(Stage::Queue, 40));
    l.report(ms(Stage::Forward, 90));
    let e = merge(l, vec![]);
    assert_eq!((e.stage(Stage::Queue), e.clipped.too_long > 0), (None, true));
}

proptest! {
    #[test]
    fn phases_own_no_more_than_forward_and_all_sums_to_the_total(
        content in proptest::option::of(proptest::collection::vec(0..1_200_u64, 0..4)),
        window in (0..1_100_u64, 0..1_100_u64, 0..1_100_u64),
        reports in proptest::collection::vec((0..4_usize, 0..900_u64, 0..3_usize), 0..8),
    ) {
        let kind = |kind: usize, ns, place| match kind {
            0 => Report::of(Stage::Queue, ns, place),
            1 => Report::of(Stage::Forward, ns, place),
            2 => phase(Phase::Prefill, ns, place),
            _ => phase(Phase::Decode, ns, place),
        };
        let mut l = streamed();
        l.window = Some(UpstreamWindow { start_ns: window.0, head_ns: window.1, end_ns: window.2 });
        l.generation = content.map(|ats| {
            let mut generation = Generation::default();
            ats.into_iter().for_each(|at_ns| generation.content(at_ns));
            Box::new(generation)
        });
        for (k, ns, place) in reports {
            l.report(kind(k, ns, [ReportPlace::Head, ReportPlace::Trailer, ReportPlace::Body][place]));
        }
        let e = merge(l, vec![]);
        prop_assert_eq!(e.account.total_ns(), e.ledger.total_ns);
        let phases: u64 = Phase::ALL.into_iter().map(|p| e.account.phase_ns(p)).sum();
        prop_assert!(phases <= e.account.stage_ns(Stage::Forward));
    }
}
