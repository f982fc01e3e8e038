//! Rows of the last axis: their greatest elements, their direction, and their divergence as distributions.

use smallvec::SmallVec;

/// How far the sum of a distribution may be from 1.
const SUM_ERROR: f64 = 1e-2;

/// The indices of the `k` greatest elements, in order. Of equal elements the first counts as greater; NaN is the least.
pub(crate) fn greatest(row: impl Iterator<Item = f64>, k: usize) -> SmallVec<[usize; 8]> {
    let mut best: SmallVec<[(f64, usize); 8]> = SmallVec::new();
    for (index, value) in row.enumerate() {
        let value = if value.is_nan() { f64::NEG_INFINITY } else { value };
        if best.len() == k && best.last().is_some_and(|(least, _)| value <= *least) {
            continue;
        }
        let at = best.iter().position(|(other, _)| value > *other).unwrap_or(best.len());
        best.insert(at, (value, index));
        best.truncate(k);
    }
    best.into_iter().map(|(_, index)| index).collect()
}

/// The sums over a row from which its cosine similarity and its divergence follow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowSums {
    products: f64,
    squares: [f64; 2],
    sums: [f64; 2],
    divergence: f64,
    is_distribution: bool,
    is_same: bool,
}

impl Default for RowSums {
    fn default() -> Self {
        let (products, squares, sums, divergence) = (0.0, [0.0; 2], [0.0; 2], 0.0);
        Self { products, squares, sums, divergence, is_distribution: true, is_same: true }
    }
}

impl RowSums {
    /// Adds a pair of elements.
    pub(crate) fn add(&mut self, p: f64, c: f64) {
        let is_same = p == c || (p.is_nan() && c.is_nan());
        self.is_same &= is_same;
        // what is the same and no number has no direction
        if is_same && !p.is_finite() {
            self.is_distribution = false;
            return;
        }
        self.products += p * c;
        self.squares[0] += p * p;
        self.squares[1] += c * c;
        self.sums[0] += p;
        self.sums[1] += c;
        self.is_distribution &= (0.0..=1.0).contains(&p) && (0.0..=1.0).contains(&c);
        if p > 0.0 && self.is_distribution {
            self.divergence += p * (p / c).ln();
        }
    }

    /// The cosine of the angle between the rows, -1 to 1; 1 for equal rows, 0 if one of them is zero; NaN if one is not finite.
    pub(crate) fn cosine(&self) -> f64 {
        let norms = self.squares[0].sqrt() * self.squares[1].sqrt();
        match norms {
            _ if self.is_same => 1.0,
            0.0 => 0.0,
            _ => (self.products / norms).clamp(-1.0, 1.0),
        }
    }

    /// The length of the candidate's row to that of the primary's; 1 for equal rows, infinite or NaN where the primary's is zero.
    pub(crate) fn length_ratio(&self) -> f64 {
        if self.is_same { 1.0 } else { (self.squares[1] / self.squares[0]).sqrt() }
    }

    /// The length of the difference of both rows to that of the primary's; infinite where that is zero, or where a number is not finite.
    pub(crate) fn distance(&self) -> f64 {
        let square = (self.squares[0] - 2.0 * self.products + self.squares[1]).max(0.0);
        let distance = (square / self.squares[0]).sqrt();
        match distance {
            _ if self.is_same => 0.0,
            _ if distance.is_nan() => f64::INFINITY,
            _ => distance,
        }
    }

    /// The Kullback-Leibler divergence of the candidate from the primary, Σ p ln(p/c), in nats; `None` unless both rows are
    /// distributions. Infinite where the candidate excludes what the primary does not.
    pub(crate) fn divergence(&self) -> Option<f64> {
        let sums_to_one = self.sums.iter().all(|sum| (sum - 1.0).abs() <= SUM_ERROR);
        // rounding may bring equal distributions slightly below zero
        (self.is_distribution && sums_to_one).then_some(self.divergence.max(0.0))
    }
}

/// The lesser of two values, of which NaN is the least.
pub(crate) fn least(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.min(b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums(p: &[f64], c: &[f64]) -> RowSums {
        let mut sums = RowSums::default();
        p.iter().zip(c).for_each(|(p, c)| sums.add(*p, *c));
        sums
    }

    #[test]
    fn the_greatest_are_in_order_and_ties_go_to_the_first() {
        let top = |row: &[f64], k| greatest(row.iter().copied(), k).to_vec();
        assert_eq!(top(&[0.1, 0.5, 0.5, 0.9], 3), [3, 1, 2]);
        assert_eq!(top(&[f64::NAN, 0.0], 2), [1, 0]);
        assert_eq!(top(&[1.0], 5), [0]);
        assert_eq!(top(&[], 1), [0_usize; 0]);
        assert_eq!(top(&[f64::NEG_INFINITY, f64::NAN], 1), [0]);
    }

    #[test]
    fn cosine_and_divergence_by_hand() {
        assert_eq!(sums(&[1.0, 0.0], &[0.0, 2.0]).cosine(), 0.0);
        assert!((sums(&[1.0, 1.0], &[1.0, 0.0]).cosine() - 0.5_f64.sqrt()).abs() < 1e-15);
        assert_eq!(sums(&[0.0, 0.0], &[0.0, 0.0]).cosine(), 1.0);
        assert_eq!(sums(&[0.0, 0.0], &[0.0, 1.0]).cosine(), 0.0);
        assert!(sums(&[f64::NAN, 1.0], &[0.0, 1.0]).cosine().is_nan());
        assert_eq!(sums(&[f64::NAN, 1.0], &[f64::NAN, 1.0]).cosine(), 1.0);
        let doubled = sums(&[3.0, 4.0], &[6.0, 8.0]);
        assert_eq!((doubled.cosine(), doubled.length_ratio(), doubled.distance()), (1.0, 2.0, 1.0));
        assert_eq!(sums(&[0.0], &[1.0]).distance(), f64::INFINITY);
        // 0.5 ln(0.5/0.25) + 0.5 ln(0.5/0.75) = ln 2 - 0.5 ln 3
        let divergence = sums(&[0.5, 0.5], &[0.25, 0.75]).divergence().unwrap();
        assert!((divergence - (2_f64.ln() - 0.5 * 3_f64.ln())).abs() < 1e-15);
        assert_eq!(sums(&[0.5, 0.5], &[1.0, 0.0]).divergence(), Some(f64::INFINITY));
        assert_eq!(sums(&[0.5, 0.6], &[0.5, 0.5]).divergence(), None);
        assert_eq!(sums(&[2.0, -1.0], &[0.5, 0.5]).divergence(), None);
    }
}
