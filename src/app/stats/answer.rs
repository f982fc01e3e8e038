//! The parts of `/stats` that `lapwing stats`, `lapwing top` and the demo read, as any user of the admin address would: JSON, durations
//! in nanoseconds.
//!
//! Every member may be absent, so that commands can read the figures of an older or a newer Lapwing.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

use crate::diagnosis::{FailureKind, FittedStages, InferredStages, exceeds_share};

/// The response.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::app) struct Stats {
    pub(in crate::app) window: String,
    /// The real length of the window.
    pub(in crate::app) covered_ns: Option<f64>,
    pub(in crate::app) series: Vec<Series>,
    pub(in crate::app) profiler: ProfilerHealth,
}

/// What Lapwing says of itself.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::app) struct ProfilerHealth {
    pub(in crate::app) uptime_ns: f64,
    pub(in crate::app) in_flight: u64,
    /// Requests whose profile was dropped since the start: they are in no other figure.
    pub(in crate::app) dropped: u64,
}

/// One route × model × upstream.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::app) struct Series {
    pub(in crate::app) route: Option<String>,
    pub(in crate::app) model: Option<String>,
    pub(in crate::app) upstream: Option<String>,
    pub(in crate::app) count: u64,
    pub(in crate::app) errors: u64,
    pub(in crate::app) outcomes: BTreeMap<String, u64>,
    pub(in crate::app) total: Figures,
    pub(in crate::app) stages: BTreeMap<String, Figures>,
    pub(in crate::app) phases: BTreeMap<String, Figures>,
    pub(in crate::app) cancelled: Figures,
    pub(in crate::app) failed: Figures,
    pub(in crate::app) streams: Figures,
    pub(in crate::app) first_byte: Option<Figures>,
    /// By measure; what is not a time has a count of zero.
    pub(in crate::app) generation: Option<BTreeMap<String, Option<Figures>>>,
    pub(in crate::app) per_unit: BTreeMap<String, UnitFigures>,
    pub(in crate::app) classes: Vec<ClassFigures>,
    pub(in crate::app) computational_debt: Option<DebtFigures>,
    pub(in crate::app) budget: BTreeMap<String, BudgetFigures>,
    pub(in crate::app) coverage: Option<f64>,
    #[serde(deserialize_with = "known")]
    pub(in crate::app) inferred: Option<InferredStages>,
}

/// What this version understands; `None` for another form.
fn known<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<InferredStages>, D::Error> {
    let value = serde_json::Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).ok())
}

/// The figures of one stage, or of the total.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::app) struct Figures {
    pub(in crate::app) count: u64,
    pub(in crate::app) mean_ns: f64,
    pub(in crate::app) p50_ns: f64,
    pub(in crate::app) p90_ns: f64,
    pub(in crate::app) p99_ns: f64,
    pub(in crate::app) max_ns: f64,
    pub(in crate::app) share: Option<f64>,
    pub(in crate::app) sources: BTreeMap<String, f64>,
}

/// Time per unit of work, in picoseconds.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::app) struct UnitFigures {
    pub(in crate::app) unit: String,
    pub(in crate::app) count: u64,
    pub(in crate::app) mean_ps: f64,
    pub(in crate::app) p50_ps: f64,
    pub(in crate::app) p90_ps: f64,
    pub(in crate::app) p99_ps: f64,
    pub(in crate::app) max_ps: f64,
}

/// Totals of the requests with `from..=to` of a unit.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::app) struct ClassFigures {
    pub(in crate::app) from: u64,
    pub(in crate::app) to: Option<u64>,
    pub(in crate::app) unit: String,
    #[serde(flatten)]
    pub(in crate::app) total: Figures,
}

/// Forward over its optimum.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::app) struct DebtFigures {
    pub(in crate::app) optimum: String,
    pub(in crate::app) ratio: Option<RatioFigures>,
}

/// Ratios, where 1 is the optimum.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::app) struct RatioFigures {
    pub(in crate::app) count: u64,
    pub(in crate::app) mean: f64,
    pub(in crate::app) p50: f64,
    pub(in crate::app) p90: f64,
    pub(in crate::app) p99: f64,
    pub(in crate::app) max: f64,
}

/// A latency budget.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::app) struct BudgetFigures {
    pub(in crate::app) limit_ns: f64,
    pub(in crate::app) requests: u64,
    pub(in crate::app) over: u64,
    pub(in crate::app) burn_rate: f64,
}

/// Outcomes that say nothing of the server's side.
const NOT_OF_SERVER: [&str; 4] = ["ok", "cancelled", "client_error", "rejected"];

impl Series {
    /// How the requests ended that did not end well, the most first.
    pub(in crate::app) fn failures(&self) -> Vec<(&str, u64)> {
        let failed = self.outcomes.iter().map(|(name, count)| (name.as_str(), *count));
        let mut failed: Vec<_> = failed.filter(|(name, count)| *name != "ok" && *count > 0).collect();
        failed.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        failed
    }

    /// How many requests failed at the server's side, or were shed.
    pub(in crate::app) fn failed_by_server(&self) -> u64 {
        self.failures()
            .iter()
            .filter(|(name, _)| !NOT_OF_SERVER.contains(name))
            .fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }

    /// Whether so many do that the series counts as failing, as in a diagnosis.
    pub(in crate::app) fn is_failing(&self) -> bool {
        let limit = FailureKind::UpstreamFailing.limit().unwrap_or_default();
        exceeds_share(self.failed_by_server(), self.count, limit)
    }

    /// The stages of its upstream, where they are inferred.
    pub(in crate::app) fn fitted(&self) -> Option<&FittedStages> {
        self.inferred.as_ref()?.fitted.as_ref()
    }
}

impl Stats {
    /// Requests per second of a series over the window, which is no longer than `seconds`, the time since the start.
    pub(in crate::app) fn rate(&self, series: &Series, seconds: f64) -> f64 {
        let covered = self.covered_ns.map_or(seconds, |ns| ns / 1e9);
        series.count as f64 / covered.min(seconds).max(1e-3)
    }
}
