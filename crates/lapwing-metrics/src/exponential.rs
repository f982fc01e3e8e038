//! Exponential buckets, counted from the HDR cells on request: Prometheus calls a histogram of them native, OTLP exponential.
//!
//! A value counts as the middle of its cell. So it is in its own bucket, or in the next one where its cell straddles a bound.
//! Durations below 25 µs are the exception: their cells, of 512 ns, are wider than a bucket of schema 5.

use super::cells::Count;
use super::layout::Layout;
use super::measure::Measure;
use super::snapshot::SeriesSnapshot;

/// The finest schema: 256 buckets for each power of two.
pub const FINEST_SCHEMA: i8 = 8;
/// The widest schema: buckets grow by a factor of 65,536.
pub const WIDEST_SCHEMA: i8 = -4;

/// Counts in buckets whose bounds are powers of `2^(2^-schema)`.
#[derive(Clone, Debug, PartialEq)]
pub struct ExponentialBuckets {
    /// The resolution, [`WIDEST_SCHEMA`] to [`FINEST_SCHEMA`].
    pub schema: i8,
    /// Values up to this count as zero: those of the lowest cell.
    pub zero_threshold: f64,
    /// How many values are zero.
    pub zero_count: u64,
    /// The other buckets that are not empty, by rising index. Bucket `i` holds what is above the bound `i - 1` and up to the bound `i`.
    pub buckets: Vec<(i32, u64)>,
}

impl ExponentialBuckets {
    /// The buckets of counts in cells, which rise; `per` values of the layout are 1.
    pub(crate) fn of(layout: Layout, counts: &[Count<u64>], schema: i8, per: f64) -> Self {
        let first = layout.lowest(1) as f64;
        let mut made = Self { schema, zero_threshold: (first - 0.5) / per, zero_count: 0, buckets: Vec::new() };
        let (steps, shift) = (f64::from(schema).exp2(), per.log2());
        let mut bound = 0.0;
        for count in counts {
            let cell = count.key as u16;
            if cell == 0 {
                made.zero_count += count.count;
                continue;
            }
            let middle = (layout.lowest(cell) + layout.lowest(cell + 1) - 1) as f64 / 2.0;
            match made.buckets.last_mut() {
                Some((_, own)) if middle <= bound => *own += count.count,
                _ => {
                    let index = ((middle.log2() - shift) * steps).ceil();
                    bound = (index / steps + shift).exp2();
                    made.add(index as i32, count.count);
                }
            }
        }
        made
    }

    /// Rounding may give two neighbours one index.
    fn add(&mut self, index: i32, count: u64) {
        match self.buckets.last_mut() {
            Some((last, own)) if *last >= index => *own += count,
            _ => self.buckets.push((index, count)),
        }
    }

    /// Merges each two buckets, and lowers the schema by one. `false` if that is the widest already.
    pub fn widen(&mut self) -> bool {
        if self.schema <= WIDEST_SCHEMA {
            return false;
        }
        self.schema -= 1;
        for (index, count) in std::mem::take(&mut self.buckets) {
            self.add((index + 1) >> 1, count);
        }
        true
    }

    /// The upper bound of a bucket.
    #[must_use]
    pub fn bound(&self, index: i32) -> f64 {
        (f64::from(index) / f64::from(self.schema).exp2()).exp2()
    }
}

impl SeriesSnapshot {
    /// The values of `measure` in exponential buckets, `per` of its unit being 1: `1e9` makes seconds of nanoseconds.
    #[must_use]
    pub fn exponential(&self, measure: Measure, schema: i8, per: f64) -> ExponentialBuckets {
        let schema = schema.clamp(WIDEST_SCHEMA, FINEST_SCHEMA);
        ExponentialBuckets::of(measure.layout(), self.cells(measure), schema, per)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::cells::coalesce;
    use super::*;

    fn of(layout: Layout, values: &[u64], schema: i8, per: f64) -> ExponentialBuckets {
        let mut counts: Vec<_> = values.iter().map(|v| Count { key: u32::from(layout.cell(*v)), count: 1 }).collect();
        coalesce(&mut counts);
        ExponentialBuckets::of(layout, &counts, schema, per)
    }

    fn total(buckets: &ExponentialBuckets) -> u64 {
        buckets.zero_count + buckets.buckets.iter().map(|(_, count)| count).sum::<u64>()
    }

    proptest! {
        /// Every value is counted once, in its bucket or in one that its cell reaches into.
        #[test]
        fn each_value_is_within_its_cell_of_its_bucket(magnitude in 0..51_u32, fraction in any::<u64>(), schema in -4..=8_i8) {
            let value = (1_u64 << magnitude) + fraction % (1 << magnitude);
            for (layout, per) in [(Layout::Time, 1e9), (Layout::PerUnit, 1e12), (Layout::Time, 1e6)] {
                let made = of(layout, &[value], schema, per);
                prop_assert_eq!(total(&made), 1);
                let value = value.min(layout.high());
                let cell = layout.cell(value);
                let Some((index, _)) = made.buckets.first() else {
                    prop_assert!(cell == 0 && (value as f64) / per <= made.zero_threshold + 1.0 / per);
                    continue;
                };
                let (low, high) = (layout.lowest(cell) as f64 / per, layout.lowest(cell + 1) as f64 / per);
                prop_assert!(low <= made.bound(*index) * (1.0 + 1e-9), "{} in {}", value, index);
                prop_assert!(high * (1.0 + 1e-9) > made.bound(*index - 1), "{} in {}", value, index);
                if layout == Layout::Time && value >= 25_000 && schema <= 5 {
                    let exact = ((value as f64 / per).log2() * f64::from(schema).exp2()).ceil() as i32;
                    prop_assert!((exact - index).abs() <= 1, "{} in {} instead of {}", value, index, exact);
                }
            }
        }

        /// Buckets that are merged are those of the wider schema; no count is lost.
        #[test]
        fn widening_is_the_wider_schema(values in proptest::collection::vec(500..4_000_000_000_000_u64, 1..200)) {
            let mut made = of(Layout::Time, &values, FINEST_SCHEMA, 1e9);
            for schema in (WIDEST_SCHEMA..FINEST_SCHEMA).rev() {
                prop_assert!(made.widen());
                prop_assert_eq!(&made, &of(Layout::Time, &values, schema, 1e9));
                prop_assert_eq!(total(&made), values.len() as u64);
                prop_assert!(made.buckets.is_sorted_by(|a, b| a.0 < b.0));
            }
            prop_assert!(!made.widen());
        }
    }

    #[test]
    fn powers_of_two_are_bounds() {
        // cells of 2 ms are 1.024 µs wide; half a second in the schema of powers of two is in the bucket up to 1 by its middle
        let made = of(Layout::Time, &[100, 300_000_000, 600_000_000, 1_500_000_000, 1_600_000_000], 0, 1e9);
        assert_eq!((made.zero_count, &*made.buckets), (1, &[(-1, 1), (0, 1), (1, 2)][..]));
        assert_eq!((made.bound(-1), made.bound(1)), (0.5, 2.0));
        assert!((made.zero_threshold - 511.5e-9).abs() < 1e-15);
        let per_unit = of(Layout::PerUnit, &[0, 1, 1_000_000_000_000], 5, 1e12);
        assert_eq!((per_unit.zero_count, per_unit.buckets.len()), (1, 2));
        assert!(per_unit.zero_threshold < 1e-12 && per_unit.bound(per_unit.buckets[0].0) >= 1e-12);
    }
}
