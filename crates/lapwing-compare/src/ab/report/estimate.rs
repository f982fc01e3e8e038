//! An estimate with its confidence interval.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ab::counts::BinCounts;
use crate::ab::evidence::rejected_ranks;
use crate::ab::tracking::QuantileTracker;

/// An estimate and the interval that holds the true value, together with all other intervals of its report.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct IntervalEstimate {
    /// The estimate; `None` without data, or where the quantile lies among failed sides.
    pub value: Option<f64>,
    /// The lower bound; 0 where nothing is known yet.
    pub low: f64,
    /// The upper bound; `None` where there is none yet.
    pub high: Option<f64>,
}

impl IntervalEstimate {
    pub(crate) fn new(value: Option<f64>, (low, high): (f64, f64)) -> Self {
        Self { value: value.filter(|value| value.is_finite()), low, high: Some(high).filter(|high| high.is_finite()) }
    }

    /// A share of `successes` among `trials`, with an interval within 0 and 1.
    pub(crate) fn share(successes: u64, trials: u64, interval: (f64, f64)) -> Self {
        Self::new(Some(successes as f64 / trials as f64), interval)
    }

    /// Whether a bound is missing, because it is too early for one or because one side fails.
    #[must_use]
    pub fn is_unbounded(&self) -> bool {
        self.high.is_none() || self.low <= 0.0
    }
}

/// The interval of a quantile, rounded outward to edges of bins; from 0 to infinity where nothing is known.
///
/// Howard and Ramdas, Bernoulli 28(3), 2022, theorem 1: the quantile lies between order statistics whose ranks are not rejected.
pub(crate) fn quantile_interval(
    bins: &BinCounts,
    tracker: &QuantileTracker,
    evidence: f64,
    edge: fn(usize) -> f64,
) -> (f64, f64) {
    let (low, high) = rejected_ranks(bins.total(), tracker.quantile, &tracker.variance(bins), evidence);
    let low = low.and_then(|rank| bins.find((rank + 1) as f64));
    let high = high.and_then(|rank| bins.find(rank as f64));
    (low.map_or(0.0, edge), high.map_or(f64::INFINITY, |bin| edge(bin + 1)))
}
