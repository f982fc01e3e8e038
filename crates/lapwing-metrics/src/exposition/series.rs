//! One series as a scrape shows it, and histograms over all series.

use std::fmt;
use std::sync::Arc;

use super::encode::{Encoder, ExemplarSample, HistogramSample, SampleLabels, family};
use super::native::NativeHistogram;
use crate::defs::MetricFamily;
use crate::{
    BatchStatistics, DEBT_BOUNDS_PPM, Exemplar, Measure, PER_UNIT_BOUNDS_PS, REQUEST_BOUNDS_NS, RouteBudget, STREAM_BOUNDS_NS,
    SeriesFacts, SeriesSnapshot, SeriesTotals,
};
use lapwing_ledger::Stamp;

/// SampleLabels of a sample in addition to those of its series.
/// What a scrape reads of each series in addition to its counts.
#[derive(Clone, Copy, Debug)]
pub struct ScrapeScope {
    /// The process's start by both clocks.
    pub started: Stamp,
    /// The same, in nanoseconds since the Unix epoch.
    pub started_unix_ns: u64,
    /// The schema of native histograms, if the format has them.
    pub native_schema: Option<i8>,
}

/// A series, copied out of the registry.
#[derive(Debug)]
pub struct ScrapedSeries {
    labels: [(&'static str, Arc<str>); 3],
    /// Since when it counts, in nanoseconds since the Unix epoch.
    pub since_unix_ns: u64,
    /// What is known about it.
    pub facts: SeriesFacts,
    /// Its exact counts.
    pub figures: SeriesTotals,
    /// The budgets of its route.
    pub budget: RouteBudget,
    /// The latest batches by the upstream's statistics.
    pub batch: Option<BatchStatistics>,
    /// What its debts are compared with.
    pub optimum: Option<Arc<str>>,
    /// The values of each measure that occurred.
    pub histograms: Vec<MeasureHistogram>,
    exemplars: Vec<Arc<Exemplar>>,
}

/// The values of one measure by buckets.
#[derive(Debug)]
pub struct MeasureHistogram {
    /// The measure.
    pub measure: Measure,
    buckets: Vec<u64>,
    native: Option<NativeHistogram>,
}

impl ScrapedSeries {
    /// Counts the buckets of a copied series.
    #[must_use]
    pub fn of(series: &SeriesSnapshot, scope: &ScrapeScope) -> Self {
        let labels = [&series.route, &series.model, &series.upstream].map(Arc::clone);
        let [route, model, upstream] = labels;
        let occurred = Measure::all().filter(|m| *m == Measure::Total || series.figures.values(*m) > 0);
        let histogram = |measure| MeasureHistogram {
            measure,
            buckets: series.buckets(measure, bounds(measure)),
            native: scope.native_schema.map(|schema| NativeHistogram::of(series.exponential(measure, schema, per(measure)))),
        };
        Self {
            labels: [("route", route), ("model", model), ("upstream", upstream)],
            since_unix_ns: scope.started_unix_ns.saturating_add(series.opened.since(scope.started)),
            facts: series.facts,
            figures: series.figures.clone(),
            budget: series.budget,
            batch: series.batch,
            optimum: series.optimum.clone(),
            histograms: occurred.map(histogram).collect(),
            exemplars: series.exemplars.clone(),
        }
    }

    /// A series of copies, whose target takes the place of the upstream.
    #[must_use]
    pub fn of_copies(series: &SeriesSnapshot, target: &str, scope: &ScrapeScope) -> Self {
        let of = Self::of(series, scope);
        let [route, model, _] = of.labels;
        Self { labels: [("target", target.into()), route, model], ..of }
    }

    /// The labels of the series, followed by `more`.
    #[must_use]
    pub fn with<'a>(&'a self, more: &[(&'static str, &'a str)]) -> SampleLabels<'a> {
        let pairs = self.labels.iter().map(|(name, value)| (*name, &**value)).chain(more.iter().copied()).collect();
        SampleLabels { pairs, since_unix_ns: Some(self.since_unix_ns) }
    }

    /// Route, model and upstream.
    #[must_use]
    pub fn names(&self) -> [Arc<str>; 3] {
        self.labels.each_ref().map(|(_, name)| name.clone())
    }

    /// The route's name.
    #[must_use]
    pub fn route(&self) -> &str {
        &self.labels[0].1
    }

    /// The upstream's name.
    #[must_use]
    pub fn upstream(&self) -> &str {
        &self.labels[2].1
    }
}

impl MeasureHistogram {
    /// Writes the histogram of `series` with its exact count and sum.
    ///
    /// # Errors
    ///
    /// When it cannot be encoded, which does not happen.
    pub fn write(
        &self,
        encoder: &mut dyn Encoder,
        series: &ScrapedSeries,
        labels: &SampleLabels<'_>,
        count: u64,
        sum: f64,
    ) -> fmt::Result {
        let bounds = bounds(self.measure).iter().map(|bound| in_base_unit(self.measure, *bound)).chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(self.buckets.iter().copied()).collect();
        let exemplar = |one: &Arc<Exemplar>| {
            let value = in_base_unit(self.measure, one.value(self.measure)?);
            Some(ExemplarSample { trace: one.trace, value, ended_unix_ns: one.ended_unix_ns })
        };
        let exemplars: Vec<_> = series.exemplars.iter().filter_map(exemplar).collect();
        let native = self.native.as_ref();
        encoder.histogram(labels, &HistogramSample { count, sum, buckets: &buckets, native, exemplars: &exemplars })
    }
}

/// Writes a histogram family: for each series, the measures for which `own` returns labels.
///
/// # Errors
///
/// When it cannot be encoded, which does not happen.
pub fn histogram(
    all: &[ScrapedSeries],
    encoder: &mut dyn Encoder,
    definition: &MetricFamily,
    own: impl Fn(&ScrapedSeries, Measure) -> Option<Vec<(&'static str, &'static str)>>,
) -> fmt::Result {
    family(encoder, definition, |encoder| {
        for series in all {
            for values in &series.histograms {
                let Some(own) = own(series, values.measure) else { continue };
                let (sum, count) = (sum(series, values.measure), series.figures.values(values.measure));
                values.write(encoder, series, &series.with(&own), count, sum)?;
            }
        }
        Ok(())
    })
}

const fn bounds(measure: Measure) -> &'static [u64] {
    match measure {
        Measure::Stream => STREAM_BOUNDS_NS,
        Measure::PerUnit(_) => PER_UNIT_BOUNDS_PS,
        Measure::Debt(_) => DEBT_BOUNDS_PPM,
        _ => REQUEST_BOUNDS_NS,
    }
}

/// How many of a measure's values are one second, or a ratio of one.
const fn per(measure: Measure) -> f64 {
    match measure {
        Measure::PerUnit(_) => 1e12,
        Measure::Debt(_) => 1e6,
        _ => 1e9,
    }
}

#[allow(clippy::cast_precision_loss, reason = "Prometheus has seconds in floating point")]
fn in_base_unit(measure: Measure, value: u64) -> f64 {
    value as f64 / per(measure)
}

#[allow(clippy::cast_precision_loss, reason = "Prometheus has seconds in floating point")]
fn sum(series: &ScrapedSeries, measure: Measure) -> f64 {
    match measure {
        Measure::PerUnit(slot) => series.figures.per_unit(slot).sum_ps as f64 / 1e12,
        _ => seconds(series.figures.extent(measure).sum_ns),
    }
}

/// Nanoseconds as seconds.
#[must_use]
#[allow(clippy::cast_precision_loss, reason = "Prometheus has seconds in floating point")]
pub fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
