//! exp, erf, tanh, sigmoid and the activations built from them, on one vector of any level (`simd`). The relative error
//! is about 2e-7 (where a result is near zero by cancellation: absolute, scaled by the input). Finite input never gives
//! NaN or infinity: large magnitudes saturate; NaN propagates.

use super::simd::Simd;

const LOG2_E: f32 = std::f32::consts::LOG2_E;
/// ln 2 in two parts; the first has few enough bits that n * LN2_HIGH is exact.
const LN2_HIGH: f32 = 0.693_359_4;
const LN2_LOW: f32 = -2.121_944_4e-4;
/// The largest x whose exp is finite in f32, and an x whose exp is zero.
const EXP_MOST: f32 = 88.722_83;
const EXP_LEAST: f32 = -104.0;

/// c[0] + x (c[1] + x (c[2] + ...)).
#[inline(always)]
unsafe fn polynomial<S: Simd, const N: usize>(x: S::V, c: [f32; N]) -> S::V {
    // SAFETY: arithmetic only; the caller guarantees the level.
    unsafe {
        let mut sum = S::splat(c[N - 1]);
        let mut i = N - 1;
        while i > 0 {
            i -= 1;
            sum = S::fma(sum, x, S::splat(c[i]));
        }
        sum
    }
}

/// e^x. Above 88.7228 the result stays at the largest finite power; below -86.9 it may be zero.
///
/// # Safety
/// The processor has the instructions of `S`.
#[inline(always)]
pub(crate) unsafe fn exp<S: Simd>(x: S::V) -> S::V {
    // SAFETY: arithmetic only; the caller guarantees the level.
    unsafe { exp_in_range::<S>(S::min(S::splat(EXP_MOST), S::max(S::splat(EXP_LEAST), x))) }
}

/// `exp` without the clamping, for x within the limits.
#[inline(always)]
unsafe fn exp_in_range<S: Simd>(x: S::V) -> S::V {
    // SAFETY: arithmetic only; the caller guarantees the level.
    unsafe {
        let n = S::round(S::mul(x, S::splat(LOG2_E)));
        let r = S::fnma(n, S::splat(LN2_LOW), S::fnma(n, S::splat(LN2_HIGH), x));
        // Coefficients of Cephes' expf for e^r = 1 + r + r^2 p(r) on |r| <= ln 2 / 2.
        let p = polynomial::<S, 6>(r, [0.5, 0.166_666_65, 4.166_579_6e-2, 8.333_452e-3, 1.398_2e-3, 1.987_569_1e-4]);
        let p = S::add(S::fma(S::mul(r, r), p, r), S::splat(1.0));
        S::scale2(p, n)
    }
}

/// The error function. Two ranges: an odd polynomial near zero, 1 - e^q(|x|) beyond (N. Juffa's minimax coefficients).
///
/// # Safety
/// The processor has the instructions of `S`.
#[inline(always)]
pub(crate) unsafe fn erf<S: Simd>(x: S::V) -> S::V {
    // SAFETY: arithmetic only; the caller guarantees the level.
    unsafe {
        // erf(4) is 1 in f32; the clamp also keeps the squares finite.
        let t = S::min(S::splat(4.0), S::abs(x));
        let s = S::mul(t, t);
        let q = polynomial::<S, 7>(
            t,
            [-1.128_717_5, -0.634_846_7, -0.106_777_88, 2.425_462_2e-2, -3.883_964_4e-3, 3.831_971_3e-4, -1.728_534_7e-5],
        );
        let far = S::sub(S::splat(1.0), exp_in_range::<S>(S::mul(q, t)));
        let p =
            polynomial::<S, 6>(s, [0.128_379_17, -0.376_125_34, 0.112_819_925, -2.676_813_5e-2, 4.991_194_2e-3, -5.967_617e-4]);
        let near = S::fma(p, t, t);
        S::with_sign(S::select_lt(S::splat(0.921_875), t, far, near), x)
    }
}

/// 1 / (1 + e^-x), with full relative precision on the negative side too.
///
/// # Safety
/// The processor has the instructions of `S`.
#[inline(always)]
pub(crate) unsafe fn sigmoid<S: Simd>(x: S::V) -> S::V {
    // SAFETY: arithmetic only; the caller guarantees the level.
    unsafe {
        // e^-|x| cannot overflow, so x * sigmoid(x) tends to zero and not to a constant for large negative x.
        let z = exp::<S>(S::sub(S::splat(0.0), S::abs(x)));
        let one = S::splat(1.0);
        S::div(S::select_lt(x, S::splat(0.0), z, one), S::add(one, z))
    }
}

/// The hyperbolic tangent.
///
/// # Safety
/// The processor has the instructions of `S`.
#[inline(always)]
pub(crate) unsafe fn tanh<S: Simd>(x: S::V) -> S::V {
    // SAFETY: arithmetic only; the caller guarantees the level.
    unsafe {
        // tanh(10) is 1 in f32; the clamp keeps the square finite.
        let t = S::min(S::splat(10.0), S::abs(x));
        let s = S::mul(t, t);
        // Cephes' tanhf for |x| < 0.625.
        let p = polynomial::<S, 5>(s, [-0.333_332_8, 0.133_314_42, -5.373_971_5e-2, 2.063_909e-2, -5.704_988e-3]);
        let near = S::fma(S::mul(p, s), t, t);
        let one = S::splat(1.0);
        let far = S::sub(one, S::div(S::splat(2.0), S::add(one, exp::<S>(S::add(t, t)))));
        S::with_sign(S::select_lt(t, S::splat(0.625), near, far), x)
    }
}

/// x * sigmoid(x).
///
/// # Safety
/// The processor has the instructions of `S`.
#[inline(always)]
pub(crate) unsafe fn silu<S: Simd>(x: S::V) -> S::V {
    // SAFETY: arithmetic only; the caller guarantees the level.
    unsafe { S::mul(x, sigmoid::<S>(x)) }
}

/// 0.5 x (1 + erf(x / sqrt 2)).
///
/// # Safety
/// The processor has the instructions of `S`.
#[inline(always)]
pub(crate) unsafe fn gelu_erf<S: Simd>(x: S::V) -> S::V {
    // SAFETY: arithmetic only; the caller guarantees the level.
    unsafe {
        let half = S::mul(x, S::splat(0.5));
        S::fma(half, erf::<S>(S::mul(x, S::splat(std::f32::consts::FRAC_1_SQRT_2))), half)
    }
}

/// 0.5 x (1 + tanh(u)) with u = sqrt(2 / pi) (x + 0.044715 x^3), computed as x * sigmoid(2 u), which is the same.
///
/// # Safety
/// The processor has the instructions of `S`.
#[inline(always)]
pub(crate) unsafe fn gelu_tanh<S: Simd>(x: S::V) -> S::V {
    // SAFETY: arithmetic only; the caller guarantees the level.
    unsafe {
        let inner = S::fma(S::mul(S::mul(x, x), S::splat(0.044_715)), x, x);
        let twice_u = S::mul(inner, S::splat(1.595_769));
        S::mul(x, sigmoid::<S>(twice_u))
    }
}

#[cfg(test)]
mod tests {
    use super::super::dispatch::dispatch;
    use super::super::level::Level;
    use super::super::simd::{Kernel, Simd};
    use super::*;

    #[derive(Clone, Copy, Debug)]
    enum F {
        Exp,
        Erf,
        Sigmoid,
        Tanh,
        Silu,
        GeluErf,
        GeluTanh,
    }

    struct Map<'a>(F, &'a mut [f32]);

    impl Kernel for Map<'_> {
        type Out = ();
        #[inline(always)]
        unsafe fn run<S: Simd>(self) {
            for part in self.1.chunks_mut(S::LANES) {
                // SAFETY: the vector is masked to the part's length.
                unsafe {
                    let x = S::load_n(part.as_ptr(), part.len());
                    let y = match self.0 {
                        F::Exp => exp::<S>(x),
                        F::Erf => erf::<S>(x),
                        F::Sigmoid => sigmoid::<S>(x),
                        F::Tanh => tanh::<S>(x),
                        F::Silu => silu::<S>(x),
                        F::GeluErf => gelu_erf::<S>(x),
                        F::GeluTanh => gelu_tanh::<S>(x),
                    };
                    S::store_n(part.as_mut_ptr(), part.len(), y);
                }
            }
        }
    }

    /// erf in f64: the Taylor series near zero, the continued fraction of erfc beyond.
    fn erf64(x: f64) -> f64 {
        let t = x.abs();
        let y = if t < 2.5 {
            let (mut term, mut sum, mut n) = (t, t, 0.0);
            while term.abs() > 1e-18 {
                n += 1.0;
                term *= -t * t / n;
                sum += term / (2.0 * n + 1.0);
            }
            sum * std::f64::consts::FRAC_2_SQRT_PI
        } else if t < 27.0 {
            let fraction = (1..200).rev().fold(t, |f, k| t + f64::from(k) / 2.0 / f);
            1.0 - (-t * t).exp() / fraction / std::f64::consts::PI.sqrt()
        } else {
            1.0
        };
        y.copysign(x)
    }

    fn reference(f: F, x: f64) -> f64 {
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        match f {
            F::Exp => x.min(f64::from(EXP_MOST)).exp(),
            F::Erf => erf64(x),
            F::Sigmoid => sigmoid(x),
            F::Tanh => x.tanh(),
            F::Silu => x * sigmoid(x),
            F::GeluErf => 0.5 * x * (1.0 + erf64(x / 2f64.sqrt())),
            F::GeluTanh => x * sigmoid(2.0 * (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x)),
        }
    }

    const ALL: [F; 7] = [F::Exp, F::Erf, F::Sigmoid, F::Tanh, F::Silu, F::GeluErf, F::GeluTanh];

    #[test]
    fn every_level_keeps_the_stated_error() {
        let inputs: Vec<f32> = (-200_003..=200_003i32)
            .map(|i| i as f32 * 4.6e-4)
            .chain((-400..400i32).map(|i| 10f32.powf(i as f32 * 0.095) * if i % 2 == 0 { 1.0 } else { -1.0 }))
            .chain([0.0, -0.0, f32::MAX, f32::MIN, f32::MIN_POSITIVE, -1e4, -1e9, 88.722_83, 88.8, -87.34, -103.9])
            .collect();
        for level in Level::available() {
            for f in ALL {
                let mut y = inputs.clone();
                // SAFETY: the kernel holds no pointers.
                unsafe { dispatch(level, Map(f, &mut y)) };
                let mut worst = (0.0, 0.0f32);
                for (&x, &y) in inputs.iter().zip(&y) {
                    let r = reference(f, f64::from(x));
                    assert!(y.is_finite(), "{level:?} {f:?}({x}) = {y}");
                    // Gelu cancels for negative x, so its error is relative to the input; exp is checked down to f32's
                    // smallest normal number.
                    let scale =
                        if matches!(f, F::GeluErf | F::GeluTanh) { r.abs().max(0.5 * f64::from(x.abs())) } else { r.abs() };
                    let error = (f64::from(y) - r).abs() / (scale + 1e-29);
                    if error > worst.0 {
                        worst = (error, x);
                    }
                }
                println!("{level:?} {f:?}: {worst:?}");
                assert!(worst.0 < 2.4e-7, "{level:?} {f:?} {worst:?}");
            }
        }
    }

    #[test]
    fn nan_passes_through() {
        for level in Level::available() {
            for f in ALL {
                let mut y = [f32::NAN, 1.0];
                // SAFETY: the kernel holds no pointers.
                unsafe { dispatch(level, Map(f, &mut y)) };
                assert!(y[0].is_nan() && y[1].is_finite(), "{level:?} {f:?} {y:?}");
            }
        }
    }
}
