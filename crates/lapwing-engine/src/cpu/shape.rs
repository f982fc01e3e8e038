//! What all row kernels check before they run: lengths of slices, ranges, and the offsets of a ragged batch. Checked once a call, so
//! that no kernel can index out of bounds; nothing is computed here.

use std::ops::Range;

/// An argument of a kernel does not fit the others.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// A slice has the wrong number of values.
    #[error("{what} holds {got} values, {need} are needed")]
    Length {
        /// The argument.
        what: &'static str,
        /// Values needed.
        need: usize,
        /// Values there.
        got: usize,
    },
    /// A range does not lie inside what it ranges over.
    #[error("range {start}..{end} of {what} does not lie in 0..{len}")]
    Range {
        /// What it counts.
        what: &'static str,
        /// First of the range.
        start: usize,
        /// One past its last.
        end: usize,
        /// How many there are.
        len: usize,
    },
    /// The offsets of a ragged batch fall, or are missing.
    #[error("offset {index} of the batch is lower than the one before it, or there is none")]
    Offsets {
        /// The first wrong one.
        index: usize,
    },
    /// Columns do not fit between two rows.
    #[error("{what} needs {need} columns, its rows have {got}")]
    Columns {
        /// The argument.
        what: &'static str,
        /// Columns needed, with the offset.
        need: usize,
        /// Row stride.
        got: usize,
    },
}

/// The slice has exactly so many values.
pub(crate) fn exactly(what: &'static str, need: usize, got: usize) -> Result<(), ShapeError> {
    if need == got { Ok(()) } else { Err(ShapeError::Length { what, need, got }) }
}

/// The slice has at least so many values.
pub(crate) fn at_least(what: &'static str, need: usize, got: usize) -> Result<(), ShapeError> {
    if need <= got { Ok(()) } else { Err(ShapeError::Length { what, need, got }) }
}

/// The range lies in 0..len.
pub(crate) fn inside(what: &'static str, range: &Range<usize>, len: usize) -> Result<(), ShapeError> {
    if range.start <= range.end && range.end <= len {
        Ok(())
    } else {
        Err(ShapeError::Range { what, start: range.start, end: range.end, len })
    }
}

/// The offsets never fall; returns the number of sequences and of tokens.
pub(crate) fn ragged(offsets: &[usize]) -> Result<(usize, usize), ShapeError> {
    let Some(last) = offsets.last() else {
        return Err(ShapeError::Offsets { index: 0 });
    };
    match offsets.windows(2).position(|w| w[1] < w[0]) {
        Some(i) => Err(ShapeError::Offsets { index: i + 1 }),
        None => Ok((offsets.len() - 1, *last)),
    }
}

/// Rows of a [rows, width] slice, which must divide evenly.
pub(crate) fn rows_of(what: &'static str, len: usize, width: usize) -> Result<usize, ShapeError> {
    if width == 0 || !len.is_multiple_of(width) {
        return Err(ShapeError::Length { what, need: len.next_multiple_of(width.max(1)), got: len });
    }
    Ok(len / width)
}
