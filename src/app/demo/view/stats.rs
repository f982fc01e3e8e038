//! The parts of `/stats` that the demo reads, as any user of the admin address would: JSON, integers in nanoseconds.
//!
//! Every member may be absent, so that the table works if the server reports less.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The response.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::app::demo) struct Stats {
    /// The real length of the window.
    covered_ns: Option<f64>,
    pub(in crate::app::demo) series: Vec<Series>,
}

/// One route × model × upstream.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::app::demo) struct Series {
    pub(in crate::app::demo) route: Option<String>,
    pub(in crate::app::demo) model: Option<String>,
    pub(in crate::app::demo) count: u64,
    pub(in crate::app::demo) errors: u64,
    pub(in crate::app::demo) total: Figures,
    pub(in crate::app::demo) stages: BTreeMap<String, Figures>,
    pub(in crate::app::demo) coverage: Option<f64>,
}

/// The figures of one stage, or of the total.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::app::demo) struct Figures {
    pub(in crate::app::demo) count: u64,
    pub(in crate::app::demo) p50_ns: f64,
    pub(in crate::app::demo) p90_ns: f64,
    pub(in crate::app::demo) p99_ns: f64,
    pub(in crate::app::demo) share: Option<f64>,
    pub(in crate::app::demo) sources: BTreeMap<String, f64>,
}

impl Stats {
    /// Requests of all series, with any outcome.
    pub(in crate::app::demo) fn count(&self) -> u64 {
        self.series.iter().map(|s| s.count).sum()
    }

    /// Whether the time of a stage of the busiest series is known.
    pub(in crate::app::demo) fn has_stages(&self) -> bool {
        self.busiest().is_some_and(|series| series.stages.values().any(|figures| figures.share.is_some_and(|share| share > 0.0)))
    }

    /// Requests per second of a series over the window, which is no longer than `seconds`, the time since the start.
    pub(in crate::app::demo) fn rate(&self, series: &Series, seconds: f64) -> f64 {
        let covered = self.covered_ns.map_or(seconds, |ns| ns / 1e9);
        series.count as f64 / covered.min(seconds).max(1e-3)
    }

    /// The series with the most requests, because quantiles of several series cannot be combined.
    pub(in crate::app::demo) fn busiest(&self) -> Option<&Series> {
        self.series.iter().max_by_key(|s| s.count).filter(|s| s.count > 0)
    }
}

impl Figures {
    /// The source with the largest count, and its share in percent if it is not the only one.
    pub(in crate::app::demo) fn source(&self) -> String {
        let all: f64 = self.sources.values().sum();
        match self.sources.iter().max_by(|a, b| a.1.total_cmp(b.1)) {
            Some((name, count)) if all > 0.0 && *count < all => format!("{name} {:.0} %", 100.0 * count / all),
            Some((name, _)) if all > 0.0 => name.clone(),
            _ => "-".to_owned(),
        }
    }
}
