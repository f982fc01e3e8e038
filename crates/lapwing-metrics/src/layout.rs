//! The two histogram layouts of the crate, which are those of `hdrhistogram`: one for durations, one for time per unit of work.
//!
//! A *cell* is one counter of a layout, `0..CELLS`. A duration differs from the bounds of its cell by at most 0.1 % (and by less
//! than 512 ns below 1 ms), a time per unit by at most 0.8 % (and by less than 1 ps below 256 ps). No counts are kept here:
//! `Cells` holds them while recording, `hdrhistogram` when they are read.

use hdrhistogram::Histogram;

/// The lowest duration that is distinguished from its neighbours; lower durations are recorded in the lowest cell.
pub const LOW_NS: u64 = 1_000;
/// The longest duration; longer ones are recorded here and counted as clipped.
pub const HIGH_NS: u64 = 3_600_000_000_000;
/// Significant decimal digits of durations.
pub const DIGITS: u8 = 3;

/// The lowest time per unit that is distinguished from zero.
pub const PER_UNIT_LOW_PS: u64 = 1;
/// The highest time per unit, an hour; higher values are recorded here and counted as clipped.
pub const PER_UNIT_HIGH_PS: u64 = 3_600_000_000_000_000;
/// Significant decimal digits of times per unit.
pub const PER_UNIT_DIGITS: u8 = 2;

/// The number of cells of the larger layout.
pub(crate) const CELLS: usize = 24 << 10;

/// A histogram layout.
///
/// ```
/// use lapwing_metrics::Layout;
///
/// let mut histogram = Layout::Time.histogram();
/// for ms in 1..=100_u64 {
/// histogram.saturating_record(ms * 1_000_000);
/// }
/// // at most 0.1 % above the exact quantile
/// let p99_ns = histogram.value_at_quantile(0.99);
/// assert!((99_000_000..=99_099_000).contains(&p99_ns));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Nanoseconds, 1 µs to 1 h, 3 significant digits. Debt ratios have it too, in millionths.
    Time,
    /// Picoseconds per unit, 1 ps to 1 h, 2 significant digits.
    PerUnit,
}

impl Layout {
    /// The highest value.
    #[must_use]
    pub const fn high(self) -> u64 {
        match self {
            Self::Time => HIGH_NS,
            Self::PerUnit => PER_UNIT_HIGH_PS,
        }
    }

    /// The two logarithms that define it. A cell of the first bucket is `1 << unit` wide: the power of two at or below the lowest
    /// value. A bucket has `1 << half` cells, and the first one twice as many.
    const fn shape(self) -> (u32, u32) {
        match self {
            Self::Time => (9, 10),
            Self::PerUnit => (0, 7),
        }
    }

    /// The cell of a value. Values above [`Self::high`] belong to the last cell in use.
    pub(crate) const fn cell(self, value: u64) -> u16 {
        let ((unit, half), high) = (self.shape(), self.high());
        let value = if value > high { high } else { value };
        let lead = (value | ((1 << (unit + half + 1)) - 1)).leading_zeros();
        let bucket = (u64::BITS - unit - half - 1) - lead;
        let within = value >> (bucket + unit); // of all cells of the bucket: the upper half, except in the first bucket
        ((bucket << half) as u64 + within) as u16
    }

    /// The lowest value of a cell.
    pub(crate) const fn lowest(self, cell: u16) -> u64 {
        let (unit, half) = self.shape();
        let (row, column) = (cell as u32 >> half, cell as u64 & ((1 << half) - 1));
        match row {
            0 => column << unit,
            _ => (column | 1 << half) << (row - 1 + unit),
        }
    }

    /// An empty histogram of this layout; 192 KiB for durations, 46 KiB for times per unit.
    #[must_use]
    pub fn histogram(self) -> Histogram<u64> {
        let made = match self {
            Self::Time => Histogram::new_with_bounds(LOW_NS, HIGH_NS, DIGITS),
            Self::PerUnit => Histogram::new_with_bounds(PER_UNIT_LOW_PS, PER_UNIT_HIGH_PS, PER_UNIT_DIGITS),
        };
        match made {
            Ok(histogram) => histogram,
            Err(error) => unreachable!("the bounds are constants: {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(layout: Layout, value: u64) -> Result<(), TestCaseError> {
        let (value, crates) = (value.min(layout.high()), layout.histogram());
        prop_assert_eq!(layout.lowest(layout.cell(value)), crates.lowest_equivalent(value));
        prop_assert_eq!(layout.cell(crates.highest_equivalent(value).min(layout.high())), layout.cell(value));
        Ok(())
    }

    proptest! {
        #[test]
        fn cells_are_those_of_the_crate(magnitude in 0..52_u32, fraction in 0..u64::MAX) {
            let value = (1_u64 << magnitude) + fraction % (1 << magnitude);
            check(Layout::Time, value)?;
            check(Layout::PerUnit, value)?;
        }
    }

    #[test]
    fn the_ends_fit_and_every_cell_has_its_own_bound() {
        for (layout, step) in [(Layout::Time, 512), (Layout::PerUnit, 1)] {
            let high = layout.cell(layout.high());
            assert_eq!((layout.cell(0), layout.cell(step - 1), layout.cell(step)), (0, 0, 1));
            assert_eq!(layout.cell(u64::MAX), high);
            assert!(usize::from(high) < CELLS);
            for at in 0..=high {
                assert_eq!(layout.cell(layout.lowest(at)), at);
            }
        }
        assert_eq!(Layout::Time.histogram().distinct_values(), CELLS);
        assert_eq!(Layout::PerUnit.histogram().distinct_values(), 46 << 7);
    }
}
