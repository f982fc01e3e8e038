//! Time: late ticks, empty blocks, and counts that start anew.

use std::time::Duration;

use super::stream::OracleStream;
use crate::ab::tracking::BlockClock;
use crate::ab::{LatencyReport, PairCounts, Tracking};

/// The report of `seconds` with 50 pairs each, of which those for which `has_traffic` is false have none.
fn report(ticks_per_s: u64, seconds: u64, has_traffic: impl Fn(u64) -> bool) -> LatencyReport {
    let (mut counts, mut tracking, mut stream) = (PairCounts::default(), Tracking::new(), OracleStream::new(3, 20));
    for second in 0..seconds {
        for tick in 0..ticks_per_s {
            tracking.tick(&counts, Duration::from_millis(1_000 * second + 1_000 * tick / ticks_per_s));
        }
        if has_traffic(second) {
            (0..50).for_each(|_| stream.record_next(&mut counts));
        }
    }
    LatencyReport::new(&counts, &tracking)
}

#[test]
fn ticks_between_the_ends_of_blocks_change_nothing() {
    let often = report(10, 100, |_| true);
    assert_eq!(
        LatencyReport { further_seconds: None, ..report(1, 100, |_| true) },
        LatencyReport { further_seconds: None, ..often }
    );
}

#[test]
fn blocks_without_traffic_count_for_nothing() {
    // blocks are as long as each other during the first 64 s
    let (gaps, none) = (report(1, 60, |second| second % 2 == 0), report(1, 31, |second| second < 30));
    assert_eq!((gaps.paired_ratio, gaps.effective_pairs), (none.paired_ratio, none.effective_pairs));
    assert_eq!(gaps.mismatches.blocks, none.mismatches.blocks);
}

#[test]
fn late_ticks_join_blocks_and_catch_up() {
    let mut clock = BlockClock::new(Duration::from_secs(1));
    assert!(!clock.advance(Duration::from_millis(999)));
    assert!(clock.advance(Duration::from_secs(1)) && !clock.advance(Duration::from_secs(1)));
    // 64 blocks of 1 s, then of 2 s
    assert!(clock.advance(Duration::from_millis(64_500)) && !clock.advance(Duration::from_millis(65_999)));
    assert!(clock.advance(Duration::from_secs(66)));
    // a week later blocks are 64 s long
    let week = Duration::from_secs(7 * 86_400);
    clock.advance(week);
    let ends = (1..=640).filter(|second| clock.advance(week + Duration::from_secs(*second))).count();
    assert_eq!(ends, 10);
}

#[test]
fn counts_that_start_anew_start_the_tracking_anew() {
    let (mut tracking, mut stream) = (Tracking::new(), OracleStream::new(5, 0));
    let mut fresh = Tracking::new();
    for run in 0..2 {
        let mut counts = PairCounts::default();
        for second in 0..30 {
            let elapsed = Duration::from_secs(30 * run + second + 1);
            (0..50).for_each(|_| stream.record_next(&mut counts));
            tracking.tick(&counts, elapsed);
            if run == 1 {
                fresh.tick(&counts, elapsed);
            }
        }
        if run == 1 {
            let (report, expected) = (LatencyReport::new(&counts, &tracking), LatencyReport::new(&counts, &fresh));
            assert_eq!(report, expected);
        }
    }
}
