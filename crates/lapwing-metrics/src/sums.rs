//! Exact sums next to the histograms: of durations, of work, and of time per work. All of them merge by addition.

use lapwing_ledger::{Basis, Unit};

/// Exact count, sum and maximum of the durations of one measure, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// How many durations.
    pub count: u64,
    /// Their exact sum.
    pub sum_ns: u64,
    /// The longest, exact.
    pub max_ns: u64,
}

impl Extent {
    pub(crate) const fn record(&mut self, value_ns: u64) {
        self.count += 1;
        self.sum_ns = self.sum_ns.saturating_add(value_ns);
        if value_ns > self.max_ns {
            self.max_ns = value_ns;
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }
}

/// Exact sums of a per-unit slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnitExtent {
    /// How many requests.
    pub count: u64,
    /// The time of the stage or phase in these requests, in nanoseconds.
    pub time_ns: u64,
    /// The largest value, in picoseconds per [`Unit::per`] units.
    pub max_ps: u64,
    /// The units that the time was divided by.
    pub units: u128,
    /// The sum of the requests' values, in the same unit: each request counts alike, however many units it has.
    pub sum_ps: u128,
}

impl UnitExtent {
    /// Adds a request and returns its value.
    pub(crate) fn record(&mut self, time_ns: u64, units: u64, unit: Unit) -> u64 {
        let value_ps = per_unit_ps(time_ns, units, unit);
        self.count += 1;
        self.time_ns = self.time_ns.saturating_add(time_ns);
        self.max_ps = self.max_ps.max(value_ps);
        self.units += u128::from(units);
        self.sum_ps += u128::from(value_ps);
        value_ps
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.time_ns = self.time_ns.saturating_add(other.time_ns);
        self.max_ps = self.max_ps.max(other.max_ps);
        self.units += other.units;
        self.sum_ps += other.sum_ps;
    }

    /// The total time divided by the total units, in picoseconds per [`Unit::per`] units; zero if there are no units.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "a ratio")]
    pub fn mean_ps(&self, unit: Unit) -> f64 {
        if self.units == 0 { 0.0 } else { (u128::from(self.time_ns) * 1_000) as f64 * unit.per() as f64 / self.units as f64 }
    }
}

/// Picoseconds per [`Unit::per`] units, rounded; `units` of zero count as one.
#[must_use]
pub fn per_unit_ps(time_ns: u64, units: u64, unit: Unit) -> u64 {
    let units = units.max(1);
    // one hardware division if both fit
    if let Some(dividend) = time_ns.checked_mul(1_000 * unit.per()).and_then(|ps| ps.checked_add(units / 2)) {
        return dividend / units;
    }
    let dividend = u128::from(time_ns) * 1_000 * u128::from(unit.per()) + u128::from(units / 2);
    u64::try_from(dividend / u128::from(units)).unwrap_or(u64::MAX)
}

/// The work in one unit that answered requests asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkSum {
    /// The total amount.
    pub amount: u128,
    /// The number of requests by basis: estimated, counted, reported.
    pub requests: [u64; 3],
}

impl WorkSum {
    pub(crate) const fn record(&mut self, amount: u64, basis: Basis) {
        self.amount += amount as u128;
        self.requests[basis as usize] += 1;
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.amount += other.amount;
        for (mine, theirs) in self.requests.iter_mut().zip(other.requests) {
            *mine += theirs;
        }
    }

    /// The number of requests whose amount is known on this basis.
    #[must_use]
    pub const fn requests(&self, basis: Basis) -> u64 {
        self.requests[basis as usize]
    }
}

/// A weighed mean of a value that only some polls have.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mean {
    count: u64,
    sum: f64,
}

impl Mean {
    /// Adds a value `times` times if there is one; NaN and infinities are ignored.
    #[allow(clippy::cast_precision_loss, reason = "a mean")]
    pub(crate) fn record(&mut self, value: Option<f64>, times: u64) {
        if let Some(value) = value.filter(|value| value.is_finite()) {
            self.count = self.count.saturating_add(times);
            self.sum += value * times as f64;
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.sum += other.sum;
    }

    /// Sum divided by count; `None` if there was no value.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "a ratio")]
    pub fn value(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn values_are_rounded_and_sums_are_exact() {
        let mut extent = UnitExtent::default();
        // 1 µs over 3 rows, 2 ns over 256 rows
        assert_eq!((extent.record(1_000, 3, Unit::Row), extent.record(2, 256, Unit::Row)), (333_333, 8));
        let expected = UnitExtent { count: 2, time_ns: 1_002, max_ps: 333_333, units: 259, sum_ps: 333_341 };
        assert_eq!(extent, expected);
        assert!((extent.mean_ps(Unit::Row) - 1_002_000.0 / 259.0).abs() < 1e-9);
        let of = |ns, units| per_unit_ps(ns, units, Unit::Row);
        assert_eq!((of(1, 2_000), of(1, 2_001), of(u64::MAX, 1)), (1, 0, u64::MAX));
    }

    proptest! {
        #[test]
        fn the_short_division_is_the_long_one(ns in any::<u64>(), bits in 0..64_u32, units in 1..u64::MAX, less in 0..64_u32) {
            let (ns, units) = (ns >> bits, (units >> less).max(1));
            for unit in [Unit::Row, Unit::Flop] {
                let wanted = (u128::from(ns) * 1_000 * u128::from(unit.per()) + u128::from(units / 2)) / u128::from(units);
                prop_assert_eq!(u128::from(per_unit_ps(ns, units, unit)), wanted.min(u128::from(u64::MAX)));
            }
        }
    }

    #[test]
    fn flops_are_told_apart_on_any_device() {
        // 10¹² FLOPs in 1 ms, a petaflop a second: 1 µs for 10⁹
        let mut extent = UnitExtent::default();
        assert_eq!(extent.record(1_000_000, 1_000_000_000_000, Unit::Flop), 1_000_000);
        assert!((extent.mean_ps(Unit::Flop) - 1e6).abs() < 1e-6);
        // 3.148 MFLOP in 1 ms
        assert_eq!(per_unit_ps(1_000_000, 3_148_000, Unit::Flop), 317_662_007_624);
    }

    #[test]
    fn a_mean_of_nothing_is_none() {
        let mut mean = Mean::default();
        mean.record(None, 1);
        mean.record(Some(f64::NAN), 1);
        assert_eq!(mean.value(), None);
        [(2.0, 1), (5.0, 3)].into_iter().for_each(|(value, times)| mean.record(Some(value), times));
        assert_eq!(mean.value(), Some(4.25));
    }
}
