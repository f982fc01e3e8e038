//! What a fit says about one exchange, and about all.

use super::fitted::{FittedValue, FittedWaiting, WindowFit};
use super::mixture::{self, Share};
use super::part::Part;

/// Beyond this many standard deviations a window is not shared out: what the model does not explain stays undivided.
const SHARED_OUT: f64 = 5.0;

/// What an exchange's upstream window is made of. The three sum to the window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InferredParts {
    /// The time that the server worked on it, in nanoseconds.
    pub forward_ns: FittedValue,
    /// The time that it waited for others, in nanoseconds.
    pub queue_ns: FittedValue,
    /// What neither explains, in nanoseconds: it belongs to the stage `upstream`, as before.
    pub unexplained_ns: f64,
}

/// Distributions of the inferred stages over all requests of a fit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct StageFigures {
    pub(crate) mean_ns: FittedValue,
    pub(crate) p50_ns: FittedValue,
    pub(crate) p99_ns: FittedValue,
}

impl WindowFit {
    /// Infers what an exchange's window is made of: each part has what is expected of it, and what is left over goes to the parts in
    /// proportion to their variances.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "nanoseconds of a window")]
    pub fn infer(&self, work: u64, in_flight: u32, window_ns: u64) -> InferredParts {
        let (work, in_flight, window) = (work as f64, f64::from(in_flight), window_ns as f64);
        let (service, wait) = (self.model.service(work), self.model.wait(in_flight));
        let (service_variance, wait_variance) = (self.model.service_variance(work), self.model.wait_variance(in_flight));
        let variance = service_variance + wait_variance;
        let off = window - service - wait;
        let (forward, queue) = if off > SHARED_OUT * variance.sqrt() {
            (service, wait)
        } else {
            let forward = (service + off * service_variance / variance).clamp(0.0, window);
            (forward, window - forward)
        };
        // a request that does not wait has no queue, whatever its window
        let (forward, queue) = if wait <= 0.0 { (forward + queue, 0.0) } else { (forward, queue) };
        let spread = 1.96 * (service_variance * wait_variance / variance).sqrt();
        let known = self.service_ns.half_width() / self.service_ns.value.max(1.0);
        let within = |value: f64, half_width: f64| FittedValue {
            value,
            low: (value - half_width).max(0.0),
            high: (value + half_width).min(window),
        };
        let half_width = if wait <= 0.0 { 0.0 } else { spread.hypot(known * service) };
        InferredParts {
            forward_ns: within(forward, half_width),
            queue_ns: within(queue, half_width),
            unexplained_ns: (window - forward - queue).max(0.0),
        }
    }

    /// The forward of all requests, outliers aside.
    pub(crate) fn forward(&self) -> StageFigures {
        self.figures(|part| {
            let model = part.model;
            let shares = part.cells.moments().iter().map(|cell| {
                let spread = model.per_unit * model.per_unit * cell.work_work / cell.weight.max(1e-9);
                Share {
                    weight: cell.weight,
                    mean: model.service(cell.work),
                    variance: model.service_variance(cell.work) + spread,
                }
            });
            shares.collect()
        })
    }

    /// The queue of all requests; `None` if no waiting was seen.
    pub(crate) fn queue(&self) -> Option<StageFigures> {
        matches!(self.waiting, FittedWaiting::Fitted { .. }).then(|| {
            self.figures(|part| {
                let shares = part.cells.moments().iter().map(|cell| Share {
                    weight: cell.weight,
                    mean: part.model.wait(cell.in_flight),
                    variance: part.model.wait_variance(cell.in_flight),
                });
                shares.collect()
            })
        })
    }

    fn figures(&self, shares: impl Fn(&Part) -> Vec<Share>) -> StageFigures {
        StageFigures {
            mean_ns: self.derive(|part| mixture::mean(&shares(part))),
            p50_ns: self.derive(|part| mixture::quantile(&shares(part), 0.5)),
            p99_ns: self.derive(|part| mixture::quantile(&shares(part), 0.99)),
        }
    }
}
