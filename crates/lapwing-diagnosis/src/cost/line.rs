//! The time of a forward pass as a line over its units: a fixed part, and a part for each unit. Nanoseconds.

use lapwing_ledger::{Unit, Work};

/// `fixed_ns + ns_per_unit × units`; both are finite and not negative.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CostLine {
    /// The time of any forward pass.
    pub fixed_ns: f64,
    /// The time that each unit adds.
    pub ns_per_unit: f64,
    /// The unit.
    pub unit: Unit,
}

impl CostLine {
    /// The time of a forward pass of `units`, in nanoseconds.
    #[must_use]
    pub fn at(&self, units: f64) -> f64 {
        self.fixed_ns + self.ns_per_unit * units
    }

    /// The time of one forward pass of this work, in nanoseconds; `None` if its amount is unknown or zero.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a time is right to a few digits")]
    pub fn of(&self, work: &Work) -> Option<f64> {
        let (amount, _) = work.get(self.unit)?;
        (amount > 0).then(|| self.at(amount as f64))
    }
}

/// The line `(fixed, per unit)` through points `(units, value)`, all above zero: least squares of relative errors, so that small
/// batches count as much as large ones. Neither part is negative. `None` if the points have fewer than two different units.
pub(crate) fn fit(points: &[(f64, f64)]) -> Option<(f64, f64)> {
    let first = points.first()?.0;
    if points.iter().all(|(units, _)| (units - first).abs() < 0.5) {
        return None;
    }
    let sum = |of: fn(f64, f64) -> f64| points.iter().map(|(u, t)| of(*u, *t) / (t * t)).sum::<f64>();
    let (weight, u, uu) = (sum(|_, _| 1.0), sum(|u, _| u), sum(|u, _| u * u));
    let (t, ut) = (sum(|_, t| t), sum(|u, t| u * t));
    let per_unit = (weight * ut - u * t) / (weight * uu - u * u);
    let fixed = (t - per_unit * u) / weight;
    Some(match (fixed < 0.0, per_unit < 0.0) {
        (true, _) => (0.0, ut / uu),
        (_, true) => (t / weight, 0.0),
        _ => (fixed, per_unit),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use lapwing_ledger::Basis;

    fn near(found: (f64, f64), wanted: (f64, f64)) {
        assert!((found.0 - wanted.0).abs() < 1e-6 * wanted.1.max(1.0), "{found:?}");
        assert!((found.1 - wanted.1).abs() < 1e-9 * wanted.1.max(1.0), "{found:?}");
    }

    #[test]
    fn a_line_goes_through_its_points() {
        let points: Vec<_> = [1.0, 8.0, 32.0, 200.0].map(|u| (u, 240_000.0 + 25_000.0 * u)).into();
        near(fit(&points).unwrap(), (240_000.0, 25_000.0));
        assert_eq!((fit(&[]), fit(&[(8.0, 1.0), (8.0, 2.0)])), (None, None));
    }

    #[test]
    fn neither_part_is_negative() {
        let (fixed, per_unit) = fit(&[(1.0, 1.0), (10.0, 100.0)]).unwrap();
        assert!(fixed == 0.0 && per_unit > 0.0);
        let (fixed, per_unit) = fit(&[(1.0, 100.0), (10.0, 50.0)]).unwrap();
        assert!(fixed > 0.0 && per_unit == 0.0);
    }

    #[test]
    fn a_relative_error_of_a_small_batch_counts_as_much_as_of_a_large_one() {
        // no line fits all three; none of the relative errors may dwarf the others
        let points = [(1.0, 10.0), (10.0, 40.0), (1_000.0, 2_000.0)];
        let (fixed, per_unit) = fit(&points).unwrap();
        for (units, time) in points {
            assert!((fixed + per_unit * units - time).abs() < 0.35 * time, "{units}: {}", fixed + per_unit * units);
        }
    }

    #[test]
    fn unknown_work_has_no_time() {
        let line = CostLine { fixed_ns: 100.0, ns_per_unit: 2.5, unit: Unit::Row };
        let mut work = Work::default();
        assert_eq!(line.of(&work), None);
        work.set(Unit::Row, 0, Basis::Counted);
        assert_eq!(line.of(&work), None);
        work.set(Unit::Row, 8, Basis::Reported);
        assert_eq!(line.of(&work), Some(120.0));
    }
}
