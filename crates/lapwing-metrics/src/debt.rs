//! Computational debt of one series: exact sums, and the ratios of forward to its optimum by cost class.
//!
//! Ratios are millionths: 1,000,000 is the optimum itself. Everything merges by addition (maxima by the larger value).

use super::sparse::Sparse;
use lapwing_ledger::{Exchange, ForwardDebt, LabelId, Work};

/// Upper bounds of debt ratios, in millionths: finest around the optimum, up to a thousandfold.
pub const DEBT_BOUNDS_PPM: &[u64] = &debt_bounds();

const fn debt_bounds() -> [u64; 23] {
    const HUNDREDTHS: [u64; 23] = [
        25, 50, 75, 90, 100, 110, 125, 150, 175, 200, 250, 300, 400, 500, 750, 1_000, 1_500, 2_000, 3_000, 5_000, 10_000, 30_000,
        100_000,
    ];
    let (mut bounds, mut at) = ([0; 23], 0);
    while at < bounds.len() {
        bounds[at] = HUNDREDTHS[at] * ForwardDebt::PPM / 100;
        at += 1;
    }
    bounds
}

/// Why an answered request of a model with an optimum has no debt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DebtGap {
    /// The upstream neither reported nor traced its forward.
    Forward,
    /// Its work is not known in the optimum's unit, or has no cost class.
    Work,
    /// It is compared with another optimum, or counted in another unit, than the first requests of the series.
    Mixed,
}

impl DebtGap {
    /// How many reasons there are.
    pub const COUNT: usize = 3;

    /// Every reason.
    pub const ALL: [Self; Self::COUNT] = [Self::Forward, Self::Work, Self::Mixed];

    /// The name on every surface.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Work => "work",
            Self::Mixed => "mixed",
        }
    }
}

/// Exact count, sum and maximum of debt ratios, in millionths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RatioExtent {
    /// How many ratios.
    pub count: u64,
    /// Their exact sum.
    pub sum_ppm: u128,
    /// The largest.
    pub max_ppm: u64,
}

impl RatioExtent {
    fn record(&mut self, ratio_ppm: u64) {
        self.count += 1;
        self.sum_ppm += u128::from(ratio_ppm);
        self.max_ppm = self.max_ppm.max(ratio_ppm);
    }

    /// Adds the ratios of another extent.
    pub fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.sum_ppm += other.sum_ppm;
        self.max_ppm = self.max_ppm.max(other.max_ppm);
    }

    /// The mean ratio: each request counts alike. `None` if there is none.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "a ratio")]
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum_ppm as f64 / self.count as f64 / ForwardDebt::PPM as f64)
    }
}

/// The debt of a series over a period of time: 150 bytes, and 48 for each cost class that occurred.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DebtTotals {
    /// Forward time of the requests that have a debt, in nanoseconds.
    pub forward_ns: u64,
    /// Its optimum, in picoseconds.
    pub optimum_ps: u128,
    /// The time above the optimum of the requests that took longer, in picoseconds.
    pub excess_ps: u128,
    /// The number of requests that were quicker than the optimum. Their ratios, below 1, are in the histograms.
    pub below: u64,
    /// The time by which they were quicker, in picoseconds; it is not taken off `excess_ps`.
    pub below_ps: u128,
    /// Answered requests without a debt, by [`DebtGap`].
    pub gaps: [u64; DebtGap::COUNT],
    classes: Sparse<RatioExtent, { Work::CLASSES }>,
}

impl DebtTotals {
    /// The ratios of one cost class.
    #[must_use]
    pub fn class(&self, class: usize) -> RatioExtent {
        self.classes.get(class).copied().unwrap_or_default()
    }

    /// The ratios of all cost classes.
    #[must_use]
    pub fn ratios(&self) -> RatioExtent {
        let mut all = RatioExtent::default();
        self.classes.list().iter().for_each(|class| all.merge(class));
        all
    }

    /// Forward time divided by its optimum: each request counts by its time. `None` if there is none.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "a ratio")]
    pub fn weighted(&self) -> Option<f64> {
        (self.optimum_ps > 0).then(|| self.forward_ns as f64 * 1e3 / self.optimum_ps as f64)
    }

    /// Adds the debt of another period of time.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.forward_ns = self.forward_ns.saturating_add(other.forward_ns);
        self.optimum_ps += other.optimum_ps;
        self.excess_ps += other.excess_ps;
        self.below += other.below;
        self.below_ps += other.below_ps;
        for (mine, theirs) in self.gaps.iter_mut().zip(other.gaps) {
            *mine += theirs;
        }
        self.classes.merge(&other.classes, RatioExtent::merge);
    }

    /// Adds an answered exchange whose model has an optimum, and returns its cost class and its ratio. `own` is the optimum of the
    /// series; `comparable` says that its work is counted in the series' own unit.
    pub(crate) fn record(&mut self, exchange: &Exchange, own: Option<LabelId>, comparable: bool) -> Option<(usize, u64)> {
        match assess(exchange, own, comparable) {
            Ok((class, debt)) => {
                self.forward_ns = self.forward_ns.saturating_add(debt.forward_ns);
                self.optimum_ps += u128::from(debt.optimum_ps.get());
                let excess_ps = debt.excess_ps();
                if excess_ps < 0 {
                    self.below += 1;
                    self.below_ps += excess_ps.unsigned_abs();
                } else {
                    self.excess_ps += excess_ps.unsigned_abs();
                }
                let ratio_ppm = debt.ratio_ppm();
                self.classes.at(class).record(ratio_ppm);
                Some((class, ratio_ppm))
            }
            Err(gap) => {
                self.gaps[gap as usize] += 1;
                None
            }
        }
    }
}

fn assess(exchange: &Exchange, own: Option<LabelId>, comparable: bool) -> Result<(usize, ForwardDebt), DebtGap> {
    let optimal = exchange.optimal_forward.ok_or(DebtGap::Work)?;
    if exchange.measured_forward_ns().is_none() {
        return Err(DebtGap::Forward);
    }
    let class = exchange.ledger.work.class().ok_or(DebtGap::Work)?;
    let debt = exchange.forward_debt().ok_or(DebtGap::Work)?;
    if Some(optimal.optimum) != own || !comparable {
        return Err(DebtGap::Mixed);
    }
    Ok((class, debt))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_rise_and_one_of_them_is_the_optimum() {
        assert!(DEBT_BOUNDS_PPM.is_sorted_by(|a, b| a < b) && DEBT_BOUNDS_PPM.contains(&ForwardDebt::PPM));
        assert_eq!((DEBT_BOUNDS_PPM[0], DEBT_BOUNDS_PPM.last()), (250_000, Some(&1_000_000_000)));
    }

    #[test]
    fn reasons_are_numbered_in_order() {
        assert!(DebtGap::ALL.iter().enumerate().all(|(at, gap)| *gap as usize == at));
    }

    #[test]
    fn it_is_as_small_as_said() {
        assert!(size_of::<DebtTotals>() <= 152, "{}", size_of::<DebtTotals>());
    }
}
