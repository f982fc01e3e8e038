//! The statistics against a second implementation in Python, against SciPy, and against values of the literature.

use std::time::Duration;

use super::stream::OracleStream;
use crate::ab::counts::PairCounts;
use crate::ab::evidence::{
    INTERVAL_EVIDENCE, PRIOR, RARE_PRIOR, VERDICT_EVIDENCE, log_beta_binomial, log_evidence, proportion_interval,
    stirling_remainder,
};
use crate::ab::report::log_ratio_interval;
use crate::ab::{IntervalEstimate, LatencyReport, Tracking};

const REFERENCE: &str = include_str!("../../../../../tests/fixtures/ab/report.txt");
const SCIPY: &str = include_str!("../../../../../tests/fixtures/ab/log_beta_binomial.txt");

#[track_caller]
fn assert_close(found: f64, expected: f64, what: &str) {
    let is_close = found == expected || (found - expected).abs() <= 1e-9 * expected.abs();
    assert!(is_close, "{what}: {found}, not {expected}");
}

#[test]
fn mixture_and_remainder_match_the_reference() {
    let l = 20.0_f64.ln();
    let found = [
        log_beta_binomial(700.0, 1_000.0, 0.65, 16.0),
        log_beta_binomial(0.0, 3_000.0, 0.002, 0.5),
        stirling_remainder(0.5),
        // the value of the unit test of `confseq`, the implementation by an author of the method: −0.6941012
        log_beta_binomial(135.0, 625.0, 0.2, 100.0 / (2.0 * l + (1.0 + 2.0 * l).ln()) - 0.16),
    ];
    let expected = REFERENCE.lines().next().unwrap().split(' ');
    for (found, expected) in found.into_iter().zip(expected) {
        assert_close(found, expected.parse().unwrap(), "mixture");
    }
    assert!((found[3] + 0.694_101_2).abs() < 1e-7);
}

#[test]
fn mixture_matches_scipy() {
    for line in SCIPY.lines() {
        let numbers: Vec<f64> = line.split(' ').map(|number| number.parse().unwrap()).collect();
        let [successes, trials, q, prior, expected] = numbers[..] else { panic!("{line}") };
        let found = log_beta_binomial(successes, trials, q, prior);
        // SciPy takes differences of logarithms as large as the trials, and loses their digits
        let lost = 4.0 * f64::EPSILON * trials;
        assert!((found - expected).abs() <= 1e-9 * expected.abs().max(1.0) + lost, "{line}: {found}");
    }
    assert_eq!(SCIPY.lines().count(), 300);
}

#[test]
fn levels_use_up_the_error_budget() {
    assert_close(VERDICT_EVIDENCE, 40.0_f64.ln(), "1/40");
    assert_close(INTERVAL_EVIDENCE, 520.0_f64.ln(), "1/520");
    assert_close(1.0 / 40.0 + 13.0 / 520.0, 0.05, "sum");
}

/// All twelve rows: each field of the reference to 1e-9; integers, verdicts and edges of bins exactly.
#[test]
fn reports_match_the_reference() {
    let mut rows = REFERENCE.lines().skip(1);
    for effect in [0, -30, 5, 100] {
        let (mut counts, mut tracking) = (PairCounts::default(), Tracking::new());
        let mut stream = OracleStream::new(42, effect);
        for n in 1..=10_000_u64 {
            tracking.tick(&counts, Duration::from_millis(10 * (n - 1)));
            stream.record_next(&mut counts);
            if [1_000, 3_000, 10_000].contains(&n) {
                check_row(rows.next().unwrap(), effect, &counts, &tracking);
            }
        }
    }
    assert_eq!(rows.next(), None);
}

fn check_row(row: &str, effect: i64, counts: &PairCounts, tracking: &Tracking) {
    let expected: Vec<&str> = row.split(' ').collect();
    let report = LatencyReport::new(counts, tracking);
    let number = |at: usize| expected[at].parse::<f64>().unwrap();
    let exact = [
        effect.to_string(),
        report.pairs.to_string(),
        format!("{}/{}/{}", report.wins, report.losses, report.ties),
        report.mismatches.mismatches.to_string(),
        report.verdict.name().to_owned(),
    ];
    assert_eq!(expected[..5], exact, "{row}");

    let upper = |estimate: &IntervalEstimate| estimate.high.unwrap_or(f64::INFINITY);
    let variance = tracking.ratios[1].variance(&counts.ratios);
    let majority = report.wins.max(report.losses) as f64;
    let (p50, p99) = (log_ratio_interval(counts, tracking, 0), log_ratio_interval(counts, tracking, 2));
    let ratio = &report.paired_ratio;
    let found = [
        ratio.p50.low,
        upper(&ratio.p50),
        variance.variance,
        variance.inflation,
        variance.blocks,
        log_evidence(majority, report.pairs as f64, 0.5, &variance, PRIOR),
        ratio.p10.low,
        upper(&ratio.p10),
        ratio.p90.low,
        upper(&ratio.p90),
        report.win_share.low,
        upper(&report.win_share),
        upper(&report.mismatches.rate),
        p50.0,
        p50.1,
        p99.0,
        p99.1,
    ];
    for (at, found) in found.into_iter().enumerate() {
        assert_close(found, number(at + 5), &format!("column {} of {row}", at + 5));
    }
    assert_eq!(report.further_pairs.unwrap().to_string(), expected[22], "{row}");
    assert_eq!(expected.len(), 23);
    let mismatches = &report.mismatches;
    let variance = tracking.mismatches.variance(mismatches.mismatches, mismatches.compared);
    let rate = proportion_interval(mismatches.mismatches, mismatches.compared, &variance, RARE_PRIOR);
    assert_eq!((mismatches.rate.low, upper(&mismatches.rate)), rate);
}
