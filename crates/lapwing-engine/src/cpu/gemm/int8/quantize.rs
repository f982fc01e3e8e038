//! Quantises rows of f32 to unsigned bytes, in the order in which the tiles read them: the rows of a tile are
//! interleaved word by word.

use super::super::super::dispatch::dispatch;
use super::super::super::simd::{Kernel, Simd};
use super::super::driver::even_part;
use super::super::shape::{GemmError, MatrixRows, check_len, check_rows};
use super::super::tile::most_rows;
use super::dot::LevelI8;
use lapwing_plan::exec::RowQuant;

/// Quantised rows, for any number of products with weights of the same level.
#[derive(Debug, Clone, Copy)]
pub struct QuantizedRows<'a> {
    pub(crate) words: &'a [u32],
    pub(crate) params: &'a [RowQuant],
    pub(crate) level: LevelI8,
    pub(crate) k: usize,
}

impl QuantizedRows<'_> {
    /// The quantisation of each row.
    #[must_use]
    pub fn params(&self) -> &[RowQuant] {
        self.params
    }
}

/// The number of u32 words that `rows` rows of `k` values take at `level`.
#[must_use]
pub fn words_len(level: LevelI8, rows: usize, k: usize) -> usize {
    rows * k.div_ceil(level.group())
}

/// Quantises rows of `k` values into `words` (of `words_len`) and `params` (one per row). Dynamic: each row by its own
/// range, widened to contain zero, as ONNX's DynamicQuantizeLinear does for a tensor. Static: `fixed` for all rows;
/// values outside the range saturate.
///
/// # Errors
/// Names a buffer that is too short; nothing is written then.
pub fn quantize_rows<'a>(
    x: MatrixRows<'_>,
    k: usize,
    fixed: Option<RowQuant>,
    level: LevelI8,
    words: &'a mut [u32],
    params: &'a mut [RowQuant],
) -> Result<QuantizedRows<'a>, GemmError> {
    let level = level.runnable();
    check_rows("input", x.values.len(), x.count, x.stride, k)?;
    check_len("words", words.len(), words_len(level, x.count, k))?;
    check_len("row parameters", params.len(), x.count)?;
    let depth = k.div_ceil(level.group());
    let most = most_rows(level.floats());
    let (mut row, mut at) = (0, 0);
    while row < x.count {
        let rows = even_part(x.count - row, most);
        for (lane, param) in params.iter_mut().skip(row).take(rows).enumerate() {
            let from = x.values.as_ptr().wrapping_add((row + lane) * x.stride);
            let to = words.as_mut_ptr().wrapping_add(at + lane);
            let kernel = QuantizeRow { from, k, to, step: rows, group: level.group(), fixed };
            // SAFETY: the row has k values, and the tile's words are `at .. at + rows * depth`, which was checked.
            *param = unsafe { dispatch(level.floats(), kernel) };
        }
        at += rows * depth;
        row += rows;
    }
    Ok(QuantizedRows { words, params: params.get(..x.count).unwrap_or(&[]), level, k })
}

/// Quantises one row into every `step`-th word from `to` on.
#[derive(Clone, Copy)]
struct QuantizeRow {
    from: *const f32,
    k: usize,
    to: *mut u32,
    step: usize,
    group: usize,
    fixed: Option<RowQuant>,
}

impl Kernel for QuantizeRow {
    type Out = RowQuant;

    #[inline(always)]
    unsafe fn run<S: Simd>(self) -> RowQuant {
        // SAFETY: the caller guarantees k values and the words that they take.
        unsafe {
            let quant = match self.fixed {
                Some(quant) => quant,
                None => self.range::<S>(),
            };
            let inverse = S::splat(1.0 / quant.scale);
            let zero = S::splat(quant.zero as f32);
            let mut poison = S::splat(0.0);
            let (mut at, mut to) = (0, self.to);
            while at < self.k {
                let lanes = (self.k - at).min(S::LANES);
                let p = self.from.add(at);
                let x = if lanes == S::LANES { S::load(p) } else { S::load_n(p, lanes) };
                // Zero for every finite x, NaN otherwise.
                poison = S::fma(x, S::splat(0.0), poison);
                // Rounds before adding the zero point: rounding the sum would be off by one at ties.
                let q = S::add(S::round_any(S::mul(x, inverse)), zero);
                let q = S::min(S::splat(255.0), S::max(q, S::splat(0.0)));
                let mut bytes = [0u8; 16];
                S::store_bytes(bytes.as_mut_ptr(), q);
                let mut i = 0;
                while i < lanes {
                    let word = if self.group == 4 {
                        u32::from_ne_bytes([bytes[i], bytes[i + 1], bytes[i + 2], bytes[i + 3]])
                    } else {
                        // Two sixteen-bit values, the first in the low half.
                        u32::from(bytes[i]) | u32::from(bytes[i + 1]) << 16
                    };
                    *to = word;
                    to = to.wrapping_add(self.step);
                    i += self.group;
                }
                at += S::LANES;
            }
            if S::sum(poison).is_nan() { RowQuant { scale: f32::NAN, ..quant } } else { quant }
        }
    }
}

impl QuantizeRow {
    /// Returns scale and zero point from the row's minimum, maximum and zero.
    #[inline(always)]
    unsafe fn range<S: Simd>(self) -> RowQuant {
        // SAFETY: the row has k values.
        unsafe {
            let zero = S::splat(0.0);
            let (mut most, mut least) = (zero, zero);
            let mut at = 0;
            while at < self.k {
                let lanes = (self.k - at).min(S::LANES);
                let p = self.from.add(at);
                let x = if lanes == S::LANES { S::load(p) } else { S::load_n(p, lanes) };
                most = S::max(x, most);
                least = S::min(x, least);
                at += S::LANES;
            }
            let (most, least) = (S::largest(most), -S::largest(S::sub(zero, least)));
            // Divides first, so that a range wider than f32 does not overflow.
            let scale = most / 255.0 - least / 255.0;
            // All zeros, or too small for the inverse to be finite: the row quantises to zero.
            if scale < 1e-36 {
                return RowQuant { scale: 1.0, zero: 0 };
            }
            RowQuant { scale, zero: (-least / scale).round_ties_even().clamp(0.0, 255.0) as i32 }
        }
    }
}
