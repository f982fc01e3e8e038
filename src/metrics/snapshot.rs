//! What a query of the registry gives: plain data, copied out, that nobody else changes. Durations are nanoseconds.

use std::sync::Arc;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::cells::Count;
use super::figures::{Figures, Measure};
use super::layout::{histogram, lowest};
use super::window::Window;
use crate::ledger::{SeriesKey, Source, Stage};

/// Every series with traffic in a window.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The window asked for.
    pub window: Window,
    /// How long the window really is: from its first slot's begin until now.
    pub covered_ns: u64,
    /// The series, by route, model and upstream.
    pub series: Vec<SeriesSnapshot>,
}

/// One series in a window.
#[derive(Clone, Debug)]
pub struct SeriesSnapshot {
    /// The key.
    pub key: SeriesKey,
    /// The route's text.
    pub route: Arc<str>,
    /// The model's text; empty where a request names none.
    pub model: Arc<str>,
    /// The upstream's text.
    pub upstream: Arc<str>,
    /// Exact counts and sums.
    pub figures: Figures,
    pub(super) counts: Vec<Count<u64>>,
}

/// The figures of one histogram. Quantiles are those of the merged histogram, at most 0.1 % (below 1 ms: 512 ns) high;
/// count, mean and maximum are exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Distribution {
    /// How many durations.
    pub count: u64,
    /// Exact sum over count.
    pub mean_ns: u64,
    /// Median.
    pub p50_ns: u64,
    /// 90th percentile.
    pub p90_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// The longest, exactly.
    pub max_ns: u64,
}

impl SeriesSnapshot {
    /// The counts of one measure: lowest value of the cell, and how many fell into it, in rising order.
    pub fn counts(&self, measure: Measure) -> impl Iterator<Item = (u64, u64)> {
        let prefix = measure.index() as u32;
        let from = self.counts.partition_point(|c| c.key >> 16 < prefix);
        self.counts[from..].iter().take_while(move |c| c.key >> 16 == prefix).map(|c| (lowest(c.key as u16), c.count))
    }

    /// Empties `into` and fills it with one measure. It must have the layout of [`super::histogram`].
    pub fn fill(&self, measure: Measure, into: &mut Histogram<u64>) {
        into.reset();
        for (value, count) in self.counts(measure) {
            into.saturating_record_n(value, count);
        }
    }

    /// One measure as a histogram of its own.
    #[must_use]
    pub fn histogram(&self, measure: Measure) -> Histogram<u64> {
        let mut into = histogram();
        self.fill(measure, &mut into);
        into
    }

    /// Count, mean, quantiles and maximum of one measure; `scratch` is overwritten, so that one serves many calls.
    pub fn distribution(&self, measure: Measure, scratch: &mut Histogram<u64>) -> Distribution {
        let extent = self.figures.extent(measure);
        if extent.count == 0 {
            return Distribution::default();
        }
        self.fill(measure, scratch);
        let mut quantiles = [0; 4];
        for (place, value) in quantiles.iter_mut().zip(scratch.value_at_quantiles([0.5, 0.9, 0.99, 0.999])) {
            *place = value.min(extent.max_ns);
        }
        let [p50_ns, p90_ns, p99_ns, p999_ns] = quantiles;
        let mean_ns = extent.sum_ns / extent.count;
        Distribution { count: extent.count, mean_ns, p50_ns, p90_ns, p99_ns, p999_ns, max_ns: extent.max_ns }
    }

    /// The share of a stage: its sum over the sum of totals, `0..=1`; zero where nothing was answered.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "a ratio")]
    pub fn share(&self, stage: Stage) -> f64 {
        let total = self.figures.extent(Measure::Total).sum_ns;
        if total == 0 { 0.0 } else { self.figures.extent(Measure::Stage(stage)).sum_ns as f64 / total as f64 }
    }

    /// On whose word, and in how many requests, a stage is known.
    pub fn sources(&self, stage: Stage) -> impl Iterator<Item = (Source, u64)> {
        Source::ALL.into_iter().zip(self.figures.sources[stage.index()]).filter(|(_, count)| *count > 0)
    }
}
