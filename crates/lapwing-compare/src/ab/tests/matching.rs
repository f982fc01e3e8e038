//! Pairs from requests that went to one side only.

use std::time::Duration;

use super::stream::SplitMix;
use crate::ab::{LatencyReport, LifoMatcher, MatchedPair, PairCounts, PairSide, Tracking, Verdict};
use PairSide::{Baseline, Candidate};

#[test]
fn the_latest_unmatched_request_is_the_partner() {
    let mut matcher = LifoMatcher::default();
    let [older, newer] = [matcher.start(Baseline), matcher.start(Baseline)];
    let candidate = matcher.start(Candidate);
    assert_eq!(matcher.finish(older, Some(1)), None);
    assert_eq!(matcher.finish(candidate, Some(30)), None);
    let pair = MatchedPair { baseline: Some(2), candidate: Some(30) };
    assert_eq!(matcher.finish(newer, Some(2)), Some(pair));
    assert_eq!(matcher.finish(newer, Some(2)), None, "each is used once");
    let second = matcher.start(Candidate);
    let pair = MatchedPair { baseline: Some(1), candidate: None };
    assert_eq!(matcher.finish(second, None), Some(pair));
}

#[test]
fn an_abandoned_request_leaves_its_partner_out() {
    let mut matcher = LifoMatcher::default();
    let (baseline, candidate) = (matcher.start(Baseline), matcher.start(Candidate));
    matcher.abandon(baseline);
    assert_eq!(matcher.finish(candidate, Some(5)), None);
    // an unmatched one is no partner any more
    let baseline = matcher.start(Baseline);
    matcher.abandon(baseline);
    let candidate = matcher.start(Candidate);
    assert_eq!(matcher.finish(candidate, Some(5)), None);
}

#[test]
fn only_the_latest_eight_wait() {
    let mut matcher = LifoMatcher::default();
    let baselines: Vec<_> = (0..20).map(|_| matcher.start(Baseline)).collect();
    let candidates: Vec<_> = (0..20).map(|_| matcher.start(Candidate)).collect();
    for ticket in candidates {
        assert_eq!(matcher.finish(ticket, Some(1)), None);
    }
    let pairs = baselines.into_iter().filter_map(|ticket| matcher.finish(ticket, Some(1))).count();
    assert_eq!(pairs, 8);
}

#[test]
fn requests_that_never_finish_are_forgotten() {
    let mut matcher: LifoMatcher = LifoMatcher::default();
    let mut random = SplitMix::new(1);
    for _ in 0..100_000 {
        matcher.start(if random.next().is_multiple_of(2) { Baseline } else { Candidate });
    }
    assert!(matcher.open_requests() <= 4_096);
}

/// Requests 10 ms apart, `candidate_percent` of them to the candidate, which is slower by `slower_permille`; the load drifts by a
/// factor of 2 within 40 s. Returns the pairs per request and the report.
fn split(candidate_percent: u64, slower_permille: u64, requests: u64) -> (f64, LatencyReport) {
    let (mut matcher, mut random) = (LifoMatcher::default(), SplitMix::new(9));
    let (mut counts, mut tracking) = (PairCounts::default(), Tracking::new());
    let mut late = std::collections::VecDeque::new();
    for i in 0..requests {
        let side = if random.next() % 100 < candidate_percent { Candidate } else { Baseline };
        let ticket = matcher.start(side);
        let drift = (i % 4_000).abs_diff(2_000);
        let spread = random.next() % 200_000 + random.next() % 200_000;
        let ns = (1_000_000 + 500 * drift + spread) * if side == Candidate { 1_000 + slower_permille } else { 1_000 } / 1_000;
        late.push_back((ticket, ns));
        if late.len() > 5 {
            let (ticket, ns) = late.pop_front().unwrap();
            if let Some(pair) = matcher.finish(ticket, Some(ns)) {
                pair.record(&mut counts);
            }
        }
        tracking.tick(&counts, Duration::from_millis(10 * i));
    }
    (counts.pairs() as f64 / requests as f64, LatencyReport::new(&counts, &tracking))
}

#[test]
fn half_of_the_requests_find_a_partner_and_a_rare_candidate_always() {
    let (per_request, report) = split(50, 0, 20_000);
    assert!((0.45..0.49).contains(&per_request), "{per_request}");
    assert!(matches!(report.verdict, Verdict::Same | Verdict::Undecided), "{report:?}");
    let (per_request, _) = split(5, 0, 20_000);
    assert!((0.045..0.055).contains(&per_request), "{per_request}");
}

#[test]
fn drift_cancels_between_neighbours() {
    let (_, report) = split(50, 30, 20_000);
    assert_eq!(report.verdict, Verdict::Slower);
    let ratio = report.paired_ratio.p50;
    assert!(ratio.low <= 1.03 && ratio.high.unwrap() >= 1.03 && ratio.high.unwrap() - ratio.low < 0.05, "{ratio:?}");
}
