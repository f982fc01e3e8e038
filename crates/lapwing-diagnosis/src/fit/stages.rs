//! The inferred stages of a series as `/diagnosis` shows them, apart from what was reported.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fitted::{FittedValue, FittedWaiting, WindowFit};
use super::infer::StageFigures;
use super::refusal::FitRefusal;

/// What the upstream windows of a series are made of, inferred from work and concurrency because the upstream reports nothing.
/// Exactly one of `fitted` and `refused` is there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InferredStages {
    /// Who says so: always `inferred`.
    pub source: String,
    /// The inferred stages, where the figures carry them.
    pub fitted: Option<FittedStages>,
    /// Why they do not.
    pub refused: Option<RefusedFit>,
}

/// Inferred stages and the parameters that they follow from. Every interval holds its value with a probability of 95 %.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FittedStages {
    /// Requests that were fitted, outliers included.
    pub requests: u64,
    /// The time that the server works on a request, outliers aside.
    pub forward: InferredStage,
    /// The time that a request waits for others; `None` if windows do not grow with the number in flight.
    pub queue: Option<InferredStage>,
    /// The mean time that neither explains, of all requests, in nanoseconds.
    pub unexplained_mean_ns: u64,
    /// What every request takes, in nanoseconds.
    pub fixed_ns: FittedValue,
    /// What each unit of work takes, in nanoseconds.
    pub per_unit_ns: FittedValue,
    /// The unit of work, such as `row` or `token`.
    pub unit: String,
    /// What each request ahead adds to the wait, in nanoseconds; `None` if no waiting was seen.
    pub per_ahead_ns: Option<FittedValue>,
    /// How many requests the server works on at once; `None` if no waiting was seen.
    pub slots: Option<u32>,
    /// The least and the most slots that the figures allow; `None` if no waiting was seen.
    pub slots_interval: Option<[u32; 2]>,
    /// The share of the windows' variance that the fit leaves, outliers aside, `0..=1`.
    pub unexplained_share: f64,
    /// The share of requests that are much longer or shorter than the fit explains, `0..=1`.
    pub outlier_share: f64,
}

/// One inferred stage, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InferredStage {
    /// The mean.
    pub mean_ns: FittedValue,
    /// The median.
    pub p50_ns: FittedValue,
    /// The 99th percentile.
    pub p99_ns: FittedValue,
}

/// Why nothing is inferred.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RefusedFit {
    /// The reason's name: `too_few_samples`, `work_does_not_vary`, `concurrency_does_not_vary`, `imprecise`, `unexplained` or
    /// `too_many_outliers`.
    pub reason: String,
    /// The reason in words.
    pub sentence: String,
    /// What would help.
    pub help: String,
}

impl InferredStages {
    /// Says what a fit found, or why there is none. `unit` is the singular of the unit of work.
    #[must_use]
    pub fn of(fit: &Result<WindowFit, FitRefusal>, unit: &str) -> Self {
        let (fitted, refused) = match fit {
            Ok(fit) => (Some(FittedStages::of(fit, unit)), None),
            Err(refusal) => (None, Some(RefusedFit::of(refusal))),
        };
        Self { source: "inferred".to_owned(), fitted, refused }
    }
}

impl FittedStages {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a mean of positive times")]
    fn of(fit: &WindowFit, unit: &str) -> Self {
        let forward = InferredStage::from(fit.forward());
        let queue = fit.queue().map(InferredStage::from);
        let explained = forward.mean_ns.value + queue.map_or(0.0, |queue| queue.mean_ns.value);
        let (per_ahead_ns, slots, slots_interval) = match fit.waiting {
            FittedWaiting::Unseen { .. } => (None, None, None),
            FittedWaiting::Fitted { per_ahead_ns, slots, slots_interval } => {
                (Some(per_ahead_ns), Some(slots), Some(slots_interval))
            }
        };
        Self {
            requests: fit.samples,
            forward,
            queue,
            unexplained_mean_ns: (fit.window_mean_ns - explained).max(0.0) as u64,
            fixed_ns: fit.fixed_ns,
            per_unit_ns: fit.per_unit_ns,
            unit: unit.to_owned(),
            per_ahead_ns,
            slots,
            slots_interval,
            unexplained_share: fit.unexplained_share,
            outlier_share: fit.outlier_share,
        }
    }
}

impl From<StageFigures> for InferredStage {
    fn from(figures: StageFigures) -> Self {
        Self { mean_ns: figures.mean_ns, p50_ns: figures.p50_ns, p99_ns: figures.p99_ns }
    }
}

impl RefusedFit {
    fn of(refusal: &FitRefusal) -> Self {
        Self { reason: refusal.name().to_owned(), sentence: refusal.to_string(), help: refusal.help().to_owned() }
    }
}
