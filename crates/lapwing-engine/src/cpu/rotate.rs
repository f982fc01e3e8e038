//! Rotates the columns of heads by the tokens' positions, or by angles of each token. Nothing is allocated.

use std::ops::Range;

use super::attention::HeadColumns;
use super::dispatch::dispatch;
use super::level::Level;
use super::shape::{ShapeError, at_least, exactly, inside, ragged};
use super::simd::{Kernel, Simd};

/// The heads' columns that are rotated.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RotatedHeads {
    /// Number of heads.
    pub(crate) heads: usize,
    /// Columns of a head, an even number.
    pub(crate) head_size: usize,
    /// Whether there is a row of cosines and sines for each token of the batch, instead of one for each position.
    pub(crate) is_by_token: bool,
}

/// `out[c] = x[c] · cos[p][c] + turned[c] · sin[p][c]` for each column c of each head, where p is the token's position in its sequence,
/// or in the batch if `is_by_token`, and `turned` is the head with its halves swapped and the then first one negated. `out` has the given
/// rows of the batch.
///
/// # Errors
/// Names the argument that does not fit; nothing was written then.
pub(crate) fn rotate(
    level: Level,
    shape: RotatedHeads,
    offsets: &[usize],
    x: HeadColumns<'_>,
    [cos, sin]: [&[f32]; 2],
    rows: Range<usize>,
    out: &mut [f32],
) -> Result<(), ShapeError> {
    let (_, tokens) = ragged(offsets)?;
    inside("rows", &rows, tokens)?;
    let width = shape.heads.saturating_mul(shape.head_size);
    if x.offset.saturating_add(width) > x.stride {
        return Err(ShapeError::Columns { what: "x", need: x.offset.saturating_add(width), got: x.stride });
    }
    at_least("x", tokens.saturating_mul(x.stride), x.data.len())?;
    exactly("out", rows.len().saturating_mul(width), out.len())?;
    exactly("columns of a head beyond pairs", 0, shape.head_size % 2)?;
    let longest = offsets.windows(2).map(|ends| ends[1] - ends[0]).max().unwrap_or(0);
    let longest = if shape.is_by_token { tokens } else { longest };
    at_least("cosines", longest.saturating_mul(shape.head_size), cos.len())?;
    at_least("sines", longest.saturating_mul(shape.head_size), sin.len())?;
    // SAFETY: all memory is accessed through slices.
    unsafe { dispatch(level, Rotate { shape, offsets, x, tables: [cos, sin], rows, out }) };
    Ok(())
}

struct Rotate<'a> {
    shape: RotatedHeads,
    offsets: &'a [usize],
    x: HeadColumns<'a>,
    tables: [&'a [f32]; 2],
    rows: Range<usize>,
    out: &'a mut [f32],
}

impl Kernel for Rotate<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Self { shape: RotatedHeads { heads, head_size, is_by_token }, offsets, x, tables, rows, out } = self;
        let width = heads * head_size;
        if width == 0 {
            return;
        }
        // the sequence of the first row
        let mut sequence = offsets.partition_point(|offset| *offset <= rows.start).saturating_sub(1);
        for (row, out) in rows.zip(out.chunks_exact_mut(width)) {
            while offsets[sequence + 1] <= row {
                sequence += 1;
            }
            let at = if is_by_token { row } else { row - offsets[sequence] } * head_size;
            let [cos, sin] = tables.map(|table| &table[at..at + head_size]);
            let x = &x.data[row * x.stride + x.offset..][..width];
            for (out, x) in out.chunks_exact_mut(head_size).zip(x.chunks_exact(head_size)) {
                let (first, second) = x.split_at(head_size / 2);
                let (to_first, to_second) = out.split_at_mut(head_size / 2);
                let (cos_first, cos_second) = cos.split_at(head_size / 2);
                let (sin_first, sin_second) = sin.split_at(head_size / 2);
                // SAFETY: slices and arithmetic only; the caller guarantees the level.
                unsafe {
                    half::<S>(to_first, first, second, cos_first, sin_first, -1.0);
                    half::<S>(to_second, second, first, cos_second, sin_second, 1.0);
                }
            }
        }
    }
}

/// `to = x · cos + sign · other · sin`, all of one length.
#[inline(always)]
unsafe fn half<S: Simd>(to: &mut [f32], x: &[f32], other: &[f32], cos: &[f32], sin: &[f32], sign: f32) {
    let lanes = S::LANES;
    let parts = to.chunks_mut(lanes).zip(x.chunks(lanes)).zip(other.chunks(lanes)).zip(cos.chunks(lanes)).zip(sin.chunks(lanes));
    for ((((to, x), other), cos), sin) in parts {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let turned = S::mul(S::mul(S::load_slice(other), S::splat(sign)), S::load_slice(sin));
            S::store_slice(to, S::fma(S::load_slice(x), S::load_slice(cos), turned));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_rotates_as_defined() {
        for (heads, head_size) in [(1, 2), (3, 10), (2, 64), (4, 22)] {
            let (offsets, stride, width) = ([0, 1, 1, 6, 13], heads * head_size + 5, heads * head_size);
            let number = |at: usize| (at as f32 * 0.7).sin();
            let data: Vec<f32> = (0..13 * stride).map(number).collect();
            let [cos, sin] = [1, 2].map(|by| (0..13 * head_size).map(|at| number(at * by + 3)).collect::<Vec<f32>>());
            let x = HeadColumns { data: &data, offset: 3, stride };
            let cases = Level::available()
                .into_iter()
                .flat_map(|level| [(level, 0..13, false), (level, 3..9, false), (level, 3..7, true)]);
            for (level, rows, is_by_token) in cases {
                let mut out = vec![0.0; rows.len() * width];
                rotate(level, RotatedHeads { heads, head_size, is_by_token }, &offsets, x, [&cos, &sin], rows.clone(), &mut out)
                    .unwrap();
                for (index, got) in out.iter().enumerate() {
                    let (row, column) = (rows.start + index / width, index % width);
                    let position = row - offsets.iter().rfind(|offset| **offset <= row).unwrap();
                    let (c, half) = (column % head_size, head_size / 2);
                    let of = |c: usize| f64::from(data[row * stride + 3 + column / head_size * head_size + c]);
                    let turned = if c < half { -of(c + half) } else { of(c - half) };
                    let at = if is_by_token { row } else { position } * head_size + c;
                    let want = of(c) * f64::from(cos[at]) + turned * f64::from(sin[at]);
                    assert!((f64::from(*got) - want).abs() < 1e-6, "{level:?} row {row} column {column}: {got}, not {want}");
                }
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let (data, table) = (vec![0.0; 12], vec![0.0; 12]);
        let run = |head_size, offsets: &[usize], table: &[f32], rows: Range<usize>| {
            let x = HeadColumns { data: &data, offset: 0, stride: 4 };
            rotate(
                Level::best(),
                RotatedHeads { heads: 1, head_size, is_by_token: false },
                offsets,
                x,
                [table, table],
                rows,
                &mut [0.0; 12],
            )
        };
        assert_eq!(run(4, &[0, 3], &table, 0..3), Ok(()));
        assert!(run(3, &[0, 3], &table, 0..3).is_err(), "an odd head");
        assert!(run(4, &[0, 3], &table[1..], 0..3).is_err(), "positions beyond the table");
        assert!(run(4, &[0, 3], &table, 0..2).is_err(), "fewer rows than the output has");
        assert!(run(4, &[0, 4], &table, 0..3).is_err(), "fewer rows of x than tokens");
        assert!(run(6, &[0, 2], &table, 0..2).is_err(), "wider than a row of x");
    }
}
