//! Compares estimated errors with those of actually quantising the values.

use super::*;
use proptest::prelude::*;

/// Approximately normal values: each the sum of twelve uniform ones.
fn normal(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed;
    let mut even = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 24) as f32
    };
    (0..count).map(|_| (0..12).map(|_| even()).sum::<f32>() - 6.0).collect()
}

/// The mean squared error of values as the kernels quantise them.
fn exact_error(values: &[f32], quant: RowQuant) -> f64 {
    let back = |value: f32| {
        let byte = ((value / quant.scale).round_ties_even() + quant.zero as f32).clamp(0.0, 255.0);
        (byte - quant.zero as f32) * quant.scale
    };
    values.iter().map(|value| f64::from(back(*value) - value).powi(2)).sum::<f64>() / values.len() as f64
}

fn observed(values: &[f32]) -> RangeObserver {
    let mut observer = RangeObserver::new();
    observer.add(values).unwrap();
    observer
}

#[test]
fn the_estimated_error_is_the_real_one() {
    let values = normal(20_000, 3);
    let observer = observed(&values);
    for clip in [RangeMethod::MinMax, RangeMethod::Percentile(99.9), RangeMethod::Percentile(90.0), RangeMethod::LeastError] {
        let chosen = observer.choose(clip).unwrap();
        let exact = exact_error(&values, chosen.quant);
        assert!((chosen.squared_error / exact - 1.0).abs() < 0.06, "{clip:?} {chosen:?} {exact}");
    }
}

#[test]
fn one_outlier_is_clipped_and_a_heavy_one_is_not() {
    let mut values = normal(100_000, 5);
    values.push(400.0);
    let observer = observed(&values);
    let [full, clipped] = [RangeMethod::MinMax, RangeMethod::LeastError].map(|clip| observer.choose(clip).unwrap());
    // 0.21 of noise from the full range for all values against 160,000 / 100,000 for one outlier: a little is clipped,
    // never all of it.
    assert!(clipped.squared_error < full.squared_error && clipped.high < full.high, "{clipped:?} {full:?}");
    assert!(exact_error(&values, clipped.quant) < exact_error(&values, full.quant));
    values.extend([400.0; 2_000]);
    let kept = observed(&values).choose(RangeMethod::LeastError).unwrap();
    assert!(kept.high > 370.0, "{kept:?}");
    // Rows of two very different scales: each row's own range is better.
    assert_eq!(observed(&values[..100_001]).fixed().unwrap(), None);
    assert!(observed(&values[..100_000]).fixed().unwrap().is_some());
}

#[test]
fn min_max_and_percentiles_by_hand() {
    let values: Vec<f32> = (1..=1000u16).map(|value| f32::from(value) / 10.0 - 20.0).collect();
    let observer = observed(&values);
    let full = observer.choose(RangeMethod::MinMax).unwrap();
    assert_eq!((full.low, full.high), (-19.9, 80.0));
    assert_eq!((full.quant.zero, full.quant.scale), (51, 80.0f32 / 255.0 + 19.9 / 255.0));
    let most = observer.choose(RangeMethod::Percentile(99.0)).unwrap();
    assert!((most.low + 18.9).abs() < 0.06 && (most.high - 79.0).abs() < 0.06, "{most:?}");
    let all = observer.choose(RangeMethod::Percentile(100.0)).unwrap();
    assert!((all.low + 19.9).abs() < 0.06 && (all.high - 80.0).abs() < 0.06, "{all:?}");
}

#[test]
fn a_range_always_holds_zero() {
    let positive = observed(&[5.0, 6.0]).choose(RangeMethod::MinMax).unwrap();
    assert_eq!((positive.low, positive.high, positive.quant.zero), (0.0, 6.0, 0));
    let negative = observed(&[-5.0, -6.0]).choose(RangeMethod::MinMax).unwrap();
    assert_eq!((negative.low, negative.high, negative.quant.zero), (-6.0, 0.0, 255));
    let zeros = observed(&[0.0; 9]);
    assert_eq!(zeros.choose(RangeMethod::LeastError).unwrap().signal_db, f64::INFINITY);
    assert_eq!(zeros.fixed().unwrap(), Some(RowQuant { scale: 1.0, zero: 0 }));
}

#[test]
fn what_has_no_range_is_told() {
    let mut observer = RangeObserver::new();
    assert_eq!(observer.choose(RangeMethod::MinMax), Err(ObserverError::Empty));
    assert_eq!(observer.add(&[1.0, f32::NAN]), Err(ObserverError::NotFinite { element: 1 }));
    assert_eq!(observer.count(), 0);
    observer.add(&[1.0]).unwrap();
    for percent in [50.0, 100.5, f64::NAN] {
        assert!(matches!(observer.choose(RangeMethod::Percentile(percent)), Err(ObserverError::Percentile { .. })));
    }
}

proptest! {
    #[test]
    fn the_chosen_range_is_never_worse_than_the_full_one(values in prop::collection::vec(-1e2f32..1e2, 1..200), spread in 0f32..1.0) {
        let values: Vec<f32> = values.iter().map(|value| value * spread.powi(8)).collect();
        let observer = observed(&values);
        let [full, best] = [RangeMethod::MinMax, RangeMethod::LeastError].map(|clip| observer.choose(clip).unwrap());
        prop_assert!(best.squared_error <= full.squared_error);
        prop_assert!(best.quant.scale > 0.0 && best.quant.scale.is_finite() && (0..=255).contains(&best.quant.zero));
        prop_assert!(best.low <= 0.0 && best.high >= 0.0);
    }
}
