//! Memory for rows that are evaluated side by side.

/// Rows that take each step together.
pub(crate) const LANES: usize = 16;

/// Columns and scores of a tile, kept from run to run. Lanes are [`LANES`] rows of one column.
#[derive(Debug, Default)]
pub(crate) struct Block<T> {
    pub(crate) columns: Vec<[T; LANES]>,
    pub(crate) scores: Vec<[T; LANES]>,
    pub(crate) has_score: Vec<[bool; LANES]>,
    pub(crate) row: Vec<T>,
}
