//! The parts of `/stats` that `lapwing stats`, `lapwing top` and the demo read, as any user of the admin address would: JSON, durations
//! in nanoseconds.
//!
//! Every member may be absent, so that commands can read the figures of an older or a newer Lapwing.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

use lapwing_diagnosis::{FailureKind, FittedStages, InferredStages, exceeds_share};

/// The response.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Stats {
    pub(crate) window: String,
    /// The real length of the window.
    pub(crate) covered_ns: Option<f64>,
    /// Its series.
    pub series: Vec<Series>,
    pub(crate) profiler: ProfilerHealth,
    /// The queue in front of the upstreams, unless it is off.
    pub(crate) dispatch: Option<WaitingRequests>,
}

/// What waits in front of the upstreams.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct WaitingRequests {
    /// Whether requests wait; else it is only observed what that would bring.
    pub(crate) is_on: bool,
    pub(crate) waiting: u64,
    /// Requests that asked to be sent, and are at an upstream.
    pub(crate) running: u64,
    /// Upstreams that fail or stand still, and are sent nothing that can go elsewhere.
    pub(crate) left_out: u64,
}

/// What Lapwing says about itself.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ProfilerHealth {
    pub(crate) uptime_ns: f64,
    pub(crate) in_flight: u64,
    /// Requests whose profile was dropped since the start: they are in no other figure.
    pub(crate) dropped: u64,
}

/// One route × model × upstream.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Series {
    /// Its route; `None` for the rest of all routes.
    pub route: Option<String>,
    /// Its model, if requests name one.
    pub model: Option<String>,
    pub(crate) upstream: Option<String>,
    /// Requests, with any outcome.
    pub count: u64,
    /// Requests that failed.
    pub errors: u64,
    pub(crate) outcomes: BTreeMap<String, u64>,
    /// The whole of a request.
    pub total: Figures,
    /// Its parts, by the name of the stage.
    pub stages: BTreeMap<String, Figures>,
    pub(crate) phases: BTreeMap<String, Figures>,
    /// Requests that were given the answer to another one.
    pub(crate) cached: Figures,
    pub(crate) cancelled: Figures,
    pub(crate) failed: Figures,
    pub(crate) streams: Figures,
    pub(crate) first_byte: Option<Figures>,
    /// By measure; what is not a time has a count of zero.
    pub(crate) generation: Option<BTreeMap<String, Option<Figures>>>,
    pub(crate) per_unit: BTreeMap<String, UnitFigures>,
    pub(crate) classes: Vec<ClassFigures>,
    pub(crate) computational_debt: Option<DebtFigures>,
    pub(crate) budget: BTreeMap<String, BudgetFigures>,
    pub(crate) goodput: Option<GoodputFigures>,
    /// The share of the upstream window that is reported, `0..=1`.
    pub coverage: Option<f64>,
    #[serde(deserialize_with = "known")]
    pub(crate) inferred: Option<InferredStages>,
    pub(crate) polled: Option<PolledFigures>,
}

/// What the server counted for all its requests together.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PolledFigures {
    pub(crate) stages: BTreeMap<String, PolledMean>,
    pub(crate) phases: BTreeMap<String, PolledMean>,
}

/// The mean of one stage or phase.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PolledMean {
    pub(crate) count: u64,
    pub(crate) mean_ns: f64,
}

/// What this version understands; `None` for another form.
fn known<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<InferredStages>, D::Error> {
    let value = serde_json::Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).ok())
}

/// The figures of one stage, or of the total.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Figures {
    /// Values.
    pub count: u64,
    pub(crate) mean_ns: f64,
    /// The median, in nanoseconds.
    pub p50_ns: f64,
    /// The 90th percentile, in nanoseconds.
    pub p90_ns: f64,
    /// The 99th percentile, in nanoseconds.
    pub p99_ns: f64,
    pub(crate) max_ns: f64,
    /// The share of the total, `0..=1`.
    pub share: Option<f64>,
    /// How many values came from each source.
    pub sources: BTreeMap<String, f64>,
}

/// Time per unit of work, in picoseconds.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct UnitFigures {
    pub(crate) unit: String,
    pub(crate) count: u64,
    pub(crate) mean_ps: f64,
    pub(crate) p50_ps: f64,
    pub(crate) p90_ps: f64,
    pub(crate) p99_ps: f64,
    pub(crate) max_ps: f64,
}

/// Totals of the requests with `from..=to` of a unit.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ClassFigures {
    pub(crate) from: u64,
    pub(crate) to: Option<u64>,
    pub(crate) unit: String,
    #[serde(flatten)]
    pub(crate) total: Figures,
}

/// Forward over its optimum.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct DebtFigures {
    pub(crate) optimum: String,
    pub(crate) ratio: Option<RatioFigures>,
}

/// Ratios, where 1 is the optimum.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct RatioFigures {
    pub(crate) count: u64,
    pub(crate) mean: f64,
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
}

/// A latency budget.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct BudgetFigures {
    pub(crate) limit_ns: f64,
    pub(crate) requests: u64,
    pub(crate) over: u64,
    pub(crate) burn_rate: f64,
}

/// What was within its budget, of the requests that had one.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct GoodputFigures {
    pub(crate) requests: u64,
    pub(crate) within: u64,
    pub(crate) share: Option<f64>,
    pub(crate) missed: BTreeMap<String, u64>,
}

/// Outcomes that say nothing of the server's side.
const NOT_OF_SERVER: [&str; 4] = ["ok", "cancelled", "client_error", "rejected"];

impl Series {
    /// How the requests ended that did not end well, the most first.
    pub(crate) fn failures(&self) -> Vec<(&str, u64)> {
        let failed = self.outcomes.iter().map(|(name, count)| (name.as_str(), *count));
        let mut failed: Vec<_> = failed.filter(|(name, count)| *name != "ok" && *count > 0).collect();
        failed.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        failed
    }

    /// How many requests failed at the server's side, or were shed.
    pub(crate) fn failed_by_server(&self) -> u64 {
        self.failures()
            .iter()
            .filter(|(name, _)| !NOT_OF_SERVER.contains(name))
            .fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }

    /// Whether enough do that the series counts as failing, as in a diagnosis.
    pub(crate) fn is_failing(&self) -> bool {
        let limit = FailureKind::UpstreamFailing.limit().unwrap_or_default();
        exceeds_share(self.failed_by_server(), self.count, limit)
    }

    /// The stages of its upstream, where they are inferred.
    pub(crate) fn fitted(&self) -> Option<&FittedStages> {
        self.inferred.as_ref()?.fitted.as_ref()
    }
}

impl Stats {
    /// Requests per second of a series over the window, which is no longer than `seconds`, the time since the start.
    pub fn rate(&self, series: &Series, seconds: f64) -> f64 {
        let covered = self.covered_ns.map_or(seconds, |ns| ns / 1e9);
        series.count as f64 / covered.min(seconds).max(1e-3)
    }
}

impl Stats {
    /// Requests of all series, with any outcome.
    pub fn count(&self) -> u64 {
        self.series.iter().map(|s| s.count).sum()
    }

    /// Whether the time of a stage of the busiest series is known.
    pub fn has_stages(&self) -> bool {
        self.busiest().is_some_and(|series| series.stages.values().any(|figures| figures.share.is_some_and(|share| share > 0.0)))
    }

    /// The series with the most requests, because quantiles of several series cannot be combined.
    pub fn busiest(&self) -> Option<&Series> {
        self.series.iter().max_by_key(|s| s.count).filter(|s| s.count > 0)
    }
}

impl Figures {
    /// The source with the largest count, and its share in percent if it is not the only one.
    pub fn source(&self) -> String {
        let all: f64 = self.sources.values().sum();
        match self.sources.iter().max_by(|a, b| a.1.total_cmp(b.1)) {
            Some((name, count)) if all > 0.0 && *count < all => format!("{name} {:.0} %", 100.0 * count / all),
            Some((name, _)) if all > 0.0 => name.clone(),
            _ => "-".to_owned(),
        }
    }
}
