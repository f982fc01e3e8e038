//! The int8 product against integers computed one by one, and all levels against one another.

use proptest::prelude::*;

use super::super::tests::{ACTIVATIONS, activate, noise};
use super::super::{Epilogue, GemmError, MatrixRows, OutRows, Residual, ResidualAt};
use super::*;
use lapwing_plan::plan::Activation;

/// The bytes of a row by the definition of `RowQuant`.
fn bytes(row: &[f32], quant: RowQuant) -> Vec<i64> {
    let inverse = 1.0 / quant.scale;
    row.iter().map(|x| ((x * inverse).round_ties_even() as i64 + i64::from(quant.zero)).clamp(0, 255)).collect()
}

/// Runs x W at `level`, compares it with exact integer sums, and returns the output.
fn hold(level: LevelI8, x: &[f32], w: &[f32], (m, k, n): (usize, usize, usize), activation: Activation) -> Vec<f32> {
    let weights = PackedWeightsI8::new(w, k, n, level).unwrap();
    let mut words = vec![u32::MAX; words_len(level, m, k)];
    let mut params = vec![RowQuant::default(); m];
    let rows = quantize_rows(MatrixRows::dense(x, m, k), k, None, level, &mut words, &mut params).unwrap();
    let (bias, residual) = (noise(8, n), noise(9, m * n));
    let residual_rows = Residual { rows: MatrixRows::dense(&residual, m, n), at: ResidualAt::AfterActivation };
    let epilogue = Epilogue { bias: Some(&bias), activation, residual: Some(residual_rows) };
    let stride = n + 3;
    let mut out = vec![f32::NAN; m * stride];
    let half = weights.panels() / 2;
    for panels in [half..weights.panels(), 0..half] {
        gemm_i8(&rows, &weights, &epilogue, OutRows { values: &mut out, stride }, panels).unwrap();
    }
    for j in 0..n {
        let most = (0..k).map(|p| w[p * n + j].abs()).fold(0.0, f32::max);
        let scale = if most < 1e-30 { 1.0 } else { most / 127.0 };
        for i in 0..m {
            let quant = rows.params()[i];
            let q = bytes(&x[i * k..(i + 1) * k], quant);
            let sum: i64 = (0..k).map(|p| (q[p] - i64::from(quant.zero)) * (w[p * n + j] / scale).round_ties_even() as i64).sum();
            let y = sum as f64 * f64::from(scale) * f64::from(quant.scale) + f64::from(bias[j]);
            let y = activate(activation, y) + f64::from(residual[i * n + j]);
            let got = f64::from(out[i * stride + j]);
            assert!((got - y).abs() <= 2e-6 + 2e-6 * y.abs(), "{level:?} {m}x{k}x{n} [{i},{j}]: {got} for {y}");
        }
    }
    assert!((0..m).all(|i| out[i * stride + n..(i + 1) * stride].iter().all(|gap| gap.is_nan())));
    out
}

#[test]
fn every_tile_every_tail_every_level() {
    for level in LevelI8::available() {
        for m in 1..=30 {
            for n in [1, 7, 8, 16, 17, 32, 33, 50] {
                hold(level, &noise(1, m * 37), &noise(2, 37 * n), (m, 37, n), Activation::None);
            }
        }
        for k in [0, 1, 2, 3, 4, 5, 15, 16, 17, 63, 64, 65, 1031] {
            for m in [1, 2, 3, 4, 15] {
                hold(level, &noise(3, m * k), &noise(4, k * 35), (m, k, 35), Activation::None);
            }
        }
        for activation in ACTIVATIONS {
            hold(level, &noise(5, 5 * 40), &noise(6, 40 * 35), (5, 40, 35), activation);
        }
        hold(level, &noise(7, 300 * 1100), &noise(8, 1100 * 35), (300, 1100, 35), Activation::None);
    }
}

#[test]
fn extreme_bytes_do_not_saturate() {
    // All inputs at byte 255 and all weights at -127 or 127: pairs that saturate in 16 bits.
    let (m, k, n) = (3, 4096, 33);
    let x = vec![1.0; m * k];
    for sign in [-1.0, 1.0] {
        for level in LevelI8::available() {
            let out = hold(level, &x, &vec![sign; k * n], (m, k, n), Activation::Tanh);
            assert!(out.iter().filter(|y| !y.is_nan()).count() == m * n);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_size_and_any_range(m in 1usize..40, k in 1usize..90, n in 1usize..80, low in -3.0f32..3.0, wide in 0.0f32..1e6) {
        let x: Vec<f32> = noise(1, m * k).iter().map(|x| low + x * wide / 1e3).collect();
        let outs: Vec<_> =
            LevelI8::available().into_iter().map(|level| hold(level, &x, &noise(2, k * n), (m, k, n), Activation::Relu)).collect();
        for other in &outs[1..] {
            for (a, b) in other.iter().zip(&outs[0]).filter(|(a, _)| !a.is_nan()) {
                prop_assert!((a - b).abs() <= 1e-6 * b.abs() + 1e-6, "{a} {b}");
            }
        }
    }
}

#[test]
fn dynamic_quantisation_is_close_to_f32() {
    let (m, k, n) = (16, 384, 96);
    let (x, w) = (noise(1, m * k), noise(2, k * n));
    let level = LevelI8::best();
    let weights = PackedWeightsI8::new(&w, k, n, level).unwrap();
    let (mut words, mut params) = (vec![0; words_len(level, m, k)], vec![RowQuant::default(); m]);
    let rows = quantize_rows(MatrixRows::dense(&x, m, k), k, None, level, &mut words, &mut params).unwrap();
    let mut out = vec![0.0; m * n];
    let whole = 0..weights.panels();
    gemm_i8(&rows, &weights, &Epilogue::default(), OutRows { values: &mut out, stride: n }, whole).unwrap();
    for i in 0..m {
        let exact: Vec<f32> = (0..n).map(|j| (0..k).map(|p| x[i * k + p] * w[p * n + j]).sum()).collect();
        let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
        let got = &out[i * n..(i + 1) * n];
        let cosine = dot(&exact, got) / (dot(&exact, &exact) * dot(got, got)).sqrt();
        assert!(cosine > 0.9999, "row {i}: {cosine}");
    }
}

#[test]
fn bad_rows_poison_their_own_output_and_bad_weights_are_refused() {
    let (k, n) = (20, 5);
    let w = noise(1, k * n);
    for level in LevelI8::available() {
        let fixed = Some(RowQuant { scale: 0.1, zero: 100 });
        for (bad, fixed) in [(f32::NAN, None), (f32::INFINITY, None), (f32::NEG_INFINITY, None), (f32::NAN, fixed)] {
            let mut x = noise(2, 3 * k);
            x[k + 7] = bad;
            let weights = PackedWeightsI8::new(&w, k, n, level).unwrap();
            let (mut words, mut params) = (vec![0; words_len(level, 3, k)], vec![RowQuant::default(); 3]);
            let rows = quantize_rows(MatrixRows::dense(&x, 3, k), k, fixed, level, &mut words, &mut params).unwrap();
            let mut out = vec![0.0; 3 * n];
            gemm_i8(&rows, &weights, &Epilogue::default(), OutRows { values: &mut out, stride: n }, 0..1).unwrap();
            assert!(out[n..2 * n].iter().all(|y| y.is_nan()), "{level:?} {bad}: {out:?}");
            assert!(out[..n].iter().chain(&out[2 * n..]).all(|y| y.is_finite()));
        }
    }
    let mut w = w;
    w[n + 2] = f32::NAN;
    assert_eq!(PackedWeightsI8::new(&w, k, n, LevelI8::best()).unwrap_err(), I8Error::NotFinite { column: 2 });
    assert_eq!(PackedWeightsI8::new(&w, k, n + 1, LevelI8::best()).unwrap_err(), I8Error::Length { needed: 120, given: 100 });
    let deep = vec![0i8; 65_537];
    let refused = PackedWeightsI8::from_quantized(&deep, &[1.0], 65_537, 1, LevelI8::best()).unwrap_err();
    assert_eq!(refused, I8Error::Depth { k: 65_537 });
}

#[test]
fn huge_and_tiny_and_fixed_ranges() {
    let level = LevelI8::best();
    for (x, want) in [([f32::MAX, f32::MIN, 0.0, 1.0], true), ([1e-40, -1e-40, 0.0, 0.0], true), ([0.0; 4], true)] {
        let (mut words, mut params) = (vec![0; words_len(level, 1, 4)], [RowQuant::default()]);
        let rows = quantize_rows(MatrixRows::dense(&x, 1, 4), 4, None, level, &mut words, &mut params).unwrap();
        assert_eq!(rows.params()[0].scale.is_finite() && rows.params()[0].scale > 0.0, want, "{x:?}");
    }
    // Fixed: 100 saturates at (255 - 128) * 0.5.
    let fixed = Some(RowQuant { scale: 0.5, zero: 128 });
    let weights = PackedWeightsI8::new(&[1.0; 4], 4, 1, level).unwrap();
    let (mut words, mut params) = (vec![0; words_len(level, 1, 4)], [RowQuant::default()]);
    let x = [1.0, -2.0, 100.0, -1e9];
    let rows = quantize_rows(MatrixRows::dense(&x, 1, 4), 4, fixed, level, &mut words, &mut params).unwrap();
    let mut out = [0.0];
    gemm_i8(&rows, &weights, &Epilogue::default(), OutRows { values: &mut out, stride: 1 }, 0..1).unwrap();
    assert!((out[0] - (1.0 - 2.0 + 63.5 - 64.0)).abs() < 1e-4, "{out:?}");
    let other = PackedWeightsI8::new(&[1.0; 5], 5, 1, level).unwrap();
    let refused = gemm_i8(&rows, &other, &Epilogue::default(), OutRows { values: &mut out, stride: 1 }, 0..1);
    assert_eq!(refused.unwrap_err(), GemmError::Quantized { level: level.name(), k: 4 });
}
