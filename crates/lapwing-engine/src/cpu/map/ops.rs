//! The loops of elementwise programs: each function over runs of values, where a run is either consecutive values or
//! one value repeated.

use crate::cpu::math;
use crate::cpu::simd::Simd;
use lapwing_plan::plan::{Binary, Unary};

/// An operand's values: `step` 1 means consecutive values, 0 the same vector repeated.
#[derive(Clone, Copy)]
pub(crate) struct Run {
    pub(crate) from: *const f32,
    pub(crate) step: usize,
}

/// One value in as many lanes as the widest level has, to be read with step 0.
pub(crate) type Splat = [f32; 16];

impl Run {
    /// Loads the lanes from the i-th value on; `n` of them are valid.
    #[inline(always)]
    unsafe fn get<S: Simd>(self, i: usize, n: usize) -> S::V {
        // SAFETY: the caller guarantees `n` values from i on, or 16 with step 0.
        unsafe {
            let from = self.from.add(i * self.step);
            if n >= S::LANES { S::load(from) } else { S::load_n(from, n) }
        }
    }
}

/// A function on vectors of operands.
trait Function<const A: usize>: Copy {
    unsafe fn of<S: Simd>(self, x: [S::V; A]) -> S::V;
}

/// `to[..n] = f(args)`.
#[inline(always)]
unsafe fn apply<S: Simd, F: Function<A>, const A: usize>(f: F, args: [Run; A], to: *mut f32, n: usize) {
    // SAFETY: the caller promises `n` values at each run and at `to`.
    unsafe {
        let mut i = 0;
        while i + S::LANES <= n {
            let mut x = [S::splat(0.0); A];
            for (x, arg) in x.iter_mut().zip(args) {
                *x = arg.get::<S>(i, S::LANES);
            }
            S::store(to.add(i), f.of::<S>(x));
            i += S::LANES;
        }
        if i < n {
            let mut x = [S::splat(0.0); A];
            for (x, arg) in x.iter_mut().zip(args) {
                *x = arg.get::<S>(i, n - i);
            }
            S::store_n(to.add(i), n - i, f.of::<S>(x));
        }
    }
}

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident($($x:ident),+): $arity:literal = $body:expr;)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy)]
        struct $name;
        impl Function<$arity> for $name {
            #[inline(always)]
            unsafe fn of<S: Simd>(self, [$($x),+]: [S::V; $arity]) -> S::V {
                // SAFETY: arithmetic only; the caller guarantees the level.
                unsafe { $body }
            }
        }
    )+};
}

functions! {
    Copied(x): 1 = S::max(x, x);
    Neg(x): 1 = S::mul(x, S::splat(-1.0));
    Abs(x): 1 = S::abs(x);
    Sqrt(x): 1 = S::sqrt(x);
    Rsqrt(x): 1 = S::div(S::splat(1.0), S::sqrt(x));
    Recip(x): 1 = S::div(S::splat(1.0), x);
    Square(x): 1 = S::mul(x, x);
    Cube(x): 1 = S::mul(S::mul(x, x), x);
    Exp(x): 1 = math::exp::<S>(x);
    Tanh(x): 1 = math::tanh::<S>(x);
    Sigmoid(x): 1 = math::sigmoid::<S>(x);
    Erf(x): 1 = math::erf::<S>(x);
    Relu(x): 1 = S::max(S::splat(0.0), x);
    Gelu(x): 1 = math::gelu_erf::<S>(x);
    GeluTanh(x): 1 = math::gelu_tanh::<S>(x);
    Silu(x): 1 = math::silu::<S>(x);
    Floor(x): 1 = S::floor(x);
    Ceil(x): 1 = S::mul(S::floor(S::mul(x, S::splat(-1.0))), S::splat(-1.0));
    Round(x): 1 = S::round_any(x);
    Not(x): 1 = S::select_eq(x, S::splat(0.0), S::splat(1.0), S::splat(0.0));
    Add(a, b): 2 = S::add(a, b);
    Sub(a, b): 2 = S::sub(a, b);
    Mul(a, b): 2 = S::mul(a, b);
    Div(a, b): 2 = S::div(a, b);
    Min(a, b): 2 = S::min(a, b);
    Max(a, b): 2 = S::max(a, b);
    Equal(a, b): 2 = S::select_eq(a, b, S::splat(1.0), S::splat(0.0));
    Less(a, b): 2 = S::select_lt(a, b, S::splat(1.0), S::splat(0.0));
    LessOrEqual(a, b): 2 = S::select_lt(a, b, S::splat(1.0), S::select_eq(a, b, S::splat(1.0), S::splat(0.0)));
    Where(c, y, n): 3 = S::select_eq(c, S::splat(0.0), n, y);
}

/// `to[..n] = x`.
///
/// # Safety
/// The run has `n` values (16 with step 0), `to` room for `n`, and the processor the level's instructions.
#[inline(always)]
pub(crate) unsafe fn copy<S: Simd>(x: Run, to: *mut f32, n: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe { apply::<S, _, 1>(Copied, [x], to, n) }
}

/// `to[..n] = op(x)`.
///
/// # Safety
/// Like [`copy`].
#[inline(always)]
pub(crate) unsafe fn unary<S: Simd>(op: Unary, x: Run, to: *mut f32, n: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match op {
            Unary::Neg => apply::<S, _, 1>(Neg, [x], to, n),
            Unary::Abs => apply::<S, _, 1>(Abs, [x], to, n),
            Unary::Sqrt => apply::<S, _, 1>(Sqrt, [x], to, n),
            Unary::Rsqrt => apply::<S, _, 1>(Rsqrt, [x], to, n),
            Unary::Recip => apply::<S, _, 1>(Recip, [x], to, n),
            Unary::Square => apply::<S, _, 1>(Square, [x], to, n),
            Unary::Exp => apply::<S, _, 1>(Exp, [x], to, n),
            Unary::Log => one_by_one(x, to, n, f32::ln),
            Unary::Sin => one_by_one(x, to, n, f32::sin),
            Unary::Cos => one_by_one(x, to, n, f32::cos),
            Unary::Tanh => apply::<S, _, 1>(Tanh, [x], to, n),
            Unary::Sigmoid => apply::<S, _, 1>(Sigmoid, [x], to, n),
            Unary::Erf => apply::<S, _, 1>(Erf, [x], to, n),
            Unary::Relu => apply::<S, _, 1>(Relu, [x], to, n),
            Unary::Gelu => apply::<S, _, 1>(Gelu, [x], to, n),
            Unary::GeluTanh => apply::<S, _, 1>(GeluTanh, [x], to, n),
            Unary::Silu => apply::<S, _, 1>(Silu, [x], to, n),
            Unary::Floor => apply::<S, _, 1>(Floor, [x], to, n),
            Unary::Ceil => apply::<S, _, 1>(Ceil, [x], to, n),
            Unary::Round => apply::<S, _, 1>(Round, [x], to, n),
            Unary::Not => apply::<S, _, 1>(Not, [x], to, n),
            // the exponents that exporters write for squares and roots; all others are rare
            Unary::Pow(2.0) => apply::<S, _, 1>(Square, [x], to, n),
            Unary::Pow(3.0) => apply::<S, _, 1>(Cube, [x], to, n),
            Unary::Pow(0.5) => apply::<S, _, 1>(Sqrt, [x], to, n),
            Unary::Pow(-0.5) => apply::<S, _, 1>(Rsqrt, [x], to, n),
            Unary::Pow(-1.0) => apply::<S, _, 1>(Recip, [x], to, n),
            Unary::Pow(exponent) => one_by_one(x, to, n, |x| x.powf(exponent)),
        }
    }
}

/// `to[..n] = op(a, b)`.
///
/// # Safety
/// Like [`copy`].
#[inline(always)]
pub(crate) unsafe fn binary<S: Simd>(op: Binary, [a, b]: [Run; 2], to: *mut f32, n: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match op {
            Binary::Add => apply::<S, _, 2>(Add, [a, b], to, n),
            Binary::Sub => apply::<S, _, 2>(Sub, [a, b], to, n),
            Binary::Mul => apply::<S, _, 2>(Mul, [a, b], to, n),
            Binary::Div => apply::<S, _, 2>(Div, [a, b], to, n),
            Binary::Min => apply::<S, _, 2>(Min, [a, b], to, n),
            Binary::Max => apply::<S, _, 2>(Max, [a, b], to, n),
            Binary::Equal => apply::<S, _, 2>(Equal, [a, b], to, n),
            Binary::Less => apply::<S, _, 2>(Less, [a, b], to, n),
            Binary::LessOrEqual => apply::<S, _, 2>(LessOrEqual, [a, b], to, n),
            Binary::Greater => apply::<S, _, 2>(Less, [b, a], to, n),
            Binary::GreaterOrEqual => apply::<S, _, 2>(LessOrEqual, [b, a], to, n),
        }
    }
}

/// `to[..n] = condition != 0 ? yes : no`.
///
/// # Safety
/// Like [`copy`].
#[inline(always)]
pub(crate) unsafe fn choose<S: Simd>(args: [Run; 3], to: *mut f32, n: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe { apply::<S, _, 3>(Where, args, to, n) }
}

/// Applies a function that has no vector implementation, one value at a time, by the standard library.
unsafe fn one_by_one(x: Run, to: *mut f32, n: usize, f: impl Fn(f32) -> f32) {
    for i in 0..n {
        // SAFETY: guaranteed by the caller.
        unsafe { *to.add(i) = f(*x.from.add(i * x.step)) };
    }
}
