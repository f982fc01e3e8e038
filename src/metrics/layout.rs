//! The one histogram layout of the crate: `hdrhistogram` over 1 µs … 1 h with 3 significant digits, values in nanoseconds.
//!
//! A *cell* is one counter of that layout, `0..CELLS`; a value differs from its cell's bounds by at most 0.1 % (and by
//! less than 512 ns below 1 ms). Nothing here holds counts: `Cells` does while recording, `hdrhistogram` when read.

use hdrhistogram::Histogram;

/// The lowest value that is told apart from its neighbours; what is lower is recorded at the bottom.
pub const LOW_NS: u64 = 1_000;
/// The highest value; what is higher is recorded here and counted as clipped.
pub const HIGH_NS: u64 = 3_600_000_000_000;
/// Significant decimal digits.
pub const DIGITS: u8 = 3;

/// A cell of the first bucket is `1 << UNIT` nanoseconds wide: the power of two at or below [`LOW_NS`].
const UNIT: u32 = 9;
/// A bucket has `1 << HALF` cells, and the first one twice as many.
const HALF: u32 = 10;

/// How many cells the layout has.
pub(crate) const CELLS: usize = 24 << HALF;

/// The cell of a value. Values above [`HIGH_NS`] belong to the last cell in use.
pub(crate) const fn cell(value_ns: u64) -> u16 {
    let value = if value_ns > HIGH_NS { HIGH_NS } else { value_ns };
    let lead = (value | ((1 << (UNIT + HALF + 1)) - 1)).leading_zeros();
    let bucket = (u64::BITS - UNIT - HALF - 1) - lead;
    let within = value >> (bucket + UNIT); // `0..2048` in the first bucket, `1024..2048` in the others
    ((bucket << HALF) as u64 + within) as u16
}

/// The lowest value of a cell.
pub(crate) const fn lowest(cell: u16) -> u64 {
    let (row, column) = (cell as u32 >> HALF, cell as u64 & ((1 << HALF) - 1));
    match row {
        0 => column << UNIT,
        _ => (column | 1 << HALF) << (row - 1 + UNIT),
    }
}

/// An empty histogram of the layout; 192 KiB.
#[must_use]
pub fn histogram() -> Histogram<u64> {
    match Histogram::new_with_bounds(LOW_NS, HIGH_NS, DIGITS) {
        Ok(histogram) => histogram,
        Err(error) => unreachable!("the bounds are constants: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn cells_are_those_of_the_crate(magnitude in 0..42_u32, fraction in 0..u64::MAX) {
            let value = ((1_u64 << magnitude) + fraction % (1 << magnitude)).min(HIGH_NS);
            let crates = histogram();
            prop_assert_eq!(lowest(cell(value)), crates.lowest_equivalent(value));
            prop_assert_eq!(cell(crates.highest_equivalent(value).min(HIGH_NS)), cell(value));
        }
    }

    #[test]
    fn the_ends_fit_and_every_cell_has_its_own_bound() {
        assert_eq!((cell(0), cell(511), cell(512)), (0, 0, 1));
        assert_eq!(cell(u64::MAX), cell(HIGH_NS));
        assert!(usize::from(cell(HIGH_NS)) < CELLS);
        for at in 0..=cell(HIGH_NS) {
            assert_eq!(cell(lowest(at)), at);
        }
        assert_eq!(histogram().distinct_values(), CELLS);
    }
}
