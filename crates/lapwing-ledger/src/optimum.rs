//! What the forward pass of one exchange would take at best, and its computational debt: the time that it took over that.
//!
//! The optimum is in picoseconds, because that of a small model is below a microsecond. A debt is in millionths: 1,000,000 is the
//! optimum itself.

use std::num::NonZeroU64;

use super::names::LabelId;

/// The optimal time of one exchange's forward stage, by the optimum that is declared for its model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptimalForward {
    /// What the time is derived from, interned in the table of optima.
    pub optimum: LabelId,
    /// The time in picoseconds; `None` if the exchange's work is not known in the optimum's unit.
    pub ps: Option<NonZeroU64>,
}

/// The forward time of one exchange and its optimum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForwardDebt {
    /// The time of forward as the upstream reported or traced it, in nanoseconds; above zero.
    pub forward_ns: u64,
    /// The optimum, in picoseconds.
    pub optimum_ps: NonZeroU64,
}

impl ForwardDebt {
    /// A debt of 1, in millionths.
    pub const PPM: u64 = 1_000_000;

    /// Forward divided by its optimum, in millionths, rounded; below [`Self::PPM`] where forward was quicker than the optimum.
    #[must_use]
    #[inline]
    pub fn ratio_ppm(&self) -> u64 {
        let optimum_ps = self.optimum_ps.get();
        // one hardware division if it fits
        if let Some(dividend) = self.forward_ns.checked_mul(1_000 * Self::PPM).and_then(|ppm| ppm.checked_add(optimum_ps / 2)) {
            return dividend / optimum_ps;
        }
        let dividend = u128::from(self.forward_ns) * u128::from(1_000 * Self::PPM) + u128::from(optimum_ps / 2);
        u64::try_from(dividend / u128::from(optimum_ps)).unwrap_or(u64::MAX)
    }

    /// The time of forward above the optimum, in picoseconds; negative where it was quicker.
    #[must_use]
    #[inline]
    pub fn excess_ps(&self) -> i128 {
        i128::from(self.forward_ns) * 1_000 - i128::from(self.optimum_ps.get())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn debt(forward_ns: u64, optimum_ps: u64) -> ForwardDebt {
        ForwardDebt { forward_ns, optimum_ps: NonZeroU64::new(optimum_ps).unwrap() }
    }

    #[test]
    fn a_debt_is_forward_over_its_optimum() {
        assert_eq!(debt(3_000, 1_000_000).ratio_ppm(), 3_000_000);
        assert_eq!((debt(1, 1_500).ratio_ppm(), debt(1, 1_500).excess_ps()), (666_667, -500));
        assert_eq!(debt(u64::MAX, 1).ratio_ppm(), u64::MAX);
    }

    proptest! {
        #[test]
        fn the_short_division_is_the_long_one(ns in any::<u64>(), bits in 0..64_u32, ps in 1..u64::MAX, less in 0..64_u32) {
            let (ns, ps) = (ns >> bits, (ps >> less).max(1));
            let wanted = (u128::from(ns) * 1_000_000_000 + u128::from(ps / 2)) / u128::from(ps);
            prop_assert_eq!(u128::from(debt(ns, ps).ratio_ppm()), wanted.min(u128::from(u64::MAX)));
        }
    }
}
