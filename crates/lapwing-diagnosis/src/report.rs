//! What a diagnosis says. These types are the JSON of `/diagnosis`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::bound::{Cause, LatencyBound};
use super::capacity::CapacityEstimate;
use super::failure_kind::FailureKind;
use super::fit::InferredStages;
use super::host::HostLoad;
use super::lever::LeverAdvice;
use super::tcp::ConnectionStates;
use super::telemetry_gap::TelemetryGap;

/// The diagnosis of every series of a window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Diagnosis {
    /// The window's length, in seconds.
    pub window_seconds: f64,
    /// What does not arrive, or cannot be read, so that figures lack it; the most that is missing first.
    #[serde(default)]
    pub missing: Vec<TelemetryGap>,
    /// Levers that are not on, and would help.
    #[serde(default)]
    pub levers: Vec<LeverAdvice>,
    /// Each series: those that fail first, then the one that lost most time.
    pub routes: Vec<RouteDiagnosis>,
    /// How busy the machine's processors were; `None` where the kernel does not say it.
    #[serde(default)]
    pub host: Option<HostLoad>,
    /// What the kernel says about the connections, at most a minute old.
    pub connections: Option<ConnectionStates>,
}

/// Whether a route is sound: its requests end well, and within its budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Within its budget, or without one and with a tail like its body.
    Healthy,
    /// Requests do not end well: `outcomes` says how.
    Failing,
    /// Longer than its budget.
    OverBudget,
    /// Without a budget: the tail is unlike the body.
    SlowTail,
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
    /// How all requests of the window ended.
    #[serde(default)]
    pub outcomes: RouteOutcomes,
    /// Requests of the window that ended well: those that all latencies are of.
    pub requests: u64,
    /// The median, in nanoseconds.
    pub p50_ns: u64,
    /// The 99th percentile, in nanoseconds.
    pub p99_ns: u64,
    /// The budget that is judged by; `None` if the route has none.
    pub budget: Option<MeasuredBudget>,
    /// Whether requests end well, and whether the budget is kept.
    pub status: Status,
    /// The diagnosis in words.
    pub summary: String,
    /// What is to blame, the most time first.
    pub verdicts: Vec<BoundVerdict>,
    /// What costs something on every request, whatever the budget.
    pub notices: Vec<Notice>,
    /// What is not known, and how it could be.
    pub missing: Vec<Missing>,
    /// What each stage takes of the tail, and of the body of the distribution.
    pub tail: Vec<TailShare>,
    /// Trace ids of exchanges that show it, the slowest first.
    pub exchanges: Vec<String>,
    /// What the upstream window is made of, inferred; `None` if the upstream reports it.
    pub inferred: Option<InferredStages>,
    /// How much more the server can take, estimated; `None` without a fit or a budget.
    pub capacity: Option<CapacityEstimate>,
}

/// How the requests of a series ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RouteOutcomes {
    /// All that ended, however they did.
    pub ended: u64,
    /// Those that ended well.
    pub well: u64,
    /// Each way in which others ended: what makes the series fail first, the most requests first.
    pub failures: Vec<FailureVerdict>,
}

/// One way in which requests do not end well.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FailureVerdict {
    /// In which way.
    pub kind: FailureKind,
    /// Whether the series counts as failing because of it: its share is above what is tolerable, by the lower end of the interval.
    pub is_trouble: bool,
    /// How many requests.
    pub count: u64,
    /// Of how many.
    pub of: u64,
    /// Their share, `0..=1`.
    pub share: f64,
    /// The interval that holds the share with a probability of 95 % (Wilson).
    pub share_interval: [f64; 2],
    /// How long they took in the mean, in seconds.
    pub mean_seconds: f64,
    /// How long ago the latest was, in seconds; `None` if it is not remembered.
    pub latest_seconds_ago: Option<f64>,
    /// The verdict in a sentence.
    pub sentence: String,
    /// What to do, the cheapest first.
    pub fixes: Vec<String>,
    /// Trace ids of the latest of them, the newest first.
    pub exchanges: Vec<String>,
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
    /// How often the same verdict comes first when time is drawn again, `0..=1`; at most how often it does in single blocks of time, and less
    /// where the machine's other load may be the cause.
    pub confidence: f64,
    /// Why it is less sure than its blocks of time make it: the machine's other load may be the cause; `None` if it is not.
    #[serde(default)]
    pub doubt: Option<String>,
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
    /// The threshold that it was compared with; `None` if there is none.
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
