//! One series as a scrape shows it, and histograms over all series.

use std::fmt;
use std::sync::Arc;

use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};

use super::encode::{Labels, family};
use crate::metrics::defs::MetricFamily;
use crate::metrics::{
    BatchStatistics, DEBT_BOUNDS_PPM, Measure, PER_UNIT_BOUNDS_PS, REQUEST_BOUNDS_NS, STREAM_BOUNDS_NS, SeriesFacts,
    SeriesSnapshot, SeriesTotals,
};

/// Labels of a sample in addition to those of its series.
pub(super) type Own<'a> = Vec<(&'static str, &'a str)>;

/// A series, copied out of the registry.
#[derive(Debug)]
pub(super) struct Series {
    labels: [(&'static str, Arc<str>); 3],
    pub(super) facts: SeriesFacts,
    pub(super) figures: SeriesTotals,
    /// The latest batches by the upstream's statistics.
    pub(super) batch: Option<BatchStatistics>,
    /// What its debts are compared with.
    pub(super) optimum: Option<Arc<str>>,
    /// The buckets of each measure that occurred.
    pub(super) buckets: Vec<(Measure, Vec<u64>)>,
}

impl Series {
    pub(super) fn of(series: &SeriesSnapshot) -> Self {
        let labels = [&series.route, &series.model, &series.upstream].map(Arc::clone);
        let [route, model, upstream] = labels;
        let occurred = Measure::all().filter(|m| *m == Measure::Total || series.figures.values(*m) > 0);
        Self {
            labels: [("route", route), ("model", model), ("upstream", upstream)],
            facts: series.facts,
            figures: series.figures.clone(),
            batch: series.batch,
            optimum: series.optimum.clone(),
            buckets: occurred.map(|m| (m, series.buckets(m, bounds(m)))).collect(),
        }
    }

    /// A series of copies, whose target takes the place of the upstream.
    pub(super) fn of_copies(series: &SeriesSnapshot, target: &str) -> Self {
        let of = Self::of(series);
        let [route, model, _] = of.labels;
        Self { labels: [("target", target.into()), route, model], ..of }
    }

    /// The labels of the series, followed by `more`.
    pub(super) fn with<'a>(&'a self, more: &[(&'static str, &'a str)]) -> Labels<'a> {
        self.labels.iter().map(|(name, value)| (*name, &**value)).chain(more.iter().copied()).collect()
    }

    /// The upstream's name.
    pub(super) fn upstream(&self) -> &str {
        &self.labels[2].1
    }
}

/// Writes a histogram family: for each series, the measures for which `own` returns labels.
pub(super) fn histogram(
    all: &[Series],
    encoder: &mut DescriptorEncoder<'_>,
    definition: &MetricFamily,
    own: impl Fn(&Series, Measure) -> Option<Own<'static>>,
) -> fmt::Result {
    family(encoder, definition, |metric| {
        for series in all {
            for (measure, buckets) in &series.buckets {
                let Some(own) = own(series, *measure) else { continue };
                let bounds = bounds(*measure).iter().map(|bound| in_seconds(*measure, *bound)).chain([f64::INFINITY]);
                let buckets: Vec<(f64, u64)> = bounds.zip(buckets.iter().copied()).collect();
                let (sum, count) = (sum(series, *measure), series.figures.values(*measure));
                metric.encode_family(&series.with(&own))?.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
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

#[allow(clippy::cast_precision_loss, reason = "Prometheus has seconds in floating point")]
fn in_seconds(measure: Measure, bound: u64) -> f64 {
    match measure {
        Measure::PerUnit(_) => bound as f64 / 1e12,
        _ => seconds(bound),
    }
}

#[allow(clippy::cast_precision_loss, reason = "Prometheus has seconds in floating point")]
fn sum(series: &Series, measure: Measure) -> f64 {
    match measure {
        Measure::PerUnit(slot) => series.figures.per_unit(slot).sum_ps as f64 / 1e12,
        _ => seconds(series.figures.extent(measure).sum_ns),
    }
}

#[allow(clippy::cast_precision_loss, reason = "Prometheus has seconds in floating point")]
pub(super) fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
