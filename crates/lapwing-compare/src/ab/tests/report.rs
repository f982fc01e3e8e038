//! What people read: verdicts, sentences, warnings, and nothing where nothing is known.

use std::time::Duration;

use super::stream::{OracleStream, SplitMix};
use crate::ab::{IntervalEstimate, LatencyReport, PairCounts, PairSide, Tracking, Verdict, changed_routes, sentence};

/// The report of `pairs`, 100 a second.
fn report_of(pairs: impl Iterator<Item = (u64, u64, bool)>) -> LatencyReport {
    let (mut counts, mut tracking) = (PairCounts::default(), Tracking::new());
    for (i, (baseline_ns, candidate_ns, differs)) in pairs.enumerate() {
        tracking.tick(&counts, Duration::from_millis(10 * i as u64));
        counts.record(baseline_ns, candidate_ns);
        counts.record_mismatch(differs);
    }
    LatencyReport::new(&counts, &tracking)
}

fn oracle_pairs(effect: i64, pairs: usize) -> LatencyReport {
    let mut stream = OracleStream::new(42, effect);
    report_of((0..pairs).map(|_| stream.next()))
}

#[test]
fn sentences_say_what_is_known() {
    let faster = oracle_pairs(-300, 40_000);
    let slower = oracle_pairs(100, 10_000);
    let same = oracle_pairs(5, 10_000);
    let undecided = oracle_pairs(-12, 2_500);
    let early = oracle_pairs(0, 1_000);
    let said = [
        sentence("int8", &[("forward", &faster), ("total", &slower)]),
        sentence("int8", &[("forward", &same)]),
        sentence("int8", &[("forward", &undecided)]),
        sentence("int8", &[("forward", &early)]),
        sentence("int8", &[]),
    ];
    let expected = [
        "candidate `int8`: forward 1.43× faster at p50 [1.42, 1.43], 1.44× at p99 [1.15, 1.79], faster in 98 % of 40,000 pairs; \
         total 1.100× slower at p50 [1.096, 1.104]",
        "candidate `int8`: forward the same within 2 % at p50: 0.1 to 0.9 % slower, p99 32.6 % faster to 81.9 % slower, faster in \
         46 % of 9,862 pairs (138 more tied)",
        "candidate `int8`: forward undecided at p50: 3.6 % faster to 1.6 % slower (about 961 more, 10 s), too early for p99, faster \
         in 58 % of 2,466 pairs (34 more tied)",
        "candidate `int8`: forward too early to say after 1,000 pairs (about 4,773 more, 48 s)",
        "",
    ];
    assert_eq!(said, expected);
}

#[test]
fn mismatches_failures_and_dependence_are_noted() {
    let mut report = oracle_pairs(0, 10_000);
    let outputs = "outputs agree in 99.90 % (at least 99.71 %) of 10,000 comparisons; 10 differ, in 10 of 81 time blocks";
    assert_eq!(report.notes(), [outputs]);
    report.candidate_failed = 12;
    assert_eq!(report.notes()[1], "failed alone: candidate 12, baseline 0; both: 0 (left out)");
}

/// Levels that last 2 s, of each side on its own: thousands of pairs are worth some tens.
#[test]
fn dependence_is_warned_of() {
    let mut random = SplitMix::new(1);
    let mut levels = (0, 0);
    let pairs = (0..20_000).map(|i| {
        if i % 200 == 0 {
            levels = (random.next() % 200_000, random.next() % 200_000);
        }
        let noise = |random: &mut SplitMix| random.next() % 20_000;
        (1_000_000 + levels.0 + noise(&mut random), 1_000_000 + levels.1 + noise(&mut random), false)
    });
    let report = report_of(pairs);
    assert!(report.are_pairs_dependent && report.effective_pairs.unwrap() < 400.0);
    let warning = "warning: requests near in time are not independent: 20,000 pairs are worth 88; the intervals allow for it if \
                   disturbances are short against the run";
    assert_eq!(report.notes()[1], warning);
    assert!(!oracle_pairs(0, 20_000).are_pairs_dependent);
}

#[test]
fn nothing_is_said_before_anything_is_known() {
    let report = LatencyReport::new(&PairCounts::default(), &Tracking::new());
    assert!(report.is_too_early && report.verdict == Verdict::Undecided && report.tail_verdict == Verdict::Undecided);
    let unknown = IntervalEstimate { value: None, low: 0.0, high: None };
    assert_eq!([report.paired_ratio.p50, report.baseline_ns.p99, report.quantile_ratios.p90], [unknown; 3]);
    assert_eq!((report.win_share.low, report.win_share.high), (0.0, Some(1.0)));
    assert_eq!((report.mismatches.rate.low, report.mismatches.block_share.high), (0.0, Some(1.0)));
    assert_eq!((report.further_pairs, report.effective_pairs, report.log_e_value), (None, None, None));
    assert_eq!(report.notes(), Vec::<String>::new());
    assert_eq!(sentence("int8", &[("total", &report)]), "candidate `int8`: total too early to say after 0 pairs");
}

#[test]
fn only_ties_are_the_same() {
    let report = report_of((0..5_000).map(|_| (1_000_000, 1_000_500, false)));
    assert_eq!((report.ties, report.verdict, report.log_e_value), (5_000, Verdict::Same, None));
    let said = "candidate `copy`: total the same within 2 % at p50: 0.1 % faster to 0.1 % slower, too early for p99, all 5,000 pairs tied";
    assert_eq!(sentence("copy", &[("total", &report)]), said);
}

#[test]
fn a_candidate_that_fails_is_slower() {
    let (mut counts, mut tracking) = (PairCounts::default(), Tracking::new());
    for i in 0..5_000 {
        tracking.tick(&counts, Duration::from_millis(10 * i));
        counts.record_failed_side(PairSide::Candidate, 1_000_000);
    }
    let report = LatencyReport::new(&counts, &tracking);
    assert_eq!((report.verdict, report.paired_ratio.p50.high, report.candidate_ns.p50.value), (Verdict::Slower, None, None));
    assert!(report.paired_ratio.p50.low > 1_000.0);
    let said = "candidate `broken`: total over 1050× slower at p50, too early for p99, slower in 100 % of 5,000 pairs";
    assert_eq!(sentence("broken", &[("total", &report)]), said);
}

#[test]
fn reports_travel_as_json() {
    for report in [oracle_pairs(-30, 3_000), oracle_pairs(0, 100)] {
        let sent = serde_json::to_string(&report).unwrap();
        assert!(sent.contains(r#""p99":{"value":0.83"#) || report.pairs == 100);
        assert!(sent.contains(r#""low":0.0,"high":null}"#), "no bound: {sent}");
        let back: LatencyReport = serde_json::from_str(&sent).unwrap();
        assert_eq!((back.notes(), sentence("", &[("", &back)])), (report.notes(), sentence("", &[("", &report)])));
    }
}

#[test]
fn routes_that_changed_are_named_strongest_first() {
    let e = |value: f64| Some(value.ln());
    // 4 routes: one alone needs 80, the second of two 40, the third of three 26.7
    assert_eq!(changed_routes(&[e(79.0), None, e(2.0), None]), Vec::<usize>::new());
    assert_eq!(changed_routes(&[e(81.0), None, e(2.0), None]), [0]);
    assert_eq!(changed_routes(&[e(41.0), None, e(2.0), e(50.0)]), [3, 0]);
    assert_eq!(changed_routes(&[e(41.0), e(27.0), Some(f64::NAN), e(28.0)]), [0, 3, 1]);
    assert_eq!(changed_routes(&[]), Vec::<usize>::new());
}
