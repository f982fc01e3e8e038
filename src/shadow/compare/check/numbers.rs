//! Numbers against numbers: errors, counted by tolerance.
//!
//! All in double precision: the error of two elements is |c − p| after both were widened, which is exact for single floats and
//! halves. `numpy` gets the same numbers from `abs(c.astype(float64) - p.astype(float64))`.

use super::super::comparison::{ERROR_STEPS, GreatestError, NumberComparison};
use super::super::config::Tolerance;
use super::super::decode::Number;

impl NumberComparison {
    /// Compares one pair. `place` gives row and place where this error is the greatest so far. Returns whether it is beyond the
    /// tolerance.
    pub(super) fn add(
        &mut self,
        primary: Number,
        candidate: Number,
        tolerance: &Tolerance,
        place: impl FnOnce(u64) -> (u64, String),
    ) -> bool {
        let index = self.elements;
        self.elements += 1;
        if primary == candidate {
            return false;
        }
        let error = primary.distance(candidate);
        if error == 0.0 {
            return false;
        }
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
        // an infinite primary allows no error, whatever is relative to it
        let allowed =
            if magnitude.is_finite() { tolerance.absolute + tolerance.relative * magnitude } else { tolerance.absolute };
        let is_outside = error > allowed;
        self.outside += u64::from(is_outside);
        is_outside
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_counted_by_step_and_the_greatest_is_kept() {
        let tolerance = Tolerance { absolute: 1e-3, relative: 0.0 };
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
        let tolerance = Tolerance { absolute: 1e-3, relative: 1e-2 };
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
}
