//! A histogram over a range that grows by doubling. The counts do not depend on the order of the values.

/// Bins on each side of zero.
const HALF: usize = 4096;
/// Smaller magnitudes count as zero.
const TINY: f32 = 1e-30;

/// Counts of values in bins of equal width around zero.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    /// Every value lies strictly between `-range` and `range`. A power of two; zero while all values are zero.
    range: f64,
    counts: Vec<u64>,
    zeros: u64,
}

/// A bin that is not empty.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bin {
    /// Its centre.
    pub(crate) middle: f64,
    /// Number of values.
    pub(crate) count: u64,
}

impl Histogram {
    pub(crate) fn new() -> Self {
        Self { range: 0.0, counts: vec![0; 2 * HALF], zeros: 0 }
    }

    /// Counts values, all of which must be finite.
    pub(crate) fn add(&mut self, values: &[f32]) {
        self.widen(f64::from(values.iter().fold(0.0f32, |most, value| most.max(value.abs()))));
        let bins_per_unit = if self.range > 0.0 { HALF as f64 / self.range } else { 0.0 };
        for value in values {
            if value.abs() < TINY {
                self.zeros += 1;
                continue;
            }
            // Multiplying by a power of two is exact, so the bin edges are the same at every range.
            let at = (f64::from(*value) * bins_per_unit).floor() as i64 + HALF as i64;
            if let Some(count) = usize::try_from(at).ok().and_then(|at| self.counts.get_mut(at)) {
                *count += 1;
            }
        }
    }

    /// Doubles the range until it contains `most`, merging pairs of bins each time.
    fn widen(&mut self, most: f64) {
        if most < f64::from(TINY) {
            return;
        }
        if self.range == 0.0 {
            self.range = f64::exp2(-100.0);
            while self.range <= most {
                self.range *= 2.0;
            }
        }
        while self.range <= most {
            let merged: Vec<u64> = self.counts.chunks_exact(2).map(|pair| pair.iter().sum()).collect();
            self.counts.fill(0);
            self.counts.iter_mut().skip(HALF / 2).zip(merged).for_each(|(count, pair)| *count = pair);
            self.range *= 2.0;
        }
    }

    /// All bins that are not empty, lowest first; zeros are in no bin.
    pub(crate) fn bins(&self) -> impl Iterator<Item = Bin> {
        let width = self.range / HALF as f64;
        let middle = move |at: usize| (at as f64 - HALF as f64 + 0.5) * width;
        self.counts
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0)
            .map(move |(at, count)| Bin { middle: middle(at), count: *count })
    }

    /// The width of a bin.
    #[cfg(test)]
    pub(crate) fn width(&self) -> f64 {
        self.range / HALF as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn values_fall_where_they_belong() {
        let mut histogram = Histogram::new();
        histogram.add(&[0.0, -0.0, 1e-35, 0.75, 0.75, -0.5]);
        let bins: Vec<_> = histogram.bins().collect();
        assert_eq!((histogram.zeros, bins.len(), histogram.range), (3, 2, 1.0));
        assert!((bins[0].middle + 0.5).abs() <= histogram.width() && bins[0].count == 1);
        assert!((bins[1].middle - 0.75).abs() <= histogram.width() && bins[1].count == 2);
    }

    #[test]
    fn nothing_and_the_largest_numbers() {
        let mut histogram = Histogram::new();
        histogram.add(&[]);
        histogram.add(&[0.0]);
        assert_eq!((histogram.bins().count(), histogram.zeros), (0, 1));
        histogram.add(&[1e-20]);
        histogram.add(&[f32::MAX, f32::MIN]);
        assert_eq!(histogram.bins().map(|bin| bin.count).sum::<u64>(), 3);
    }

    proptest! {
        #[test]
        fn the_order_does_not_matter_and_nothing_is_lost(values in prop::collection::vec(prop_oneof![-1e3f32..1e3, -1f32..1.0, Just(1.0), Just(-2.0)], 1..60), cut in 0usize..60) {
            let mut whole = Histogram::new();
            whole.add(&values);
            let mut parts = Histogram::new();
            let (a, b) = values.split_at(cut.min(values.len()));
            parts.add(b);
            a.iter().for_each(|value| parts.add(&[*value]));
            prop_assert_eq!(whole.bins().collect::<Vec<_>>(), parts.bins().collect::<Vec<_>>());
            prop_assert_eq!(whole.bins().map(|bin| bin.count).sum::<u64>() + whole.zeros, values.len() as u64);
        }
    }
}
