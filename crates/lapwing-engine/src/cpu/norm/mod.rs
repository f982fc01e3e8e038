//! Layer norm, RMS norm and softmax over the rows of [rows, width] values. A thread passes the slice of its own rows;
//! nothing is allocated. Layer norm takes two passes (the mean first, then the squared deviations, which also correct
//! the mean), so that a large mean costs no precision.

#[cfg(test)]
mod tests;

use super::dispatch::dispatch;
use super::level::Level;
use super::math::exp;
use super::shape::{ShapeError, exactly, rows_of};
use super::simd::{Kernel, Simd};

/// How rows are normalised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NormKind {
    /// `(x - mean) / sqrt(variance + eps)`, the variance over all of the row.
    Layer,
    /// `x / sqrt(mean of squares + eps)`.
    Rms,
}

/// The parameters of one norm node: `out = normed * gamma + beta`.
#[derive(Debug, Clone, Copy)]
pub struct NormParams<'a> {
    /// The kind of norm.
    pub norm: NormKind,
    /// Added under the square root.
    pub eps: f32,
    /// `width` factors, or none.
    pub gamma: Option<&'a [f32]>,
    /// `width` terms, or none.
    pub beta: Option<&'a [f32]>,
}

/// Normalises each row of `x`, after adding `residual` if there is one. `x`, `residual` and `out` hold the same rows of
/// `width` values.
///
/// # Errors
/// Names the slice whose length does not fit; nothing was written then.
pub fn norm_rows(
    level: Level,
    params: &NormParams<'_>,
    width: usize,
    x: &[f32],
    residual: Option<&[f32]>,
    out: &mut [f32],
) -> Result<(), ShapeError> {
    exactly("out", x.len(), out.len())?;
    check(params, width, x.len(), residual)?;
    // SAFETY: `check` compared all lengths.
    unsafe { dispatch(level, NormRows { params, width, x: Some(x), residual, out }) };
    Ok(())
}

/// Like [`norm_rows`], with `x` as the output too.
///
/// # Errors
/// Names the slice whose length does not fit; nothing was written then.
pub fn norm_rows_in_place(
    level: Level,
    params: &NormParams<'_>,
    width: usize,
    x: &mut [f32],
    residual: Option<&[f32]>,
) -> Result<(), ShapeError> {
    check(params, width, x.len(), residual)?;
    // SAFETY: `check` compared all lengths.
    unsafe { dispatch(level, NormRows { params, width, x: None, residual, out: x }) };
    Ok(())
}

/// `out = e^x / sum of e^x` over each row. A row of -inf only gives equal shares.
///
/// # Errors
/// Names the slice whose length does not fit; nothing was written then.
pub fn softmax_rows(level: Level, width: usize, x: &[f32], out: &mut [f32]) -> Result<(), ShapeError> {
    rows_of("x", x.len(), width)?;
    exactly("out", x.len(), out.len())?;
    // SAFETY: all memory is accessed through slices.
    unsafe { dispatch(level, SoftmaxRows { width, x, out }) };
    Ok(())
}

fn check(params: &NormParams<'_>, width: usize, len: usize, residual: Option<&[f32]>) -> Result<(), ShapeError> {
    rows_of("x", len, width)?;
    residual.map_or(Ok(()), |r| exactly("residual", len, r.len()))?;
    params.gamma.map_or(Ok(()), |g| exactly("gamma", width, g.len()))?;
    params.beta.map_or(Ok(()), |b| exactly("beta", width, b.len()))
}

struct NormRows<'a> {
    params: &'a NormParams<'a>,
    width: usize,
    /// `None` if `out` already holds it.
    x: Option<&'a [f32]>,
    residual: Option<&'a [f32]>,
    out: &'a mut [f32],
}

impl Kernel for NormRows<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let NormRows { params, width, x, residual, out } = self;
        for (i, row) in out.chunks_exact_mut(width).enumerate() {
            let part = i * width..(i + 1) * width;
            let to = row.as_mut_ptr();
            // SAFETY: all slices have the same rows, gamma and beta one row; the caller guarantees the level.
            unsafe {
                // the row is copied to `out` first, where it stays in the first-level cache for the later passes
                let from = x.map_or(to.cast_const(), |x| x[part.clone()].as_ptr());
                let sum = match residual {
                    Some(r) => over::<S, _>(width, AddInto { a: from, b: r[part].as_ptr(), to }),
                    None if x.is_some() || params.norm == NormKind::Layer => over::<S, _>(width, CopyInto { from, to }),
                    None => 0.0,
                };
                let mean = if params.norm == NormKind::Layer { sum / width as f32 } else { 0.0 };
                let (rest, squares) = deviations::<S>(to, width, mean);
                // the rounding error of the mean; at a mean of 20 and small deviations it dominates the error
                let rest = if params.norm == NormKind::Layer { rest / width as f32 } else { 0.0 };
                let factor = 1.0 / (squares / width as f32 - rest * rest + params.eps).sqrt();
                let gamma = params.gamma.map_or(std::ptr::null(), <[f32]>::as_ptr);
                let beta = params.beta.map_or(std::ptr::null(), <[f32]>::as_ptr);
                over::<S, _>(width, NormPass { to, mean, rest, factor, gamma, beta });
            }
        }
    }
}

struct SoftmaxRows<'a> {
    width: usize,
    x: &'a [f32],
    out: &'a mut [f32],
}

impl Kernel for SoftmaxRows<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let SoftmaxRows { width, x, out } = self;
        for (from, row) in x.chunks_exact(width).zip(out.chunks_exact_mut(width)) {
            // SAFETY: both rows have `width` values; the caller guarantees the level.
            unsafe {
                let mut most = S::splat(f32::MIN);
                let mut wholes = from.chunks_exact(S::LANES);
                for part in wholes.by_ref() {
                    most = S::max(most, S::load_slice(part));
                }
                let most = wholes.remainder().iter().fold(S::largest(most), |m, &x| m.max(x));
                let to = row.as_mut_ptr();
                let sum = over::<S, _>(width, Exponentials { from: from.as_ptr(), to, most });
                let finish =
                    NormPass { to, mean: 0.0, rest: 0.0, factor: 1.0 / sum, gamma: std::ptr::null(), beta: std::ptr::null() };
                over::<S, _>(width, finish);
            }
        }
    }
}

/// One pass over a row: processes the `n` lanes from `i` on, and returns what to add to the sum (0 in the lanes past
/// `n`).
trait Pass: Copy {
    unsafe fn at<S: Simd>(self, i: usize, n: usize) -> S::V;
}

/// Runs a pass over a row with four independent sums; returns their total.
///
/// # Safety
/// The pass's pointers are valid for `width` values.
#[inline(always)]
unsafe fn over<S: Simd, P: Pass>(width: usize, pass: P) -> f32 {
    // SAFETY: guaranteed by the caller; `n` never reaches past the row.
    unsafe {
        let mut acc = [S::splat(0.0); 4];
        let mut i = 0;
        while i + 4 * S::LANES <= width {
            for (j, acc) in acc.iter_mut().enumerate() {
                *acc = S::add(*acc, pass.at::<S>(i + j * S::LANES, S::LANES));
            }
            i += 4 * S::LANES;
        }
        while i < width {
            acc[0] = S::add(acc[0], pass.at::<S>(i, (width - i).min(S::LANES)));
            i += S::LANES;
        }
        S::sum(total::<S>(acc))
    }
}

/// Reads `n` lanes.
#[inline(always)]
unsafe fn get<S: Simd>(from: *const f32, n: usize) -> S::V {
    // SAFETY: guaranteed by the caller.
    unsafe { if n >= S::LANES { S::load(from) } else { S::load_n(from, n) } }
}

/// Writes `n` lanes.
#[inline(always)]
unsafe fn put<S: Simd>(to: *mut f32, n: usize, v: S::V) {
    // SAFETY: guaranteed by the caller.
    unsafe { if n >= S::LANES { S::store(to, v) } else { S::store_n(to, n, v) } }
}

/// `x` in the first `n` lanes, 0 in the others.
#[inline(always)]
unsafe fn some<S: Simd>(x: f32, n: usize) -> S::V {
    static ONES: [f32; 16] = [1.0; 16];
    // SAFETY: no vector has more than 16 lanes.
    unsafe { if n >= S::LANES { S::splat(x) } else { S::mul(S::splat(x), S::load_n(ONES.as_ptr(), n)) } }
}

/// `to = a + b`, summed.
#[derive(Clone, Copy)]
struct AddInto {
    a: *const f32,
    b: *const f32,
    to: *mut f32,
}

impl Pass for AddInto {
    #[inline(always)]
    unsafe fn at<S: Simd>(self, i: usize, n: usize) -> S::V {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let v = S::add(get::<S>(self.a.add(i), n), get::<S>(self.b.add(i), n));
            put::<S>(self.to.add(i), n, v);
            v
        }
    }
}

/// `to = from`, summed.
#[derive(Clone, Copy)]
struct CopyInto {
    from: *const f32,
    to: *mut f32,
}

impl Pass for CopyInto {
    #[inline(always)]
    unsafe fn at<S: Simd>(self, i: usize, n: usize) -> S::V {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let v = get::<S>(self.from.add(i), n);
            put::<S>(self.to.add(i), n, v);
            v
        }
    }
}

/// Sums of `from - mean` and of its square.
#[inline(always)]
unsafe fn deviations<S: Simd>(from: *const f32, width: usize, mean: f32) -> (f32, f32) {
    // SAFETY: the caller guarantees `width` values; `n` never reaches past them.
    unsafe {
        let (mut sum, mut square) = ([S::splat(0.0); 4], [S::splat(0.0); 4]);
        let mut i = 0;
        while i + 4 * S::LANES <= width {
            for j in 0..4 {
                let v = S::sub(S::load(from.add(i + j * S::LANES)), S::splat(mean));
                sum[j] = S::add(sum[j], v);
                square[j] = S::fma(v, v, square[j]);
            }
            i += 4 * S::LANES;
        }
        while i < width {
            let n = (width - i).min(S::LANES);
            let v = S::sub(get::<S>(from.add(i), n), some::<S>(mean, n));
            sum[0] = S::add(sum[0], v);
            square[0] = S::fma(v, v, square[0]);
            i += S::LANES;
        }
        (S::sum(total::<S>(sum)), S::sum(total::<S>(square)))
    }
}

/// The sum of four vectors.
#[inline(always)]
unsafe fn total<S: Simd>(v: [S::V; 4]) -> S::V {
    // SAFETY: arithmetic only.
    unsafe { S::add(S::add(v[0], v[1]), S::add(v[2], v[3])) }
}

/// `to = e^(from - most)`, summed.
#[derive(Clone, Copy)]
struct Exponentials {
    from: *const f32,
    to: *mut f32,
    most: f32,
}

impl Pass for Exponentials {
    #[inline(always)]
    unsafe fn at<S: Simd>(self, i: usize, n: usize) -> S::V {
        // SAFETY: guaranteed by the caller; lanes past `n` are subtracted from the sum again.
        unsafe {
            let x = S::max(S::splat(f32::MIN), get::<S>(self.from.add(i), n));
            let v = exp::<S>(S::sub(x, S::splat(self.most)));
            put::<S>(self.to.add(i), n, v);
            if n >= S::LANES { v } else { get::<S>(self.to.add(i), n) }
        }
    }
}

/// `to = (to - mean - rest) * factor * gamma + beta`; null gamma is 1, null beta 0.
#[derive(Clone, Copy)]
struct NormPass {
    to: *mut f32,
    mean: f32,
    rest: f32,
    factor: f32,
    gamma: *const f32,
    beta: *const f32,
}

impl Pass for NormPass {
    #[inline(always)]
    unsafe fn at<S: Simd>(self, i: usize, n: usize) -> S::V {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let to = self.to.add(i);
            let centred = S::sub(S::sub(get::<S>(to, n), S::splat(self.mean)), S::splat(self.rest));
            let mut v = S::mul(centred, S::splat(self.factor));
            match (self.gamma.is_null(), self.beta.is_null()) {
                (true, true) => {}
                (false, true) => v = S::mul(v, get::<S>(self.gamma.add(i), n)),
                (true, false) => v = S::add(v, get::<S>(self.beta.add(i), n)),
                (false, false) => v = S::fma(v, get::<S>(self.gamma.add(i), n), get::<S>(self.beta.add(i), n)),
            }
            put::<S>(to, n, v);
            S::splat(0.0)
        }
    }
}
