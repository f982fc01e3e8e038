//! The f32 product at every level against f64: odd sizes, strides, ranges of panels, every epilogue.

use proptest::prelude::*;

use super::super::level::Level;
use super::*;
use lapwing_plan::plan::Activation;

/// Numbers in [-1, 1) from a seed.
pub(crate) fn noise(seed: u64, len: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        })
        .collect()
}

fn erf64(x: f64) -> f64 {
    // Simpson's rule over the density: good to 1e-12 for the arguments here.
    let (x, n) = (x.clamp(-6.0, 6.0), 400);
    let h = x / f64::from(n);
    let f = |t: f64| (-t * t).exp();
    let sum: f64 = (0..n).map(|i| f64::from(i) * h).map(|t| f(t) + 4.0 * f(t + h / 2.0) + f(t + h)).sum();
    sum * h / 6.0 * std::f64::consts::FRAC_2_SQRT_PI
}

pub(crate) fn activate(activation: Activation, x: f64) -> f64 {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    match activation {
        Activation::None => x,
        Activation::Relu => x.max(0.0),
        Activation::Gelu => 0.5 * x * (1.0 + erf64(x / 2f64.sqrt())),
        Activation::GeluTanh => x * sigmoid(2.0 * (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x)),
        Activation::Sigmoid => sigmoid(x),
        Activation::Tanh => x.tanh(),
        Activation::Silu => x * sigmoid(x),
    }
}

pub(crate) const ACTIVATIONS: [Activation; 7] = [
    Activation::None,
    Activation::Relu,
    Activation::Gelu,
    Activation::GeluTanh,
    Activation::Sigmoid,
    Activation::Tanh,
    Activation::Silu,
];

#[derive(Debug, Clone, Copy)]
struct Case {
    m: usize,
    k: usize,
    n: usize,
    pad: usize,
    activation: Activation,
    bias: bool,
    residual: Option<ResidualAt>,
}

/// Runs a case at `level` in two ranges of panels and compares every element, and the gaps between rows, with the
/// reference.
fn hold(case: Case, level: Level) {
    let Case { m, k, n, pad, activation, bias, residual } = case;
    let (xs, os, rs) = (k + pad, n + 2 * pad, n + pad);
    let (x, w) = (noise(1, m * xs), noise(2, k * n));
    let (b, r) = (noise(3, n), noise(4, m * rs));
    let packed = PackedWeights::for_level(&w, k, n, level);
    let residual_rows = MatrixRows { values: &r, count: m, stride: rs };
    let epilogue =
        Epilogue { bias: bias.then_some(&b[..]), activation, residual: residual.map(|at| Residual { rows: residual_rows, at }) };
    let mut out = vec![f32::NAN; m * os];
    let mut scratch = vec![f32::NAN; scratch_len(m)];
    let rows = MatrixRows { values: &x, count: m, stride: xs };
    let half = packed.panels() / 2;
    for panels in [half..packed.panels(), 0..half] {
        gemm(rows, &packed, &epilogue, OutRows { values: &mut out, stride: os }, panels, &mut scratch).unwrap();
    }
    for i in 0..m {
        for j in 0..n {
            let mut y: f64 = (0..k).map(|p| f64::from(x[i * xs + p]) * f64::from(w[p * n + j])).sum();
            let size: f64 = (0..k).map(|p| (f64::from(x[i * xs + p]) * f64::from(w[p * n + j])).abs()).sum();
            y += if bias { f64::from(b[j]) } else { 0.0 };
            let extra = f64::from(r[i * rs + j]);
            let y = match residual {
                None => activate(activation, y),
                Some(ResidualAt::BeforeActivation) => activate(activation, y + extra),
                Some(ResidualAt::AfterActivation) => activate(activation, y) + extra,
            };
            let got = f64::from(out[i * os + j]);
            // NaN fails too. Sums of k terms may lose a few ulp of the largest partial sum.
            assert!((got - y).abs() <= 1e-5 + 1e-5 * y.abs() + 3e-7 * size, "{level:?} {case:?} [{i},{j}]: {got} for {y}");
        }
        assert!(out[i * os + n..(i + 1) * os].iter().all(|gap| gap.is_nan()), "{level:?} {case:?}: wrote behind row {i}");
    }
}

#[test]
fn every_tile_and_every_tail() {
    let plain = Case { m: 1, k: 37, n: 1, pad: 3, activation: Activation::None, bias: true, residual: None };
    for level in Level::available() {
        for m in 1..=30 {
            for n in [1, 3, 4, 5, 8, 9, 16, 17, 31, 32, 33, 36, 47, 48, 49, 64, 67] {
                hold(Case { m, n, ..plain }, level);
            }
        }
        for k in [0, 1, 2, 3, 15, 16, 17, 63, 511, 512, 513, 1024, 1031] {
            for m in [1, 2, 3, 4, 5, 14, 29] {
                hold(Case { m, k, n: 35, ..plain }, level);
            }
        }
        hold(Case { m: 257, k: 131, n: 70, ..plain }, level);
    }
}

#[test]
fn every_epilogue() {
    for level in Level::available() {
        for activation in ACTIVATIONS {
            for residual in [None, Some(ResidualAt::BeforeActivation), Some(ResidualAt::AfterActivation)] {
                for bias in [false, true] {
                    for (m, k, n) in [(1, 13, 1), (2, 40, 35), (23, 600, 51), (6, 600, 34)] {
                        hold(Case { m, k, n, pad: 1, activation, bias, residual }, level);
                    }
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_size(m in 1usize..70, k in 0usize..70, n in 0usize..140, pad in 0usize..9, a in 0usize..7, bias: bool, at in 0usize..3) {
        let residual = [None, Some(ResidualAt::BeforeActivation), Some(ResidualAt::AfterActivation)][at];
        for level in Level::available() {
            hold(Case { m, k, n, pad, activation: ACTIVATIONS[a], bias, residual }, level);
        }
    }
}

#[test]
fn short_buffers_are_refused_and_nothing_is_written() {
    let packed = PackedWeights::new(&noise(1, 12), 3, 4);
    let (x, mut out, bias) = (noise(2, 18), [7.0; 24], [0.0; 3]);
    let whole = 0..packed.panels();
    let mut scratch = vec![0.0; scratch_len(6)];
    let call = |x: MatrixRows<'_>, epilogue: Epilogue<'_>, out: &mut [f32], panels, scratch: &mut [f32]| {
        gemm(x, &packed, &epilogue, OutRows { values: out, stride: 4 }, panels, scratch).unwrap_err()
    };
    let rows = MatrixRows::dense(&x, 6, 3);
    let none = Epilogue::default();
    let expect = |what, needed, given| GemmError::Length { what, needed, given };
    assert_eq!(call(MatrixRows::dense(&x[..17], 6, 3), none, &mut out, whole.clone(), &mut scratch), expect("input", 18, 17));
    assert_eq!(call(MatrixRows { stride: 2, ..rows }, none, &mut out, whole.clone(), &mut scratch), expect("input", 13, 18));
    assert_eq!(call(rows, none, &mut out[..23], whole.clone(), &mut scratch), expect("output", 24, 23));
    assert_eq!(call(rows, none, &mut out, whole.clone(), &mut []), expect("scratch", scratch_len(6), 0));
    assert_eq!(call(rows, none, &mut out, 0..2, &mut scratch), GemmError::Panels { end: 2, panels: 1 });
    let short = Epilogue { bias: Some(&bias), ..none };
    assert_eq!(call(rows, short, &mut out, whole.clone(), &mut scratch), expect("bias", 4, 3));
    let residual = Residual { rows: MatrixRows::dense(&x, 6, 4), at: ResidualAt::AfterActivation };
    let short = Epilogue { residual: Some(residual), ..none };
    assert_eq!(call(rows, short, &mut out, whole, &mut scratch), expect("residual", 24, 18));
    assert!(out.iter().all(|y| *y == 7.0));
}

#[test]
fn both_orders_of_weights_pack_alike() {
    let (k, n) = (19, 37);
    let w = noise(5, k * n);
    let transposed: Vec<f32> = (0..n * k).map(|i| w[(i % k) * n + i / k]).collect();
    for level in Level::available() {
        let (a, b) = (PackedWeights::for_level(&w, k, n, level), PackedWeights::from_transposed(&transposed, k, n, level));
        assert_eq!(a.data(), b.data());
        assert!(a.bytes() >= k * n * 4 && a.bytes() <= k * n.next_multiple_of(a.panel_width()) * 4);
    }
}

#[test]
fn threads_share_an_output_by_panels() {
    let (m, k, n) = (20, 64, 200);
    let (x, w) = (noise(1, m * k), noise(2, k * n));
    for level in Level::available() {
        let packed = PackedWeights::for_level(&w, k, n, level);
        let epilogue = Epilogue { activation: Activation::Gelu, ..Epilogue::default() };
        let (mut alone, mut shared) = (vec![0.0; m * n], vec![f32::NAN; m * n]);
        let mut scratch = vec![0.0; scratch_len(m)];
        let rows = MatrixRows::dense(&x, m, k);
        gemm(rows, &packed, &epilogue, OutRows { values: &mut alone, stride: n }, 0..packed.panels(), &mut scratch).unwrap();
        let out = SharedOut::new(OutRows { values: &mut shared, stride: n });
        std::thread::scope(|scope| {
            for panel in 0..packed.panels() {
                let (packed, epilogue) = (&packed, &epilogue);
                scope.spawn(move || {
                    let mut scratch = vec![0.0; scratch_len(m)];
                    // SAFETY: each thread has its own panel.
                    unsafe { gemm_shared(rows, packed, epilogue, out, panel..panel + 1, &mut scratch) }.unwrap();
                });
            }
        });
        assert_eq!(alone, shared, "{level:?}");
    }
}

#[test]
fn large_finite_inputs_stay_finite() {
    for level in Level::available() {
        for activation in ACTIVATIONS {
            for big in [1e4, 1e9, 1e18, 3e38f32] {
                let packed = PackedWeights::for_level(&[1.0, -1.0, 0.5, -0.25, 1e-3], 1, 5, level);
                let mut out = [f32::NAN; 30];
                let x = [big, -big, 0.0, -0.0, 1.0, -1.0];
                let epilogue = Epilogue { activation, ..Epilogue::default() };
                let mut scratch = vec![0.0; scratch_len(6)];
                let to = OutRows { values: &mut out, stride: 5 };
                gemm(MatrixRows::dense(&x, 6, 1), &packed, &epilogue, to, 0..1, &mut scratch).unwrap();
                assert!(out.iter().all(|y| y.is_finite()), "{level:?} {activation:?} {big} {out:?}");
            }
        }
    }
}
