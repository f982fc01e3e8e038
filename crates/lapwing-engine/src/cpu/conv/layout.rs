//! Images with their channels side by side from those with their pixels side by side, and back.

use super::super::dispatch::dispatch;
use super::super::level::Level;
use super::super::simd::{Kernel, Simd};
use super::geometry::{ConvError, holds};

/// Rows and columns of a tile: what is read and written of it stays in the first-level cache.
const TILE: usize = 8;

/// `to[column][row] = from[row][column]` of matrices of `rows` x `columns` that lie one after the other.
///
/// # Errors
/// Names the slice that does not hold whole matrices.
pub fn transpose(level: Level, [rows, columns]: [usize; 2], from: &[f32], to: &mut [f32]) -> Result<(), ConvError> {
    let each = rows.saturating_mul(columns);
    if each == 0 || !from.len().is_multiple_of(each) {
        return Err(ConvError::Length { what: "matrices", need: each, got: from.len() });
    }
    holds("output", to.len(), from.len())?;
    for (from, to) in from.chunks_exact(each).zip(to.chunks_exact_mut(each)) {
        // SAFETY: both hold a whole matrix.
        unsafe { dispatch(level, Transpose { from, to, rows, columns }) };
    }
    Ok(())
}

struct Transpose<'a> {
    from: &'a [f32],
    to: &'a mut [f32],
    rows: usize,
    columns: usize,
}

impl Kernel for Transpose<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Transpose { from, to, rows, columns } = self;
        let (from, to) = (from.as_ptr(), to.as_mut_ptr());
        let mut row = 0;
        while row < rows {
            let mut column = 0;
            while column < columns {
                // SAFETY: row and column lie in the matrix, and a whole tile is moved only where there is one.
                unsafe {
                    if row + TILE <= rows && column + TILE <= columns {
                        let begin = from.add(row * columns + column);
                        let mut lines = [begin; TILE];
                        let mut at = 0;
                        while at < TILE {
                            lines[at] = begin.add(at * columns);
                            at += 1;
                        }
                        S::transpose8(lines, to.add(column * rows + row), rows);
                    } else {
                        let mut r = row;
                        while r < rows.min(row + TILE) {
                            let mut c = column;
                            while c < columns.min(column + TILE) {
                                *to.add(c * rows + r) = *from.add(r * columns + c);
                                c += 1;
                            }
                            r += 1;
                        }
                    }
                }
                column += TILE;
            }
            row += TILE;
        }
    }
}
