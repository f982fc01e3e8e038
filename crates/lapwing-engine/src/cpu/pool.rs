//! Mean over the unmasked tokens of each sequence, and cumulative sums over tokens. Nothing is allocated.

use super::dispatch::dispatch;
use super::level::Level;
use super::map::ArgData;
use super::shape::{ShapeError, at_least, exactly, ragged};
use super::simd::{Kernel, Simd};

/// `out[s] = Σ weight · x / max(Σ weight, least)` over the tokens of each sequence; `x` is [tokens, width], and each
/// token has a weight.
///
/// # Errors
/// Names the argument that does not fit; nothing was written then.
pub fn mean_pool(
    level: Level,
    width: usize,
    offsets: &[usize],
    x: &[f32],
    weights: ArgData<'_>,
    least: f32,
    out: &mut [f32],
) -> Result<(), ShapeError> {
    let (count, tokens) = ragged(offsets)?;
    at_least("width", 1, width)?;
    exactly("x", tokens.saturating_mul(width), x.len())?;
    exactly("weights", tokens, weights.len())?;
    exactly("out", count.saturating_mul(width), out.len())?;
    // SAFETY: all memory is accessed through slices.
    unsafe { dispatch(level, MeanPool { width, offsets, x, weights, least, out }) };
    Ok(())
}

/// `out[t] = Σ x` over the tokens of its sequence up to `t`. Elements behind the last whole row of a sequence are left
/// as they are.
pub fn cum_sum(width: usize, offsets: &[usize], x: &[f32], out: &mut [f32]) {
    for ends in offsets.windows(2) {
        for at in ends[0] * width..ends[1] * width {
            let before = if at < (ends[0] + 1) * width { 0.0 } else { out[at - width] };
            out[at] = before + x[at];
        }
    }
}

struct MeanPool<'a> {
    width: usize,
    offsets: &'a [usize],
    x: &'a [f32],
    weights: ArgData<'a>,
    least: f32,
    out: &'a mut [f32],
}

impl Kernel for MeanPool<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Self { width, offsets, x, weights, least, out } = self;
        for (ends, out) in offsets.windows(2).zip(out.chunks_exact_mut(width)) {
            out.fill(0.0);
            let mut sum = 0.0;
            for token in ends[0]..ends[1] {
                let mut weight = [0.0];
                weights.read(token, &mut weight);
                sum += weight[0];
                let row = &x[token * width..(token + 1) * width];
                // SAFETY: slices and arithmetic only; the caller guarantees the level.
                unsafe { add_times::<S>(out, row, weight[0]) };
            }
            let share = 1.0 / sum.max(least);
            out.iter_mut().for_each(|sum| *sum *= share);
        }
    }
}

/// `to += x · factor`.
#[inline(always)]
unsafe fn add_times<S: Simd>(to: &mut [f32], x: &[f32], factor: f32) {
    for (to, x) in to.chunks_mut(S::LANES).zip(x.chunks(S::LANES)) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let sum = S::fma(S::load_slice(x), S::splat(factor), S::load_slice(to));
            S::store_slice(to, sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masked_tokens_do_not_count_and_empty_masks_give_zeros() {
        for level in Level::available() {
            for width in [1, 5, 16, 33] {
                let offsets = [0, 3, 4, 6];
                let x: Vec<f32> = (0..6 * width).map(|i| (i as f32 * 0.7).sin()).collect();
                let mask = [1_i64, 0, 1, 1, 0, 0];
                let mut out = vec![f32::NAN; 3 * width];
                mean_pool(level, width, &offsets, &x, ArgData::I64(&mask), 1e-9, &mut out).unwrap();
                for column in 0..width {
                    let expected = [(x[column] + x[2 * width + column]) / 2.0, x[3 * width + column], 0.0];
                    for (sequence, expected) in expected.into_iter().enumerate() {
                        assert!((out[sequence * width + column] - expected).abs() < 1e-6, "{level:?} {width} {sequence}");
                    }
                }
                let short = mean_pool(level, width, &offsets, &x, ArgData::I64(&mask[1..]), 1e-9, &mut out);
                assert!(short.is_err());
            }
        }
    }
}
