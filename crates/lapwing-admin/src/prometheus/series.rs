//! One series as a scrape shows it, and histograms over all series.

use std::fmt;
use std::sync::Arc;

use super::encode::{Encoder, ExemplarSample, HistogramSample, Labels, family};
use super::native::NativeHistogram;
use lapwing_ledger::Stamp;
use lapwing_metrics::defs::MetricFamily;
use lapwing_metrics::{
    BatchStatistics, DEBT_BOUNDS_PPM, Exemplar, Measure, PER_UNIT_BOUNDS_PS, REQUEST_BOUNDS_NS, RouteBudget, STREAM_BOUNDS_NS,
    SeriesFacts, SeriesSnapshot, SeriesTotals,
};

/// Labels of a sample in addition to those of its series.
pub(crate) type Own<'a> = Vec<(&'static str, &'a str)>;

/// What a scrape reads of each series, beside its counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scope {
    /// The process's start by both clocks.
    pub(crate) started: Stamp,
    pub(crate) started_unix_ns: u64,
    /// The schema of native histograms, if the format has them.
    pub(crate) native_schema: Option<i8>,
}

/// A series, copied out of the registry.
#[derive(Debug)]
pub(crate) struct Series {
    labels: [(&'static str, Arc<str>); 3],
    pub(crate) since_unix_ns: u64,
    pub(crate) facts: SeriesFacts,
    pub(crate) figures: SeriesTotals,
    pub(crate) budget: RouteBudget,
    /// The latest batches by the upstream's statistics.
    pub(crate) batch: Option<BatchStatistics>,
    /// What its debts are compared with.
    pub(crate) optimum: Option<Arc<str>>,
    /// The values of each measure that occurred.
    pub(crate) histograms: Vec<MeasureHistogram>,
    exemplars: Vec<Arc<Exemplar>>,
}

/// The values of one measure by buckets.
#[derive(Debug)]
pub(crate) struct MeasureHistogram {
    pub(crate) measure: Measure,
    buckets: Vec<u64>,
    native: Option<NativeHistogram>,
}

impl Series {
    pub(crate) fn of(series: &SeriesSnapshot, scope: &Scope) -> Self {
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
    pub(crate) fn of_copies(series: &SeriesSnapshot, target: &str, scope: &Scope) -> Self {
        let of = Self::of(series, scope);
        let [route, model, _] = of.labels;
        Self { labels: [("target", target.into()), route, model], ..of }
    }

    /// The labels of the series, followed by `more`.
    pub(crate) fn with<'a>(&'a self, more: &[(&'static str, &'a str)]) -> Labels<'a> {
        let pairs = self.labels.iter().map(|(name, value)| (*name, &**value)).chain(more.iter().copied()).collect();
        Labels { pairs, since_unix_ns: Some(self.since_unix_ns) }
    }

    /// Route, model and upstream.
    pub(crate) fn names(&self) -> [Arc<str>; 3] {
        self.labels.each_ref().map(|(_, name)| name.clone())
    }

    /// The route's name.
    pub(crate) fn route(&self) -> &str {
        &self.labels[0].1
    }

    /// The upstream's name.
    pub(crate) fn upstream(&self) -> &str {
        &self.labels[2].1
    }
}

impl MeasureHistogram {
    /// Writes the histogram of `series` with its exact count and sum.
    pub(crate) fn write(
        &self,
        encoder: &mut dyn Encoder,
        series: &Series,
        labels: &Labels<'_>,
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
pub(crate) fn histogram(
    all: &[Series],
    encoder: &mut dyn Encoder,
    definition: &MetricFamily,
    own: impl Fn(&Series, Measure) -> Option<Own<'static>>,
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
fn sum(series: &Series, measure: Measure) -> f64 {
    match measure {
        Measure::PerUnit(slot) => series.figures.per_unit(slot).sum_ps as f64 / 1e12,
        _ => seconds(series.figures.extent(measure).sum_ns),
    }
}

#[allow(clippy::cast_precision_loss, reason = "Prometheus has seconds in floating point")]
pub(crate) fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
