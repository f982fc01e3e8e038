//! Counts by logarithmic bin: small sketches that add up. A bin of sizes is half an octave, one of magnitudes an eighth.

use smallvec::SmallVec;

/// The most bins of a sketch; what finds no room is counted in the nearest one.
const MAX_BINS: usize = 48;
/// The bin of what is infinite or no number.
pub(crate) const INFINITE: i16 = i16::MAX;
/// Bins of sizes in an octave.
const SIZES: f64 = 2.0;
/// Bins of magnitudes in an octave.
const MAGNITUDES: f64 = 8.0;

/// The bin of the size of a difference: 0 is in the lowest, infinity in a separate bin.
pub(crate) fn size_bin(size: f64) -> i16 {
    bin(size, SIZES)
}

/// How many bins of sizes a factor is.
pub(crate) const fn doublings(count: i16) -> i16 {
    2 * count
}

/// The bin of a magnitude.
pub(crate) fn magnitude_bin(magnitude: f64) -> i16 {
    bin(magnitude, MAGNITUDES)
}

/// The middle of a bin of magnitudes.
pub(crate) fn magnitude(bin: i16) -> f64 {
    ((f64::from(bin) + 0.5) / MAGNITUDES).exp2()
}

/// The upper edge of a bin of sizes.
pub(crate) fn size_edge(bin: i16) -> f64 {
    if bin == INFINITE { f64::INFINITY } else { ((f64::from(bin) + 1.0) / SIZES).exp2() }
}

#[expect(clippy::cast_possible_truncation, reason = "it is clamped first")]
fn bin(value: f64, in_octave: f64) -> i16 {
    if !value.is_finite() {
        return INFINITE;
    }
    // log2(0) is −∞, which is clamped
    (value.log2() * in_octave).floor().clamp(-1_000.0 * in_octave, 1_000.0 * in_octave) as i16
}

/// How many values fell into each bin, in the order of bins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bins(SmallVec<[(i16, u32); 2]>);

impl Bins {
    pub(crate) fn add(&mut self, bin: i16, count: u32) {
        let at = self.0.partition_point(|(other, _)| *other < bin);
        let is_known = self.0.get(at).is_some_and(|(other, _)| *other == bin);
        if !is_known && self.0.len() < MAX_BINS {
            return self.0.insert(at, (bin, count));
        }
        // without room the next greater one, so that no size is counted as less than it is; the greatest takes what is above
        let at = at.min(self.0.len() - 1);
        self.0[at].1 = self.0[at].1.saturating_add(count);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        other.0.iter().for_each(|(bin, count)| self.add(*bin, *count));
    }

    pub(crate) fn total(&self) -> u64 {
        self.0.iter().map(|(_, count)| u64::from(*count)).sum()
    }

    /// How many values are in this bin or above.
    pub(crate) fn at_least(&self, bin: i16) -> u64 {
        self.0.iter().filter(|(other, _)| *other >= bin).map(|(_, count)| u64::from(*count)).sum()
    }

    /// The bins with a value, the lowest first.
    pub(crate) fn filled(&self) -> impl Iterator<Item = i16> {
        self.0.iter().map(|(bin, _)| *bin)
    }

    /// The bin of a quantile; `None` without values.
    #[expect(clippy::cast_precision_loss, reason = "a rank")]
    pub(crate) fn quantile(&self, share: f64) -> Option<i16> {
        let rank = self.total() as f64 * share;
        let mut below = 0.0;
        let reached = |(_, count): &&(i16, u32)| {
            below += f64::from(*count);
            below >= rank
        };
        self.0.iter().find(reached).map(|(bin, _)| *bin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_half_an_octave() {
        assert_eq!((size_bin(1.0), size_bin(2.0), size_bin(0.5), size_bin(99.0)), (0, 2, -2, 13));
        assert_eq!((size_bin(0.0), size_bin(f64::NAN), size_bin(f64::INFINITY)), (-2_000, INFINITE, INFINITE));
        for magnitude_of in [1e-9, 0.3, 7e12] {
            let middle = magnitude(magnitude_bin(magnitude_of));
            assert!((middle / magnitude_of).log2().abs() < 0.07, "{magnitude_of} {middle}");
        }
    }

    #[test]
    fn sketches_are_bounded_and_add_up() {
        let (mut one, mut other) = (Bins::default(), Bins::default());
        (0..1000).for_each(|n| one.add(n % 300, 1));
        (0..10).for_each(|n| other.add(n, 2));
        assert!(one.filled().count() <= MAX_BINS && one.total() == 1000);
        one.merge(&other);
        assert_eq!(one.total(), 1020);
        assert_eq!((other.quantile(0.5), other.quantile(0.99), other.at_least(8)), (Some(4), Some(9), 4));
        assert_eq!(Bins::default().quantile(0.5), None);
    }
}
