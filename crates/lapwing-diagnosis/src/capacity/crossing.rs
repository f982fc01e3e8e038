//! The rate at which a quantile meets a budget.

use super::queue::quantile_ns;
use super::service::Request;

/// Where a quantile crosses its budget.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Crossing {
    /// It is over the budget without any load.
    Never,
    /// At this rate, per second.
    At(f64),
}

impl Crossing {
    /// The rate; zero for one that never keeps its budget.
    pub(crate) fn rate(self) -> f64 {
        match self {
            Self::Never => 0.0,
            Self::At(rate) => rate,
        }
    }
}

/// Finds the rate by bisection of the utilisation, to 0.1 %. All steps see the same requests, so that the quantile grows with the rate.
pub(crate) fn find(requests: &[Request], slots: u32, quantile: f64, budget_ns: f64) -> Crossing {
    const STEPS: usize = 10;
    let service: f64 = requests.iter().map(|request| request.service_ns).sum::<f64>() / requests.len().max(1) as f64;
    let most = f64::from(slots.max(1)) * 1e9 / service.max(1.0);
    if quantile_ns(requests, slots, most * 1e-3, quantile) > budget_ns {
        return Crossing::Never;
    }
    let (mut low, mut high) = (1e-3, 1.0);
    for _ in 0..STEPS {
        let middle = (low + high) / 2.0;
        if quantile_ns(requests, slots, most * middle, quantile) > budget_ns { high = middle } else { low = middle }
    }
    Crossing::At(most * (low + high) / 2.0)
}
