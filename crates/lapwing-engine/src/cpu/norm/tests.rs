//! Norms and softmax at every level against f64.

use proptest::prelude::*;

use super::*;

fn reference(p: &NormParams<'_>, width: usize, x: &[f32], residual: Option<&[f32]>) -> Vec<f64> {
    let x: Vec<f64> = x.iter().enumerate().map(|(i, &x)| f64::from(x + residual.map_or(0.0, |r| r[i]))).collect();
    x.chunks(width)
        .flat_map(|row| {
            let n = width as f64;
            let mean = if p.norm == NormKind::Layer { row.iter().sum::<f64>() / n } else { 0.0 };
            let square = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
            let root = (square + f64::from(p.eps)).sqrt();
            row.iter()
                .enumerate()
                .map(move |(c, x)| {
                    (x - mean) / root * p.gamma.map_or(1.0, |g| f64::from(g[c])) + p.beta.map_or(0.0, |b| f64::from(b[c]))
                })
                .collect::<Vec<_>>()
        })
        .collect()
}

fn close(got: &[f32], want: &[f64]) {
    assert_eq!(got.len(), want.len());
    for (i, (&y, &r)) in got.iter().zip(want).enumerate() {
        assert!((f64::from(y) - r).abs() <= 1e-5 + 1e-5 * r.abs(), "at {i}: {y}, not {r}");
    }
}

proptest! {
    #[test]
    fn norms_agree_with_f64(
        width in prop_oneof![1usize..71, 380usize..390, Just(2049)], rows in 1usize..5, seed in any::<u32>(),
        layer in any::<bool>(), (with_r, with_g, with_b) in any::<(bool, bool, bool)>(), mean in -20.0f32..20.0,
    ) {
        let value = |i: usize| ((i as f32 * 0.7 + seed as f32 * 1e-6).sin() * 43_758.547).fract();
        let x: Vec<f32> = (0..rows * width).map(|i| value(i) + mean).collect();
        let r: Vec<f32> = (0..rows * width).map(|i| value(i + 7777)).collect();
        let (g, b): (Vec<f32>, Vec<f32>) = (0..width).map(|i| (value(i + 99), value(i + 999))).unzip();
        let params = NormParams {
            norm: if layer { NormKind::Layer } else { NormKind::Rms },
            eps: 1e-5,
            gamma: with_g.then_some(&g),
            beta: with_b.then_some(&b),
        };
        let residual = with_r.then_some(&r[..]);
        let want = reference(&params, width, &x, residual);
        for level in Level::available() {
            let mut out = vec![f32::NAN; x.len()];
            norm_rows(level, &params, width, &x, residual, &mut out).unwrap();
            for (i, (&y, &r)) in out.iter().zip(&want).enumerate() {
                let error = (f64::from(y) - r).abs();
                prop_assert!(error <= 1e-5 + 1e-5 * r.abs(), "at {}: {}, not {}", i, y, r);
            }
            let mut same = x.clone();
            norm_rows_in_place(level, &params, width, &mut same, residual).unwrap();
            assert_eq!(same, out);
        }
    }

    #[test]
    fn softmax_agrees_with_f64(width in 1usize..71, rows in 1usize..5, gain in 0.1f32..200.0, masked in any::<bool>()) {
        let low = if masked { f32::NEG_INFINITY } else { -3.0 };
        let x: Vec<f32> =
            (0..rows * width).map(|i| if i % 5 == 3 { low } else { (i as f32 * 0.7).sin() * gain }).collect();
        let want: Vec<f64> = x.chunks(width).flat_map(|row| {
            let row: Vec<f64> = row.iter().map(|&x| f64::from(x.max(f32::MIN))).collect();
            let most = row.iter().copied().fold(f64::MIN, f64::max);
            let sum: f64 = row.iter().map(|x| (x - most).exp()).sum();
            row.iter().map(|x| (x - most).exp() / sum).collect::<Vec<_>>()
        }).collect();
        for level in Level::available() {
            let mut out = vec![f32::NAN; x.len()];
            softmax_rows(level, width, &x, &mut out).unwrap();
            close(&out, &want);
        }
    }
}

#[test]
fn wrong_lengths_are_named() {
    let params = NormParams { norm: NormKind::Rms, eps: 0.0, gamma: Some(&[1.0; 3]), beta: None };
    let run = |width, x: &[f32], r: Option<&[f32]>, n: usize| norm_rows(Level::best(), &params, width, x, r, &mut vec![0.0; n]);
    assert_eq!(run(3, &[1.0; 6], None, 6), Ok(()));
    assert!(matches!(run(3, &[1.0; 6], None, 5), Err(ShapeError::Length { what: "out", .. })));
    assert!(matches!(run(3, &[1.0; 7], None, 7), Err(ShapeError::Length { what: "x", .. })));
    assert!(matches!(run(0, &[1.0; 6], None, 6), Err(ShapeError::Length { what: "x", .. })));
    assert!(matches!(run(2, &[1.0; 6], None, 6), Err(ShapeError::Length { what: "gamma", .. })));
    assert!(matches!(run(3, &[1.0; 6], Some(&[1.0]), 6), Err(ShapeError::Length { what: "residual", .. })));
    assert!(softmax_rows(Level::best(), 2, &[1.0; 6], &mut [0.0; 4]).is_err());
}
