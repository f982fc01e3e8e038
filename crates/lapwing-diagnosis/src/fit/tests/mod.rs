//! The fit against servers whose parameters are known, and against what carries no fit.

mod bounds;
mod ground_truth;
mod inferred;
mod refusals;
pub(crate) mod simulator;

use self::simulator::{Served, Server};
use super::{FitStatistics, FittedValue};

/// The statistics of what a proxy saw.
fn statistics(served: &[Served]) -> FitStatistics {
    let mut statistics = FitStatistics::default();
    for request in served {
        statistics.record(request.work, request.in_flight, request.window_ns, request.at_ns);
    }
    statistics
}

impl FittedValue {
    fn holds(&self, truth: f64) -> bool {
        self.low <= truth && truth <= self.high
    }

    fn is_within(&self, share: f64, truth: f64) -> bool {
        (self.value / truth - 1.0).abs() <= share
    }
}

/// Two slots, mixed work, 2 % outliers: what most tests are about.
const TWO_SLOTS: Server = Server { slots: 2, ..Server::PLAIN };
