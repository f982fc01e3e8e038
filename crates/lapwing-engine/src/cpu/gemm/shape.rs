//! The row-major views that kernels take, and the single check of their lengths. After it the kernels index without
//! checks.

/// Why a call was rejected. Nothing was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GemmError {
    /// A buffer is too short for its rows, or a row stride is shorter than a row.
    #[error("{what} has {given} elements, but needs {needed}")]
    Length {
        /// Which argument.
        what: &'static str,
        /// Number of elements required.
        needed: usize,
        /// Number of elements given.
        given: usize,
    },
    /// The range of panels ends behind the last panel of the weights.
    #[error("panels up to {end} were asked for, but the weights have {panels}")]
    Panels {
        /// Where the range ends.
        end: usize,
        /// Number of panels.
        panels: usize,
    },
    /// The rows were quantised for another level or row length than that of the weights.
    #[error("rows of {k} quantised for {level} do not fit the weights")]
    Quantized {
        /// The level of the rows.
        level: &'static str,
        /// Their length.
        k: usize,
    },
}

/// A row-major matrix to read: `count` rows, each starting `stride` elements after the one before.
#[derive(Debug, Clone, Copy)]
pub struct MatrixRows<'a> {
    /// The elements; the last row may end without its padding.
    pub values: &'a [f32],
    /// Number of rows.
    pub count: usize,
    /// Elements from one row to the next, at least a row's length.
    pub stride: usize,
}

impl<'a> MatrixRows<'a> {
    /// A view of rows without gaps.
    #[must_use]
    pub fn dense(values: &'a [f32], count: usize, row_len: usize) -> Self {
        Self { values, count, stride: row_len }
    }
}

/// Checks that `len` elements hold `count` rows of `row_len` at `stride`.
pub(crate) fn check_rows(what: &'static str, len: usize, count: usize, stride: usize, row_len: usize) -> Result<(), GemmError> {
    if count == 0 {
        return Ok(());
    }
    // Saturating arithmetic: an overflow must fail the comparison instead of passing it.
    let needed = (count - 1).saturating_mul(stride).saturating_add(row_len);
    if len < needed || (count > 1 && stride < row_len) {
        return Err(GemmError::Length { what, needed, given: len });
    }
    Ok(())
}

/// Checks a vector that must have at least `needed` elements.
pub(crate) fn check_len(what: &'static str, given: usize, needed: usize) -> Result<(), GemmError> {
    if given < needed { Err(GemmError::Length { what, needed, given }) } else { Ok(()) }
}
