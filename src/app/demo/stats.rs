//! What the demo reads of `/stats`, as any user of the admin address would: JSON, integers in nanoseconds.
//!
//! Every member may be absent, so that the table goes on where the server says less.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The response.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Stats {
    /// How long the window really is.
    covered_ns: Option<f64>,
    pub series: Vec<Series>,
}

/// One route × model × upstream.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Series {
    pub route: Option<String>,
    pub model: Option<String>,
    pub count: u64,
    pub errors: u64,
    pub total: Figures,
    pub stages: BTreeMap<String, Figures>,
    pub coverage: Option<f64>,
}

/// The figures of one stage, or of the total.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Figures {
    pub count: u64,
    pub p50_ns: f64,
    pub p90_ns: f64,
    pub p99_ns: f64,
    pub share: Option<f64>,
    pub sources: BTreeMap<String, f64>,
}

impl Stats {
    /// Requests of all series, whatever became of them.
    pub(super) fn count(&self) -> u64 {
        self.series.iter().map(|s| s.count).sum()
    }

    /// Requests per second of a series over the window, which is no longer than `seconds`, the time since the start.
    pub(super) fn rate(&self, series: &Series, seconds: f64) -> f64 {
        let covered = self.covered_ns.map_or(seconds, |ns| ns / 1e9);
        series.count as f64 / covered.min(seconds).max(1e-3)
    }

    /// The series with the most requests; quantiles of several cannot be put together.
    pub(super) fn busiest(&self) -> Option<&Series> {
        self.series.iter().max_by_key(|s| s.count).filter(|s| s.count > 0)
    }
}

impl Figures {
    /// The source with the largest count, and its part in percent where it is not the only one.
    pub(super) fn source(&self) -> String {
        let all: f64 = self.sources.values().sum();
        match self.sources.iter().max_by(|a, b| a.1.total_cmp(b.1)) {
            Some((name, count)) if all > 0.0 && *count < all => format!("{name} {:.0} %", 100.0 * count / all),
            Some((name, _)) if all > 0.0 => name.clone(),
            _ => "-".to_owned(),
        }
    }
}
