//! The evidence rises with the deviation, and its inversion finds what a search through all counts finds.

use proptest::prelude::*;

use crate::ab::evidence::{
    BlockVariance, INTERVAL_EVIDENCE, PRIOR, RARE_PRIOR, VERDICT_EVIDENCE, log_evidence, proportion_interval, rejected_ranks,
};

fn variance() -> impl Strategy<Value = BlockVariance> {
    (0.0..4_000.0, 1.0..5.0, 1.0..200.0).prop_map(|(variance, inflation, blocks)| BlockVariance { variance, inflation, blocks })
}

fn quantile() -> impl Strategy<Value = f64> {
    prop::sample::select(vec![0.1, 0.5, 0.9, 0.99])
}

proptest! {
    #[test]
    fn evidence_rises_with_the_deviation(n in 1_u64..100_000, q in quantile(), at in 0.0_f64..1.0, variance in variance()) {
        let (n, count) = (n as f64, (at * n as f64).floor());
        let away = if count < n * q { count - 1.0 } else { count + 1.0 };
        prop_assume!((0.0..=n).contains(&away) && (count - n * q).abs() > 1.0);
        let of = |count| log_evidence(count, n, q, &variance, PRIOR);
        prop_assert!(of(away) >= of(count) - 1e-9, "{} at {count}, {} at {away}", of(count), of(away));
    }

    #[test]
    fn ranks_are_those_of_a_search_through_all(n in 0_u64..3_000, q in quantile(), variance in variance()) {
        for threshold in [VERDICT_EVIDENCE, INTERVAL_EVIDENCE] {
            let is_rejected = |count: &u64| log_evidence(*count as f64, n as f64, q, &variance, PRIOR) >= threshold;
            let expected = n as f64 * q;
            let low = (0..=n).take_while(|count| (*count as f64) < expected).filter(is_rejected).last();
            let high = (0..=n).skip_while(|count| *count as f64 <= expected).find(is_rejected);
            prop_assert_eq!(rejected_ranks(n, q, &variance, threshold), (low, high));
        }
    }

    #[test]
    fn a_stricter_level_gives_a_wider_interval(n in 1_u64..100_000, q in quantile(), variance in variance()) {
        let ranks = |threshold| rejected_ranks(n, q, &variance, threshold);
        let ((low, high), (wider_low, wider_high)) = (ranks(VERDICT_EVIDENCE), ranks(INTERVAL_EVIDENCE));
        prop_assert!(wider_low <= low);
        prop_assert!(wider_high.is_none() || high.is_some_and(|high| Some(high) <= wider_high));
    }

    #[test]
    fn a_proportion_lies_in_its_interval_which_ends_where_evidence_begins(n in 0_u64..50_000, at in 0.0_f64..=1.0, variance in variance()) {
        let k = (at * n as f64).round() as u64;
        for prior in [PRIOR, RARE_PRIOR] {
            let (low, high) = proportion_interval(k, n, &variance, prior);
            let share = if n > 0 { k as f64 / n as f64 } else { 0.5 };
            prop_assert!((0.0..=share).contains(&low) && (share..=1.0).contains(&high));
            let of = |p| log_evidence(k as f64, n as f64, p, &variance, prior);
            for (bound, inside) in [(low, low * 0.999 + share * 0.001), (high, high * 0.999 + share * 0.001)] {
                prop_assert!(bound == 0.0 || bound == 1.0 || of(bound) >= INTERVAL_EVIDENCE - 1e-6);
                prop_assert!(inside == share || inside <= 0.0 || inside >= 1.0 || of(inside) < INTERVAL_EVIDENCE + 1e-6);
            }
        }
    }
}

/// "Rule of three": after 0 of 10,000 the rate is below 7.6 in 10,000, at this level and at every look.
#[test]
fn zero_mismatches_bound_the_rate() {
    let variance = BlockVariance { variance: 0.0, inflation: 1.03, blocks: 72.0 };
    for (n, bound) in [(10_000, 7.6e-4), (100_000, 7.6e-5)] {
        let (low, high) = proportion_interval(0, n, &variance, RARE_PRIOR);
        assert!(low == 0.0 && (high / bound - 1.0).abs() < 0.01, "{n}: {high}");
    }
}

#[test]
fn nothing_contradicts_anything_before_the_first_block() {
    assert_eq!(log_evidence(0.0, 1e6, 0.5, &BlockVariance::NONE, PRIOR), f64::NEG_INFINITY);
    assert_eq!(rejected_ranks(1_000_000, 0.5, &BlockVariance::NONE, VERDICT_EVIDENCE), (None, None));
    assert_eq!(proportion_interval(0, 0, &BlockVariance::NONE, PRIOR), (0.0, 1.0));
}
