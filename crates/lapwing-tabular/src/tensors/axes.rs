//! Axes by number.

use crate::attributes::Reason;

/// An axis that may be counted from the end.
pub(crate) fn axis(number: i64, rank: usize) -> Result<usize, Reason> {
    let from_start = if number < 0 { number + rank as i64 } else { number };
    usize::try_from(from_start).ok().filter(|axis| *axis < rank).ok_or_else(|| format!("axis {number} of {rank}"))
}

/// The product of lengths before, of, and behind an axis.
pub(crate) fn around(shape: &[usize], axis: usize) -> (usize, usize, usize) {
    (shape[..axis].iter().product(), shape[axis], shape[axis + 1..].iter().product())
}
