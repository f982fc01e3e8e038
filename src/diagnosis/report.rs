//! What a diagnosis says. These types are the JSON of `/diagnosis`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::bound::{Cause, LatencyBound};
use super::capacity::CapacityEstimate;
use super::fit::InferredStages;
use super::tcp::ConnectionStates;

/// The diagnosis of every series of a window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Diagnosis {
    /// The window's length, in seconds.
    pub window_seconds: f64,
    /// Each series, the one that lost most time first.
    pub routes: Vec<RouteDiagnosis>,
    /// What the kernel says of the connections, at most a minute old.
    pub connections: Option<ConnectionStates>,
}

/// Whether a route keeps its budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Within its budget, or without one and with a tail like its body.
    Healthy,
    /// Longer than its budget.
    OverBudget,
    /// The figures carry no verdict; `missing` says why.
    #[default]
    NotEnoughEvidence,
}

/// The diagnosis of one series.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RouteDiagnosis {
    /// Method and path.
    pub route: String,
    /// The model; empty if the protocol names none.
    pub model: String,
    /// The upstream.
    pub upstream: String,
    /// Answered requests in the window.
    pub requests: u64,
    /// The median, in nanoseconds.
    pub p50_ns: u64,
    /// The 99th percentile, in nanoseconds.
    pub p99_ns: u64,
    /// The budget that is judged by; `None` if the route has none.
    pub budget: Option<MeasuredBudget>,
    /// Whether the budget is kept.
    pub status: Status,
    /// The diagnosis in words.
    pub summary: String,
    /// What is to blame, the most time first.
    pub verdicts: Vec<BoundVerdict>,
    /// What costs something on every request, whatever the budget.
    pub notices: Vec<Notice>,
    /// What is not known, and how it could be.
    pub missing: Vec<Missing>,
    /// What each stage takes of the tail beside what it takes of the body of the distribution.
    pub tail: Vec<TailShare>,
    /// Trace ids of exchanges that show it, the slowest first.
    pub exchanges: Vec<String>,
    /// What the upstream window is made of, inferred; `None` if the upstream reports it.
    pub inferred: Option<InferredStages>,
    /// How much more the server can take, estimated; `None` without a fit or a budget.
    pub capacity: Option<CapacityEstimate>,
}

/// A budget and what was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MeasuredBudget {
    /// The quantile, such as `p99`.
    pub quantile: String,
    /// The budget, in nanoseconds.
    pub limit_ns: u64,
    /// The quantile as measured, in nanoseconds.
    pub measured_ns: u64,
    /// Time above the budget, of all requests that took longer, in nanoseconds.
    pub excess_ns: u64,
}

/// One thing that is to blame.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BoundVerdict {
    /// What limits the route.
    pub bound: LatencyBound,
    /// Why.
    pub cause: Cause,
    /// The share of the time in question that it explains, `0..=1`.
    pub share: f64,
    /// The interval that holds the share with a probability of 95 %.
    pub share_interval: [f64; 2],
    /// How often the same verdict comes first when time is drawn again, `0..=1`.
    pub confidence: f64,
    /// The verdict in a sentence.
    pub sentence: String,
    /// What shows it.
    pub evidence: Vec<Evidence>,
    /// What to do, the cheapest first.
    pub fixes: Vec<String>,
    /// The rule that it follows from, by its name in docs/DIAGNOSIS.md.
    pub rule: String,
}

/// A measured quantity that a verdict rests on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Evidence {
    /// What was measured, in words.
    pub what: String,
    /// The figure.
    pub value: f64,
    /// Its unit: `seconds`, `ratio`, `requests`, `bytes`, `per second`.
    pub unit: String,
    /// The threshold that it was held against; `None` if none was.
    pub threshold: Option<f64>,
}

/// Something that costs time or work on every request, whatever the budget.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Notice {
    /// Its name in docs/DIAGNOSIS.md.
    pub name: String,
    /// What it is, in a sentence.
    pub sentence: String,
    /// What shows it.
    pub evidence: Vec<Evidence>,
    /// What to do, the cheapest first.
    pub fixes: Vec<String>,
}

/// What a verdict lacks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Missing {
    /// What is not known.
    pub what: String,
    /// How it could be.
    pub how: String,
}

/// A stage in the tail and in the body of the distribution.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TailShare {
    /// The stage.
    pub stage: String,
    /// Its mean in exchanges around the median, in nanoseconds.
    pub body_ns: f64,
    /// Its mean in exchanges of the tail, in nanoseconds.
    pub tail_ns: f64,
    /// Its share of the median's time, `0..=1`.
    pub share_of_p50: f64,
    /// Its share of the tail's time, `0..=1`.
    pub share_of_p99: f64,
    /// Its share of what the tail takes beyond the body, or of the time above the budget; negative if it takes less there.
    pub share_of_excess: f64,
    /// The interval that holds `share_of_excess` with a probability of 95 %.
    pub excess_interval: [f64; 2],
}
