//! The checks that all row kernels make before they run: lengths of slices, ranges, and the offsets of a ragged batch.
//! They run once a call, so that no kernel can index out of bounds.

use std::ops::Range;

/// An argument of a kernel does not fit the others.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// A slice has the wrong number of values.
    #[error("{what} holds {got} values, {need} are needed")]
    Length {
        /// The argument.
        what: &'static str,
        /// Number of values required.
        need: usize,
        /// Number of values given.
        got: usize,
    },
    /// A range lies outside of the values that it indexes.
    #[error("range {start}..{end} of {what} does not lie in 0..{len}")]
    Range {
        /// What the range counts.
        what: &'static str,
        /// First of the range.
        start: usize,
        /// One past its last.
        end: usize,
        /// The length.
        len: usize,
    },
    /// The offsets of a ragged batch decrease, or there are none.
    #[error("offset {index} of the batch is lower than the one before it, or there is none")]
    Offsets {
        /// The index of the first wrong one.
        index: usize,
    },
    /// The columns do not fit within the row stride.
    #[error("{what} needs {need} columns, its rows have {got}")]
    Columns {
        /// The argument.
        what: &'static str,
        /// Columns required, including the offset.
        need: usize,
        /// Row stride.
        got: usize,
    },
}

/// Checks that a slice has exactly `need` values.
pub(crate) fn exactly(what: &'static str, need: usize, got: usize) -> Result<(), ShapeError> {
    if need == got { Ok(()) } else { Err(ShapeError::Length { what, need, got }) }
}

/// Checks that a slice has at least `need` values.
pub(crate) fn at_least(what: &'static str, need: usize, got: usize) -> Result<(), ShapeError> {
    if need <= got { Ok(()) } else { Err(ShapeError::Length { what, need, got }) }
}

/// Checks that the range lies in 0..len.
pub(crate) fn inside(what: &'static str, range: &Range<usize>, len: usize) -> Result<(), ShapeError> {
    if range.start <= range.end && range.end <= len {
        Ok(())
    } else {
        Err(ShapeError::Range { what, start: range.start, end: range.end, len })
    }
}

/// Checks that the offsets never decrease; returns the number of sequences and of tokens.
pub(crate) fn ragged(offsets: &[usize]) -> Result<(usize, usize), ShapeError> {
    let Some(last) = offsets.last() else {
        return Err(ShapeError::Offsets { index: 0 });
    };
    match offsets.windows(2).position(|w| w[1] < w[0]) {
        Some(i) => Err(ShapeError::Offsets { index: i + 1 }),
        None => Ok((offsets.len() - 1, *last)),
    }
}

/// Number of rows of a [rows, width] slice, whose length must be a multiple of `width`.
pub(crate) fn rows_of(what: &'static str, len: usize, width: usize) -> Result<usize, ShapeError> {
    if width == 0 || !len.is_multiple_of(width) {
        return Err(ShapeError::Length { what, need: len.next_multiple_of(width.max(1)), got: len });
    }
    Ok(len / width)
}
