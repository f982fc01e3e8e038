//! Gates that hold, fail, or are refused.

use super::*;
use lapwing_compare::ab::PairSide;
use lapwing_ledger::Stage;

fn checked(gate: &str, counts: PairCounts) -> GateResult {
    let pairs = BTreeMap::from([(PairFigure::Total, counts)]);
    check_of(&[gate], &pairs, None).remove(0)
}

fn check_of(gates: &[&str], pairs: &BTreeMap<PairFigure, PairCounts>, requests: Option<u64>) -> Vec<GateResult> {
    let gates: Vec<Gate> = gates.iter().map(|gate| gate.parse().unwrap()).collect();
    check_all(&gates, "t", &GateInputs { pairs, requests, lateness_p99_ns: Some(1_500_000) })
}

#[test]
fn a_gate_fails_by_what_it_could_not_judge() {
    let mut counts = slower_by_a_tenth();
    let of = |gates: &[&str], counts: &PairCounts, requests| {
        let results = check_of(gates, &BTreeMap::from([(PairFigure::Total, counts.clone())]), requests);
        results.iter().map(|result| result.holds).collect::<Vec<_>>()
    };
    let gates = ["mismatch<=1%", "p50_ratio<=2", "failed<=0"];
    assert_eq!(of(&gates, &counts, Some(1_000)), [true; 3]);
    // requests that became no pair are missing everywhere
    assert_eq!(of(&gates, &counts, Some(1_100)), [false; 3]);
    assert_eq!(of(&["mismatch<=1%", "unjudged<=10%"], &counts, Some(1_100)), [true, true]);
    // pairs whose outputs were not judged, or never compared, are missing for outputs
    for n in 0..100 {
        counts.record(1_000_000, 1_100_000);
        if n < 50 {
            counts.record_unjudged();
        }
    }
    assert_eq!(of(&gates, &counts, None), [false, true, true]);
    assert_eq!(of(&["mismatch<=1%", "unjudged<=5%"], &counts, None), [false, false]);
    assert_eq!(of(&["mismatch<=1%", "unjudged<=20%"], &counts, None), [true, true]);
    let failed = &check_of(&gates, &BTreeMap::from([(PairFigure::Total, counts)]), None)[0];
    assert!((failed.unjudged - 100.0 / 1_100.0).abs() < 1e-9 && failed.unjudged_bound == 0.05);
}

#[test]
fn what_is_excused_has_a_gate_of_its_own() {
    let mut counts = slower_by_a_tenth();
    (0..250).for_each(|_| counts.record_excused());
    let pairs = BTreeMap::from([(PairFigure::Total, counts)]);
    let held: Vec<bool> = check_of(&["excused<=25%", "excused<=10%"], &pairs, None).iter().map(|of| of.holds).collect();
    assert_eq!(held, [true, false]);
}

fn slower_by_a_tenth() -> PairCounts {
    let mut counts = PairCounts::default();
    for n in 0..1_000 {
        counts.record(1_000_000 + n, 1_100_000 + n);
        counts.record_mismatch(n % 500 == 0);
    }
    counts
}

#[test]
fn gates_hold_or_say_by_how_much_they_do_not() {
    for (gate, holds) in [
        ("p99_ratio<=1.2", true),
        ("p99_ratio <= 105%", false),
        ("p50_ratio>1.05", true),
        ("paired_p50<1.05", false),
        ("mismatch<=0.2%", true),
        ("mismatch<0.1%", false),
        ("failed<=0", true),
        ("lateness_p99<=2ms", true),
        ("lateness_p99<1ms", false),
    ] {
        assert_eq!(checked(gate, slower_by_a_tenth()).holds, holds, "{gate}");
    }
    let failed = checked("p99_ratio<=1.05", slower_by_a_tenth());
    assert_eq!((failed.field.as_str(), failed.bound), ("p99_ratio", 1.05));
    assert!((failed.value.unwrap() - 1.1).abs() < 0.01, "{failed:?}");
}

#[test]
fn what_is_not_known_does_not_hold() {
    for gate in ["p99_ratio<=9", "mismatch<=100%", "failed<=1", "forward.p50_ratio<=9"] {
        let result = checked(gate, PairCounts::default());
        assert_eq!((result.value, result.holds), (None, false), "{gate}");
    }
    let mut counts = slower_by_a_tenth();
    (0..50).for_each(|_| counts.record_failed_side(PairSide::Candidate, 1_000_000));
    let among_failures = checked("p99_ratio<=9", counts.clone());
    assert_eq!((among_failures.value, among_failures.holds), (None, false));
    assert!(!checked("failed<=4%", counts.clone()).holds && checked("failed<=5%", counts).holds);
}

#[test]
fn a_stage_may_stand_before_a_ratio() {
    let pairs = BTreeMap::from([(PairFigure::Stage(Stage::Forward), slower_by_a_tenth())]);
    let result = check_of(&["forward.p99_ratio<=1.05"], &pairs, None).remove(0);
    assert_eq!((result.field.as_str(), result.holds), ("forward.p99_ratio", false));
}

#[test]
fn what_is_no_gate_is_refused_with_a_reason() {
    for (text, reason) in [
        ("p99_ratio", "<="),
        ("p98_ratio<=1", "p99_ratio"),
        ("p99_ratio<=fast", "a number"),
        ("p99_ratio<=-1", "a number"),
        ("lateness_p99<=2", "a duration"),
        ("forward.mismatch<=1%", "whole requests"),
        ("backward.p99_ratio<=1", "unknown stage"),
    ] {
        let error = text.parse::<Gate>().unwrap_err();
        assert!(error.reason.contains(reason), "{text}: {}", error.reason);
    }
}
