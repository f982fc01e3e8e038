//! Embeddings: each token's row is the sum of one row from each table. The row is selected by an id, by the token's
//! position in its sequence, or is fixed. Ids are checked against the table as they are read; nothing is allocated
//! unless an id is out of range.

use std::ops::Range;

use super::dispatch::dispatch;
use super::level::Level;
use super::shape::{ShapeError, at_least, exactly, inside, ragged, rows_of};
use super::simd::{Kernel, Simd};
use lapwing_plan::exec::IdError;

/// How the row of a table is selected for a token.
#[derive(Debug, Clone, Copy)]
pub enum RowSelector<'a> {
    /// By one id for each token of the batch; negative ids count from the table's end.
    I64(&'a [i64]),
    /// By one id for each token of the batch; negative ids count from the table's end.
    I32(&'a [i32]),
    /// By one computed id for each token of the batch: a whole number.
    F32(&'a [f32]),
    /// By position: this row for a sequence's first token, the next one for its second, and so on.
    Position(usize),
    /// Always this row.
    Row(usize),
}

/// One summand.
#[derive(Debug, Clone, Copy)]
pub struct Table<'a> {
    /// The table's name in the model, for errors.
    pub name: &'a str,
    /// [rows, width] values.
    pub data: &'a [f32],
    /// How the row is selected.
    pub pick: RowSelector<'a>,
    /// The distance between the ids of neighbouring tokens, in elements.
    pub stride: usize,
}

/// Why an embedding failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EmbedError {
    /// An argument does not fit the others.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// An id is not a row of its table, or a sequence is longer than the table of positions.
    #[error(transparent)]
    Id(#[from] IdError),
}

/// Writes the tokens of a range of sequences: `out[t] = sum of table[pick(t)]`. `out` begins with the range's first
/// token and ends with its last; ids are indexed by the token's index in the whole batch, times the stride.
///
/// # Errors
/// Names the argument that does not fit, or the table, token and value of an id that is out of range. In the second
/// case `out` is partly written.
pub fn embed(
    level: Level,
    tables: &[Table<'_>],
    width: usize,
    offsets: &[usize],
    sequences: Range<usize>,
    out: &mut [f32],
) -> Result<(), EmbedError> {
    let (count, _) = ragged(offsets)?;
    inside("sequences", &sequences, count)?;
    let (first, end) = (offsets[sequences.start], offsets[sequences.end]);
    exactly("out", (end - first).saturating_mul(width), out.len())?;
    let last = |stride: usize| end.checked_sub(1).map_or(0, |token| token.saturating_mul(stride).saturating_add(1));
    for table in tables {
        rows_of("table", table.data.len(), width)?;
        match table.pick {
            RowSelector::I64(ids) => at_least("ids", last(table.stride), ids.len())?,
            RowSelector::I32(ids) => at_least("ids", last(table.stride), ids.len())?,
            RowSelector::F32(ids) => at_least("ids", last(table.stride), ids.len())?,
            RowSelector::Position(_) | RowSelector::Row(_) => {}
        }
    }
    // SAFETY: all memory is accessed through slices.
    unsafe { dispatch(level, Embed { tables, width, offsets, sequences, out }) }
}

impl Table<'_> {
    /// The table row selected for a token.
    #[inline(always)]
    fn row(&self, width: usize, token: usize, position: usize) -> Result<&[f32], EmbedError> {
        let rows = self.data.len() / width;
        let value = match self.pick {
            RowSelector::I64(ids) => ids[token * self.stride],
            RowSelector::I32(ids) => i64::from(ids[token * self.stride]),
            RowSelector::F32(ids) => ids[token * self.stride] as i64,
            RowSelector::Position(start) => i64::try_from(start.saturating_add(position)).unwrap_or(i64::MAX),
            RowSelector::Row(row) => i64::try_from(row).unwrap_or(i64::MAX),
        };
        let row = if value < 0 { value.checked_add_unsigned(rows as u64) } else { Some(value) };
        match row.and_then(|r| usize::try_from(r).ok()) {
            Some(row) if row < rows => Ok(&self.data[row * width..(row + 1) * width]),
            _ => Err(IdError { table: self.name.to_owned(), rows, token, value }.into()),
        }
    }
}

struct Embed<'a> {
    tables: &'a [Table<'a>],
    width: usize,
    offsets: &'a [usize],
    sequences: Range<usize>,
    out: &'a mut [f32],
}

impl Kernel for Embed<'_> {
    type Out = Result<(), EmbedError>;

    #[inline(always)]
    unsafe fn run<S: Simd>(self) -> Self::Out {
        let Embed { tables, width, offsets, sequences, out } = self;
        let mut rows = out.chunks_exact_mut(width.max(1));
        for s in sequences {
            for (position, token) in (offsets[s]..offsets[s + 1]).enumerate() {
                let Some(to) = rows.next() else { break };
                match *tables {
                    [] => to.fill(0.0),
                    [ref one] => to.copy_from_slice(one.row(width, token, position)?),
                    // SAFETY: slices and arithmetic only; the caller guarantees the level.
                    [ref a, ref b] => unsafe {
                        sum2::<S>(to, a.row(width, token, position)?, b.row(width, token, position)?);
                    },
                    [ref a, ref b, ref c, ref more @ ..] => {
                        let from =
                            [a.row(width, token, position)?, b.row(width, token, position)?, c.row(width, token, position)?];
                        // SAFETY: slices and arithmetic only; the caller guarantees the level.
                        unsafe { sum3::<S>(to, from) };
                        for table in more {
                            let row = table.row(width, token, position)?;
                            for (to, x) in to.iter_mut().zip(row) {
                                *to += x;
                            }
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

#[inline(always)]
unsafe fn sum2<S: Simd>(to: &mut [f32], a: &[f32], b: &[f32]) {
    for ((to, a), b) in to.chunks_mut(S::LANES).zip(a.chunks(S::LANES)).zip(b.chunks(S::LANES)) {
        // SAFETY: guaranteed by the caller.
        unsafe { S::store_slice(to, S::add(S::load_slice(a), S::load_slice(b))) };
    }
}

#[inline(always)]
unsafe fn sum3<S: Simd>(to: &mut [f32], [a, b, c]: [&[f32]; 3]) {
    let parts = to.chunks_mut(S::LANES).zip(a.chunks(S::LANES)).zip(b.chunks(S::LANES)).zip(c.chunks(S::LANES));
    for (((to, a), b), c) in parts {
        // SAFETY: guaranteed by the caller.
        unsafe { S::store_slice(to, S::add(S::add(S::load_slice(a), S::load_slice(b)), S::load_slice(c))) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: usize, width: usize, scale: f32) -> Vec<f32> {
        (0..rows * width).map(|i| (i as f32 * scale).sin()).collect()
    }

    #[test]
    fn rows_are_summed_by_id_position_and_constant() {
        for width in [1, 3, 7, 16, 23, 64, 70] {
            let (words, places, kinds) = (table(11, width, 0.1), table(6, width, 0.2), table(2, width, 0.3));
            let (offsets, ids) = ([0, 3, 3, 7], [4i64, -1, 10, 0, -11, 7, 3]);
            let small: Vec<i32> = ids.iter().map(|&i| i as i32).collect();
            let all = [
                Table { name: "words", data: &words, pick: RowSelector::I64(&ids), stride: 1 },
                Table { name: "places", data: &places, pick: RowSelector::Position(2), stride: 1 },
                Table { name: "kinds", data: &kinds, pick: RowSelector::Row(1), stride: 1 },
                Table { name: "again", data: &words, pick: RowSelector::I32(&small), stride: 1 },
            ];
            for (level, n) in Level::available().into_iter().flat_map(|l| (0..=4).map(move |n| (l, n))) {
                let mut out = vec![f32::NAN; 7 * width];
                embed(level, &all[..n], width, &offsets, 0..3, &mut out).unwrap();
                for (token, position) in [0, 1, 2, 0, 1, 2, 3].into_iter().enumerate() {
                    let word = (ids[token] + 11) as usize % 11;
                    for c in 0..width {
                        let parts = [
                            words[word * width + c],
                            places[(position + 2) * width + c],
                            kinds[width + c],
                            words[word * width + c],
                        ];
                        let want: f32 = parts[..n].iter().sum();
                        assert!((out[token * width + c] - want).abs() < 1e-6);
                    }
                }
                let mut part = vec![f32::NAN; 4 * width];
                embed(level, &all[..n], width, &offsets, 2..3, &mut part).unwrap();
                assert_eq!(part, out[3 * width..]);
            }
        }
    }

    #[test]
    fn a_wrong_id_names_table_token_and_value() {
        let data = table(5, 2, 0.1);
        for (value, fine) in [(4, true), (-5, true), (5, false), (-6, false), (i64::MIN, false), (i64::MAX, false)] {
            let one = Table { name: "words", data: &data, pick: RowSelector::I64(&[0, value]), stride: 1 };
            let got = embed(Level::best(), &[one], 2, &[0, 2], 0..1, &mut [0.0; 4]);
            if fine {
                assert_eq!(got, Ok(()));
            } else {
                assert_eq!(got, Err(IdError { table: "words".into(), rows: 5, token: 1, value }.into()));
            }
        }
        let long = Table { name: "places", data: &data, pick: RowSelector::Position(4), stride: 1 };
        let error = embed(Level::best(), &[long], 2, &[0, 2], 0..1, &mut [0.0; 4]).unwrap_err();
        assert_eq!(error.to_string(), "table places has 5 rows, token 1 asks for row 5");
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let data = table(5, 2, 0.1);
        let one = |pick| [Table { name: "t", data: &data, pick, stride: 1 }];
        let run =
            |pick, width, offsets: &[usize], n: usize| embed(Level::best(), &one(pick), width, offsets, 0..1, &mut vec![0.0; n]);
        assert_eq!(run(RowSelector::Row(0), 2, &[0, 2], 4), Ok(()));
        assert!(run(RowSelector::Row(0), 2, &[0, 2], 3).is_err());
        assert!(run(RowSelector::Row(0), 3, &[0, 2], 6).is_err());
        assert!(run(RowSelector::Row(0), 0, &[0, 2], 0).is_err());
        assert!(run(RowSelector::I32(&[1]), 2, &[0, 2], 4).is_err());
        assert!(run(RowSelector::Row(0), 2, &[0], 4).is_err());
    }
}
