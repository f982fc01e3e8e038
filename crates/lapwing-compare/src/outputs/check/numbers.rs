//! Numbers against numbers: errors, counted by tolerance.
//!
//! All in double precision: the error of two elements is |c − p| after both were widened, which is exact for single floats and
//! halves. `numpy` gets the same numbers from `abs(c.astype(float64) - p.astype(float64))`.

use super::super::comparison::{ERROR_STEPS, GreatestError, NumberComparison};
use super::super::config::Tolerance;
use super::super::decode::Number;

/// From this relative distance on, numbers are apart that only the tolerance makes the same.
const APART: f64 = 0.1;

/// How far the numbers of one field may be apart in one answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowed {
    absolute: f64,
    relative: f64,
    /// What errors are relative to.
    scale: f64,
    /// Whether integers must be the same.
    has_exact_integers: bool,
}

impl Allowed {
    /// By the tolerance of the route, for a field of this scale.
    pub(crate) fn new(tolerance: &Tolerance, scale: f64) -> Self {
        Self {
            absolute: tolerance.absolute.given().unwrap_or(Tolerance::DEFAULT * scale),
            relative: tolerance.relative,
            scale,
            has_exact_integers: *tolerance == Tolerance::default(),
        }
    }
}

/// The mean magnitude of the finite numbers among these; 0 if there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Magnitude {
    sum: f64,
    count: u64,
}

impl Magnitude {
    pub(crate) fn add(&mut self, number: f64) {
        if number.is_finite() {
            // so that no sum overflows
            self.sum += number.abs().min(1e290);
            self.count += 1;
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "a mean")]
    pub(crate) fn mean(self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum / self.count as f64 }
    }
}

impl NumberComparison {
    /// Counts a pair of the same numbers. Returns whether they are the same.
    pub(crate) fn add_same(&mut self, primary: Number, candidate: Number) -> bool {
        let is_same = primary == candidate || primary.distance(candidate) == 0.0;
        self.elements += u64::from(is_same);
        is_same
    }

    /// Compares one pair. `place` gives row and place where this error is the greatest so far. Returns whether it is beyond the
    /// tolerance.
    pub(crate) fn add(
        &mut self,
        primary: Number,
        candidate: Number,
        allowed: &Allowed,
        place: impl FnOnce(u64) -> (u64, String),
    ) -> bool {
        let index = self.elements;
        if self.add_same(primary, candidate) {
            return false;
        }
        self.elements += 1;
        let error = primary.distance(candidate);
        for (count, step) in self.exceeding.iter_mut().zip(ERROR_STEPS) {
            *count += u64::from(error > step);
        }
        let (p, c) = (primary.as_f64(), candidate.as_f64());
        let magnitude = p.abs();
        let relative = error / magnitude;
        self.relative = self.relative.max(if relative.is_nan() { f64::INFINITY } else { relative });
        if self.greatest.as_ref().is_none_or(|greatest| error > greatest.error) {
            let (row, at) = place(index);
            self.greatest = Some(GreatestError { error, primary: p, candidate: c, index, row, at });
        }
        self.scale = allowed.scale;
        let are_integers = matches!((primary, candidate), (Number::Integer(_), Number::Integer(_)));
        // an infinite primary allows no error, whatever is relative to it
        let of_value = if magnitude.is_finite() { allowed.relative * magnitude } else { 0.0 };
        let is_outside = error > allowed.absolute + of_value || (are_integers && allowed.has_exact_integers);
        self.outside += u64::from(is_outside);
        let are_small = magnitude < allowed.absolute && c.abs() < allowed.absolute;
        let is_apart = error > APART * magnitude.max(c.abs());
        self.below += u64::from(!is_outside && are_small && is_apart);
        is_outside
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_counted_by_step_and_the_greatest_is_kept() {
        let tolerance = Allowed::new(&Tolerance::of(1e-3, 0.0), 1.0);
        let mut numbers = NumberComparison::default();
        let pairs = [(1.0, 1.0), (1.0, 1.05), (0.0, 1e-3), (f64::NAN, f64::NAN), (2.0, 2.0 + 1e-5), (0.5, f64::NAN)];
        let outside: Vec<bool> = pairs
            .iter()
            .map(|(p, c)| numbers.add(Number::Float(*p), Number::Float(*c), &tolerance, |index| (index / 2, index.to_string())))
            .collect();
        // 1e-3 is not beyond 1e-3
        assert_eq!(outside, [false, true, false, false, false, true]);
        assert_eq!(numbers.elements, 6);
        assert_eq!(numbers.exceeding, [1, 1, 2, 2, 3, 4, 4, 4]);
        let greatest = numbers.greatest.unwrap();
        assert_eq!((greatest.error, greatest.index, greatest.row, greatest.primary), (f64::INFINITY, 5, 2, 0.5));
        assert_eq!(numbers.relative, f64::INFINITY);
    }

    #[test]
    fn the_tolerance_is_that_of_isclose() {
        let tolerance = Allowed::new(&Tolerance::of(1e-3, 1e-2), 1.0);
        let is_outside = |p: f64, c: f64| {
            NumberComparison::default().add(Number::Float(p), Number::Float(c), &tolerance, |_| (0, String::new()))
        };
        assert!(!is_outside(100.0, 101.0));
        assert!(!is_outside(-100.0, -101.0));
        assert!(is_outside(100.0, 101.01));
        assert!(is_outside(f64::INFINITY, 1e300));
        assert!(is_outside(1.0, f64::INFINITY));
        assert!(!is_outside(f64::INFINITY, f64::INFINITY));
    }

    #[test]
    fn the_default_is_relative_to_the_scale_and_exact_for_integers() {
        let outside = |scale: f64, p: Number, c: Number| {
            let mut numbers = NumberComparison::default();
            (numbers.add(p, c, &Allowed::new(&Tolerance::default(), scale), |_| (0, String::new())), numbers.below)
        };
        let float = |p: f64, c: f64, scale: f64| outside(scale, Number::Float(p), Number::Float(c));
        assert_eq!(float(4e-4, 0.0, 5e-4), (true, 0), "small probabilities");
        assert_eq!(float(4e-4, 0.0, 1.0), (false, 1), "below the tolerance of large ones, and said");
        assert_eq!(float(1.0, 1.0015, 1.0), (false, 0));
        assert_eq!(outside(1001.0, Number::Integer(1001), Number::Integer(1002)), (true, 0), "a class");
        assert_eq!(outside(1001.0, Number::Integer(1001), Number::Float(1001.5)), (false, 0));
        let given = Allowed::new(&Tolerance { relative: 0.1, ..Tolerance::default() }, 1.0);
        let mut numbers = NumberComparison::default();
        assert!(!numbers.add(Number::Integer(100), Number::Integer(101), &given, |_| (0, String::new())));
    }

    #[test]
    fn magnitudes_leave_out_what_is_not_finite() {
        let mut magnitude = Magnitude::default();
        [1.0, -3.0, f64::NAN, f64::INFINITY, 0.0, 0.0].into_iter().for_each(|number| magnitude.add(number));
        assert_eq!((magnitude.mean(), Magnitude::default().mean()), (1.0, 0.0));
    }
}
