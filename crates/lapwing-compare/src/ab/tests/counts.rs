//! Bins hold what they say, counts add up however they were split, and what another pod sends is checked.

use std::time::Duration;

use proptest::prelude::*;

use super::stream::{OracleStream, SplitMix};
use crate::ab::bins::{
    BinCounts, LATENCY_BINS, LATENCY_OVERFLOW, RATIO_BINS, TIE, latency_bin, latency_edge_ns, ratio_bin, ratio_edge,
};
use crate::ab::{LatencyReport, PairCounts, PairSide, Tracking};

proptest! {
    #[test]
    fn a_latency_lies_between_the_edges_of_its_bin(ns in any::<u64>(), shift in 0_u32..64) {
        let ns = ns >> shift;
        let bin = latency_bin(ns);
        prop_assert!(latency_edge_ns(bin) <= ns as f64 && (ns as f64) < latency_edge_ns(bin + 1));
        let width = latency_edge_ns(bin + 1) - latency_edge_ns(bin);
        prop_assert!(bin == LATENCY_OVERFLOW || width <= (0.001 * latency_edge_ns(bin)).max(1.0));
    }

    #[test]
    fn a_ratio_lies_between_the_edges_of_its_bin(baseline in 1_u64..1 << 43, candidate in 1_u64..1 << 43, shifts in (0_u32..43, 0_u32..43)) {
        let (baseline, candidate) = ((baseline >> shifts.0).max(1), (candidate >> shifts.1).max(1));
        let bin = ratio_bin(baseline, candidate);
        prop_assert_eq!(bin + ratio_bin(candidate, baseline), 2 * TIE);
        let ratio = candidate as f64 / baseline as f64;
        prop_assert!(ratio_edge(bin) <= ratio * (1.0 + 1e-12) && ratio <= ratio_edge(bin + 1) * (1.0 + 1e-12));
    }

    #[test]
    fn bins_count_like_a_sorted_list(values in prop::collection::vec(0_usize..RATIO_BINS, 1..60)) {
        let (mut bins, mut sorted) = (BinCounts::new(RATIO_BINS), values.clone());
        sorted.sort_unstable();
        for value in &values {
            bins.record(*value);
        }
        for bin in 0..RATIO_BINS {
            prop_assert_eq!(bins.below(bin), sorted.iter().filter(|value| **value < bin).count() as u64);
        }
        for (at, value) in sorted.iter().enumerate() {
            prop_assert_eq!(bins.find((at + 1) as f64), Some(*value));
            prop_assert_eq!(bins.find(at as f64 + 0.5), Some(*value));
        }
        prop_assert_eq!(bins.find(values.len() as f64 + 0.5), None);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Pods that send snapshots at every tick, restart, and are merged in any order, give the report of one that saw all pairs.
    #[test]
    fn any_split_over_pods_gives_the_same_report_bit_for_bit(seed in any::<u64>(), pods in 1_usize..9, effect in -40_i64..40) {
        let mut random = SplitMix::new(seed);
        let mut stream = OracleStream::new(seed, effect);
        let (mut whole, mut of_whole) = (PairCounts::default(), Tracking::new());
        let (mut pooled, mut of_pooled) = (PairCounts::default(), Tracking::new());
        let mut now = vec![PairCounts::default(); pods];
        let mut before = now.clone();
        for second in 0..40_u64 {
            for _ in 0..random.next() % 60 {
                let pod = random.next() as usize % pods;
                let (baseline_ns, candidate_ns, differs) = stream.next();
                for counts in [&mut now[pod], &mut whole] {
                    match candidate_ns % 50 {
                        0 => counts.record_failed_side(PairSide::Baseline, candidate_ns),
                        1 => counts.record_failed_side(PairSide::Candidate, baseline_ns),
                        2 => counts.record_both_failed(),
                        _ => counts.record(baseline_ns, candidate_ns),
                    }
                    counts.record_mismatch(differs);
                }
            }
            let first = random.next() as usize;
            for pod in (0..pods).map(|pod| (first + pod) % pods) {
                pooled.add_increase(&before[pod], &now[pod]);
                if random.next().is_multiple_of(20) {
                    now[pod] = PairCounts::default();
                }
                before[pod].clone_from(&now[pod]);
            }
            of_whole.tick(&whole, Duration::from_secs(second));
            of_pooled.tick(&pooled, Duration::from_secs(second));
        }
        prop_assert_eq!(&pooled, &whole);
        let report = |counts, tracking| serde_json::to_string(&LatencyReport::new(counts, tracking)).unwrap();
        prop_assert_eq!(report(&pooled, &of_pooled), report(&whole, &of_whole));
    }

    #[test]
    fn counts_travel_as_json(seed in any::<u64>(), pairs in 0..200) {
        let (mut counts, mut stream) = (PairCounts::default(), OracleStream::new(seed, 7));
        for _ in 0..pairs {
            stream.record_next(&mut counts);
        }
        let sent = serde_json::to_string(&counts).unwrap();
        prop_assert_eq!(serde_json::from_str::<PairCounts>(&sent).unwrap(), counts);
    }
}

#[test]
fn margins_are_edges() {
    assert_eq!([ratio_edge(TIE - 19), ratio_edge(TIE + 20)], [1.0 / 1.02, 1.02]);
    assert_eq!([ratio_edge(0), ratio_edge(RATIO_BINS)], [0.0, f64::INFINITY]);
    assert!((0..RATIO_BINS).all(|bin| ratio_edge(bin) < ratio_edge(bin + 1)));
    assert!((0..LATENCY_BINS).all(|bin| latency_edge_ns(bin) < latency_edge_ns(bin + 1)));
}

#[test]
fn ties_zeros_and_overflow_have_their_bins() {
    assert_eq!(ratio_bin(1_000_000, 1_000_999), TIE);
    assert_eq!(ratio_bin(1_000_000, 1_001_000), TIE + 1);
    assert_eq!(ratio_bin(1_001_000, 1_000_000), TIE - 1);
    assert_eq!([ratio_bin(0, 0), ratio_bin(0, 1), ratio_bin(1, 0)], [TIE, TIE + 222, TIE - 222]);
    assert_eq!([ratio_bin(0, u64::MAX), ratio_bin(u64::MAX, 0)], [RATIO_BINS - 1, 0]);
    assert_eq!(ratio_bin(u64::MAX, u64::MAX - 1), TIE);
    assert_eq!([latency_bin(0), latency_bin(u64::MAX)], [0, LATENCY_OVERFLOW]);
}

#[test]
fn a_failed_side_loses_its_pair() {
    let mut counts = PairCounts::default();
    counts.record_failed_side(PairSide::Candidate, 5);
    counts.record_failed_side(PairSide::Candidate, u64::MAX);
    counts.record_failed_side(PairSide::Baseline, 5);
    counts.record_both_failed();
    assert_eq!((counts.pairs(), counts.wins(), counts.losses()), (3, 1, 2));
    assert_eq!((counts.ratios.at(0), counts.ratios.at(RATIO_BINS - 1)), (1, 2));
    assert_eq!((counts.baseline.at(LATENCY_OVERFLOW), counts.candidate.at(LATENCY_OVERFLOW)), (2, 2));
    let report = LatencyReport::new(&counts, &Tracking::new());
    assert_eq!((report.baseline_failed, report.candidate_failed, report.both_failed), (1, 2, 1));
    assert_eq!(report.candidate_ns.p90.value, None, "p90 lies among failed requests");
}

#[test]
fn what_a_pod_sends_is_checked() {
    let valid = r#"{"ratios":[[544,2]],"baseline":[[9,2]],"candidate":[[9,1],[10,1]],"mismatches":1,"compared":2,
        "baseline_failed":0,"candidate_failed":0,"both_failed":0}"#;
    assert_eq!(serde_json::from_str::<PairCounts>(valid).unwrap().pairs(), 2);
    let changes = [
        (r#"[[544,2]]"#, r#"[[1089,2]]"#, "histogram ratios has no bin 1089"),
        (r#"[[9,2]]"#, r#"[[34816,2]]"#, "histogram baseline has no bin 34816"),
        (r#"[[9,2]]"#, r#"[[9,1]]"#, "different numbers of pairs"),
        (r#"[[544,2]]"#, r#"[[544,18446744073709551615],[1,2]]"#, "ratios counts more than 2^53"),
        (r#""compared":2"#, r#""compared":0"#, "more mismatches than comparisons"),
        (r#""compared":2"#, r#""compared":18446744073709551615"#, "compared counts more than 2^53"),
        (r#""candidate_failed":0"#, r#""candidate_failed":3"#, "more failed sides than pairs"),
        (r#""both_failed":0"#, r#""both_failed":9007199254740993"#, "both_failed counts more than 2^53"),
    ];
    for (from, to, fault) in changes {
        let error = serde_json::from_str::<PairCounts>(&valid.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(error.contains(fault), "{to}: {error}");
    }
}

/// The most that one route takes, with every bin of the ratios in use, and the histograms of the sides.
#[test]
fn state_is_small() {
    let mut ratios = BinCounts::new(RATIO_BINS);
    (0..RATIO_BINS).for_each(|bin| ratios.record(bin));
    let bytes = ratios.heap_bytes() + size_of::<PairCounts>() + size_of::<Tracking>();
    assert!(bytes <= 12_000, "{bytes} bytes");

    // what is usual: latencies within a factor of 4
    let mut counts = PairCounts::default();
    (0..10_000).for_each(|i| counts.record(1_000_000 + 300 * i, 4_000_000 - 300 * i));
    assert!(counts.memory_bytes() < 64_000, "{} bytes", counts.memory_bytes());
}
