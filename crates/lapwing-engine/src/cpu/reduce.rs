//! Reductions: over the width of each row to one value, and over the tokens of each sequence to one row. A thread
//! passes the slice of its own rows; nothing is allocated. Sums over a row keep many partial sums; sums over tokens
//! keep one for each column.

use std::ops::Range;

use super::dispatch::dispatch;
use super::level::Level;
use super::shape::{ShapeError, at_least, exactly, inside, ragged};
use super::simd::{Kernel, Simd};
use lapwing_plan::plan;

/// A reduction over the width of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowReduce {
    /// The sum.
    Sum,
    /// The sum divided by the width.
    Mean,
    /// The largest value.
    Max,
    /// The smallest value.
    Min,
    /// The sum of squares.
    SumSquare,
}

/// A reduction over the tokens of a sequence, column by column. A sequence without tokens gives zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenReduce {
    /// The sum.
    Sum,
    /// The sum divided by the number of tokens.
    Mean,
    /// The largest value.
    Max,
    /// The smallest value.
    Min,
    /// The first token's row (the class token of BERT-like models).
    First,
}

/// `out[r] = reduction of row r of x`; as many rows as `out` has values.
///
/// # Errors
/// `x` does not hold `out.len()` rows of `width`, or `width` is 0; nothing was written then.
pub fn reduce_rows(level: Level, reduce: RowReduce, width: usize, x: &[f32], out: &mut [f32]) -> Result<(), ShapeError> {
    at_least("width", 1, width)?;
    exactly("x", out.len().saturating_mul(width), x.len())?;
    // SAFETY: all memory is accessed through slices.
    unsafe { dispatch(level, Rows { reduce, width, x, out }) };
    Ok(())
}

/// `out[s - sequences.start] = reduction over the tokens of sequence s`; `x` is the whole batch, [tokens, width].
///
/// # Errors
/// Names the argument that does not fit; nothing was written then.
pub fn reduce_tokens(
    level: Level,
    reduce: TokenReduce,
    width: usize,
    offsets: &[usize],
    sequences: Range<usize>,
    x: &[f32],
    out: &mut [f32],
) -> Result<(), ShapeError> {
    let (count, tokens) = ragged(offsets)?;
    inside("sequences", &sequences, count)?;
    at_least("width", 1, width)?;
    exactly("x", tokens.saturating_mul(width), x.len())?;
    exactly("out", sequences.len().saturating_mul(width), out.len())?;
    // SAFETY: all memory is accessed through slices.
    unsafe { dispatch(level, Tokens { reduce, width, offsets: &offsets[sequences.start..=sequences.end], x, out }) };
    Ok(())
}

/// Folds one row to one value.
///
/// # Safety
/// The processor has the level's instructions.
#[inline(always)]
pub(crate) unsafe fn fold_row<S: Simd>(fold: plan::Fold, row: &[f32]) -> f32 {
    // SAFETY: slices and arithmetic only; the caller guarantees the level.
    unsafe {
        match fold {
            plan::Fold::Sum => self::fold::<S, Sum>(row),
            plan::Fold::Mean => self::fold::<S, Sum>(row) / row.len() as f32,
            plan::Fold::Max => self::fold::<S, Max>(row),
            plan::Fold::Min => self::fold::<S, Min>(row),
            plan::Fold::First => row.first().copied().unwrap_or(0.0),
        }
    }
}

struct Rows<'a> {
    reduce: RowReduce,
    width: usize,
    x: &'a [f32],
    out: &'a mut [f32],
}

impl Kernel for Rows<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Rows { reduce, width, x, out } = self;
        for (row, out) in x.chunks_exact(width).zip(out) {
            // SAFETY: slices and arithmetic only; the caller guarantees the level.
            *out = unsafe {
                match reduce {
                    RowReduce::Sum => fold::<S, Sum>(row),
                    RowReduce::Mean => fold::<S, Sum>(row) / width as f32,
                    RowReduce::Max => fold::<S, Max>(row),
                    RowReduce::Min => fold::<S, Min>(row),
                    RowReduce::SumSquare => fold::<S, SumSquare>(row),
                }
            };
        }
    }
}

/// How two partial results are combined.
trait Fold {
    const START: f32;
    unsafe fn join<S: Simd>(a: S::V, b: S::V) -> S::V;
    unsafe fn take<S: Simd>(a: S::V, x: S::V) -> S::V;
    unsafe fn across<S: Simd>(a: S::V) -> f32;
    fn one(a: f32, x: f32) -> f32;
}

macro_rules! folds {
    ($($name:ident: $start:expr, $join:ident($a:ident, $x:ident) = $take:expr, $across:ident, $one:expr;)+) => {$(
        struct $name;
        impl Fold for $name {
            const START: f32 = $start;
            #[inline(always)]
            unsafe fn join<S: Simd>(a: S::V, b: S::V) -> S::V {
                // SAFETY: arithmetic only; the caller guarantees the level.
                unsafe { S::$join(a, b) }
            }
            #[inline(always)]
            unsafe fn take<S: Simd>($a: S::V, $x: S::V) -> S::V {
                // SAFETY: arithmetic only; the caller guarantees the level.
                unsafe { $take }
            }
            #[inline(always)]
            unsafe fn across<S: Simd>(a: S::V) -> f32 {
                // SAFETY: arithmetic only; the caller guarantees the level.
                unsafe { S::$across(a) }
            }
            #[inline(always)]
            fn one($a: f32, $x: f32) -> f32 {
                $one
            }
        }
    )+};
}

folds! {
    Sum: 0.0, add(a, x) = S::add(a, x), sum, a + x;
    SumSquare: 0.0, add(a, x) = S::fma(x, x, a), sum, a + x * x;
    Max: f32::NEG_INFINITY, max(a, x) = S::max(a, x), largest, a.max(x);
    Min: f32::INFINITY, min(a, x) = S::min(a, x), least, a.min(x);
}

#[inline(always)]
unsafe fn fold<S: Simd, F: Fold>(row: &[f32]) -> f32 {
    // SAFETY: slices and arithmetic only; the caller guarantees the level.
    unsafe {
        let mut acc = [S::splat(F::START); 4];
        let mut blocks = row.chunks_exact(4 * S::LANES);
        for block in blocks.by_ref() {
            for (acc, part) in acc.iter_mut().zip(block.chunks_exact(S::LANES)) {
                *acc = F::take::<S>(*acc, S::load_slice(part));
            }
        }
        let mut vectors = blocks.remainder().chunks_exact(S::LANES);
        for part in vectors.by_ref() {
            acc[0] = F::take::<S>(acc[0], S::load_slice(part));
        }
        let all = F::across::<S>(F::join::<S>(F::join::<S>(acc[0], acc[1]), F::join::<S>(acc[2], acc[3])));
        vectors.remainder().iter().fold(all, |a, &x| F::one(a, x))
    }
}

struct Tokens<'a> {
    reduce: TokenReduce,
    width: usize,
    offsets: &'a [usize],
    x: &'a [f32],
    out: &'a mut [f32],
}

impl Kernel for Tokens<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Tokens { reduce, width, offsets, x, out } = self;
        for (span, out) in offsets.windows(2).zip(out.chunks_exact_mut(width)) {
            let rows = &x[span[0] * width..span[1] * width];
            if rows.is_empty() {
                out.fill(0.0);
                continue;
            }
            // SAFETY: slices and arithmetic only; the caller guarantees the level.
            unsafe {
                match reduce {
                    TokenReduce::Sum => columns::<S, Sum>(rows, 1.0, out),
                    TokenReduce::Mean => columns::<S, Sum>(rows, (span[1] - span[0]) as f32, out),
                    TokenReduce::Max => columns::<S, Max>(rows, 1.0, out),
                    TokenReduce::Min => columns::<S, Min>(rows, 1.0, out),
                    TokenReduce::First => out.copy_from_slice(&rows[..width]),
                }
            }
        }
    }
}

/// Folds all rows to one, four vectors of columns at a time so that the sums stay in registers, and divides.
#[inline(always)]
unsafe fn columns<S: Simd, F: Fold>(rows: &[f32], divisor: f32, out: &mut [f32]) {
    let width = out.len();
    for (i, to) in out.chunks_mut(4 * S::LANES).enumerate() {
        let from = i * 4 * S::LANES;
        // SAFETY: slices and arithmetic only; the caller guarantees the level.
        unsafe {
            let divisor = S::splat(divisor);
            let mut acc = [S::splat(F::START); 4];
            for row in rows.chunks_exact(width) {
                let part = &row[from..from + to.len()];
                if part.len() == 4 * S::LANES {
                    for (j, acc) in acc.iter_mut().enumerate() {
                        *acc = F::take::<S>(*acc, S::load(part.as_ptr().add(j * S::LANES)));
                    }
                } else {
                    for (acc, part) in acc.iter_mut().zip(part.chunks(S::LANES)) {
                        *acc = F::take::<S>(*acc, S::load_slice(part));
                    }
                }
            }
            for (acc, to) in acc.into_iter().zip(to.chunks_mut(S::LANES)) {
                S::store_slice(to, S::div(acc, divisor));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn noise(len: usize, seed: u32) -> Vec<f32> {
        (0..len).map(|i| ((i as f32 * 0.71 + (seed % 1000) as f32).sin() * 43_758.547).fract() * 3.0 - 0.5).collect()
    }

    fn close(y: f32, r: f64) {
        assert!((f64::from(y) - r).abs() <= 1e-5 + 1e-5 * r.abs(), "{y}, not {r}");
    }

    proptest! {
        #[test]
        fn rows_agree_with_f64(width in prop_oneof![1usize..140, Just(2049)], rows in 0usize..5, seed in any::<u32>()) {
            let x = noise(rows * width, seed);
            for level in Level::available() {
                for reduce in [RowReduce::Sum, RowReduce::Mean, RowReduce::Max, RowReduce::Min, RowReduce::SumSquare] {
                    let mut out = vec![f32::NAN; rows];
                    reduce_rows(level, reduce, width, &x, &mut out).unwrap();
                    for (row, &y) in x.chunks(width).zip(&out) {
                        let row = row.iter().map(|&x| f64::from(x));
                        close(y, match reduce {
                            RowReduce::Sum => row.sum(),
                            RowReduce::Mean => row.sum::<f64>() / width as f64,
                            RowReduce::Max => row.fold(f64::MIN, f64::max),
                            RowReduce::Min => row.fold(f64::MAX, f64::min),
                            RowReduce::SumSquare => row.map(|x| x * x).sum(),
                        });
                    }
                }
            }
        }

        #[test]
        fn tokens_agree_with_f64(width in 1usize..140, lengths in prop::collection::vec(0usize..9, 1..6), seed in any::<u32>()) {
            let mut offsets = vec![0];
            offsets.extend(lengths.iter().scan(0, |sum, n| { *sum += n; Some(*sum) }));
            let x = noise(offsets[lengths.len()] * width, seed);
            let from = seed as usize % lengths.len();
            for level in Level::available() {
                for reduce in [TokenReduce::Sum, TokenReduce::Mean, TokenReduce::Max, TokenReduce::Min, TokenReduce::First] {
                    let mut out = vec![f32::NAN; (lengths.len() - from) * width];
                    reduce_tokens(level, reduce, width, &offsets, from..lengths.len(), &x, &mut out).unwrap();
                    for (s, c) in (from..lengths.len()).flat_map(|s| (0..width).map(move |c| (s, c))) {
                        let column = (offsets[s]..offsets[s + 1]).map(|t| f64::from(x[t * width + c]));
                        let want = match reduce {
                            _ if lengths[s] == 0 => 0.0,
                            TokenReduce::Sum => column.sum(),
                            TokenReduce::Mean => column.sum::<f64>() / lengths[s] as f64,
                            TokenReduce::Max => column.fold(f64::MIN, f64::max),
                            TokenReduce::Min => column.fold(f64::MAX, f64::min),
                            TokenReduce::First => f64::from(x[offsets[s] * width + c]),
                        };
                        close(out[(s - from) * width + c], want);
                    }
                }
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        assert!(reduce_rows(Level::best(), RowReduce::Sum, 0, &[], &mut []).is_err());
        assert!(reduce_rows(Level::best(), RowReduce::Sum, 2, &[1.0; 5], &mut [0.0; 2]).is_err());
        let run = |offsets: &[usize], range, n: usize| {
            reduce_tokens(Level::best(), TokenReduce::Max, 2, offsets, range, &[1.0; 6], &mut vec![0.0; n])
        };
        assert_eq!(run(&[0, 1, 3], 0..2, 4), Ok(()));
        assert!(run(&[0, 1, 3], 0..2, 3).is_err());
        assert!(run(&[0, 1, 4], 0..2, 4).is_err());
        assert!(run(&[0, 1, 3], 1..3, 4).is_err());
    }
}
