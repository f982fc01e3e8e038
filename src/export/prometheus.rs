//! `/metrics`: every family of `metrics::defs` since the start, as OpenMetrics text, or as Prometheus text 0.0.4 where
//! only that is asked for. Durations are seconds here, as Prometheus has them.
//!
//! The classic buckets are counted from the same HDR cells that `/stats` reads, so no figure disagrees with another.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use super::surfaces::Surfaces;
use super::{gather, process};
use crate::ledger::{Outcome, Source, Stage};
use crate::metrics::defs::{self, Family, Kind};
use crate::metrics::{Counter, Extent, Figures, Measure, REQUEST_BOUNDS_NS, STREAM_BOUNDS_NS, SeriesSnapshot, Window};

/// `Content-Type` of OpenMetrics text.
pub(super) const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// `Content-Type` of Prometheus text.
pub(super) const PLAIN: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Totals by what became of the request, and the value of the label `result`.
const RESULTS: [(Measure, &str); 3] =
    [(Measure::Total, "answered"), (Measure::Cancelled, "cancelled"), (Measure::Failed, "failed")];

/// The text of all families.
///
/// # Errors
///
/// Where the encoder refuses a family.
pub(super) fn openmetrics(surfaces: &Surfaces) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Scrape::of(surfaces)));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)?;
    Ok(text)
}

/// OpenMetrics text rewritten as Prometheus text 0.0.4: there a counter's family has the suffix `_total` too.
pub(super) fn plain(openmetrics: &str) -> String {
    let mut text = String::with_capacity(openmetrics.len());
    let mut help = "";
    for line in openmetrics.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some("HELP"), ..) => help = line,
            (Some("#"), Some("TYPE"), Some(name), Some(kind)) => {
                let suffix = if kind == Kind::Counter.name() { "_total" } else { "" };
                let said = help.splitn(4, ' ').nth(3).unwrap_or_default();
                text.push_str(&format!("# HELP {name}{suffix} {said}\n# TYPE {name}{suffix} {kind}\n"));
            }
            (Some("#"), ..) => {}
            _ => {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    text
}

/// What one scrape shows, copied out.
#[derive(Debug)]
struct Scrape {
    series: Vec<Series>,
    gauges: Vec<Gauge>,
    overflowed: u64,
    counters: Vec<(defs::RowFamily, Vec<u64>)>,
}

/// A family without series, with at most one label.
#[derive(Debug)]
struct Gauge {
    family: Family,
    label: Option<(&'static str, &'static str)>,
    value: f64,
}

#[derive(Debug)]
struct Series {
    labels: [(&'static str, Arc<str>); 3],
    figures: Figures,
    /// For each measure that occurred: its buckets.
    buckets: Vec<(Measure, Vec<u64>)>,
}

impl Series {
    fn of(series: &SeriesSnapshot) -> Self {
        let labels = [&series.route, &series.model, &series.upstream].map(Arc::clone);
        let [route, model, upstream] = labels;
        let occurred = Measure::all().filter(|m| *m == Measure::Total || series.figures.extent(*m).count > 0);
        Self {
            labels: [("route", route), ("model", model), ("upstream", upstream)],
            figures: series.figures.clone(),
            buckets: occurred.map(|m| (m, series.buckets(m, bounds_ns(m)))).collect(),
        }
    }

    /// The labels of the series and more.
    fn with<'a>(&'a self, more: &[(&'static str, &'a str)]) -> Vec<(&'static str, &'a str)> {
        self.labels.iter().map(|(name, value)| (*name, &**value)).chain(more.iter().copied()).collect()
    }
}

const fn bounds_ns(measure: Measure) -> &'static [u64] {
    match measure {
        Measure::Stream => STREAM_BOUNDS_NS,
        _ => REQUEST_BOUNDS_NS,
    }
}

#[allow(clippy::cast_precision_loss, reason = "Prometheus has seconds in floating point")]
fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

impl Scrape {
    #[allow(clippy::cast_precision_loss, reason = "Prometheus has floating point only")]
    fn of(surfaces: &Surfaces) -> Self {
        let series = gather::series(&surfaces.registry, Window::All, Series::of);
        let ((in_use, overflowed), limit) = {
            let registry = surfaces.registry.lock();
            (registry.fill(), registry.config().max_series)
        };
        let gauge = |family, value| Gauge { family, label: None, value };
        let mut gauges = vec![
            gauge(defs::SERIES, in_use as f64),
            gauge(defs::SERIES_LIMIT, limit as f64),
            Gauge { family: defs::BUILD_INFO, label: Some(("version", env!("CARGO_PKG_VERSION"))), value: 1.0 },
            gauge(defs::UPTIME, seconds(surfaces.started.elapsed())),
            gauge(defs::PROCESS_START, seconds(surfaces.started_unix_ns)),
        ];
        gauges.extend(process::resident_bytes().map(|bytes| gauge(defs::PROCESS_RSS, bytes as f64)));
        let values = |rows: &[Counter]| rows.iter().map(|row| surfaces.counters.get(*row)).collect();
        let counters = defs::row_families().into_iter().map(|f| (values(&f.rows), f)).map(|(v, f)| (f, v)).collect();
        Self { series, gauges, overflowed, counters }
    }

    /// A histogram family: for each series these measures, each with a label of its own.
    fn histogram(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        definition: &Family,
        label: impl Fn(Measure) -> Option<Option<(&'static str, &'static str)>>,
    ) -> fmt::Result {
        family(encoder, definition, |metric| {
            for series in &self.series {
                for (measure, buckets) in &series.buckets {
                    let Some(own) = label(*measure) else { continue };
                    let bounds = bounds_ns(*measure).iter().map(|ns| seconds(*ns)).chain([f64::INFINITY]);
                    let buckets: Vec<(f64, u64)> = bounds.zip(buckets.iter().copied()).collect();
                    let Extent { sum_ns, count, .. } = *series.figures.extent(*measure);
                    let labels = series.with(own.as_slice());
                    metric.encode_family(&labels)?.encode_histogram::<NoLabelSet>(seconds(sum_ns), count, &buckets, None)?;
                }
            }
            Ok(())
        })
    }

    fn requests(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        family(encoder, &defs::REQUESTS, |metric| {
            for series in &self.series {
                for outcome in Outcome::ALL {
                    let labels = series.with(&[("outcome", outcome.name())]);
                    count(metric, &labels, &series.figures.outcomes[outcome.index()])?;
                }
            }
            Ok(())
        })?;
        self.histogram(encoder, &defs::REQUEST_DURATION, |measure| {
            RESULTS.iter().find(|(of, _)| *of == measure).map(|(_, result)| Some(("result", *result)))
        })
    }

    fn stages(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        self.histogram(encoder, &defs::STAGE_DURATION, |measure| match measure {
            Measure::Stage(stage) => Some(Some(("stage", stage.name()))),
            _ => None,
        })?;
        family(encoder, &defs::STAGE_SOURCE, |metric| {
            for series in &self.series {
                for stage in Stage::ALL {
                    let row = Source::ALL.into_iter().zip(series.figures.sources[stage.index()]);
                    for (source, n) in row.filter(|(_, n)| *n > 0) {
                        count(metric, &series.with(&[("stage", stage.name()), ("source", source.name())]), &n)?;
                    }
                }
            }
            Ok(())
        })
    }

    fn coverage(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        family(encoder, &defs::COVERAGE, |metric| {
            for series in &self.series {
                if let Some(share) = series.figures.coverage() {
                    gauge(metric, &series.with(&[]), &share)?;
                }
            }
            Ok(())
        })?;
        family(encoder, &defs::WINDOW, |metric| {
            self.series.iter().try_for_each(|s| count(metric, &s.with(&[]), &seconds(s.figures.window_ns)))
        })?;
        family(encoder, &defs::WINDOW_CLAIMED, |metric| {
            self.series.iter().try_for_each(|s| count(metric, &s.with(&[]), &seconds(s.figures.claimed_ns)))
        })
    }

    fn streams(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        self.histogram(encoder, &defs::STREAM_DURATION, |measure| (measure == Measure::Stream).then_some(None))?;
        family(encoder, &defs::STREAM_BYTES, |metric| {
            let had_streams = |s: &&Series| s.figures.extent(Measure::Stream).count > 0;
            for series in self.series.iter().filter(had_streams) {
                count(metric, &series.with(&[("direction", "request")]), &series.figures.stream_request_bytes)?;
                count(metric, &series.with(&[("direction", "response")]), &series.figures.stream_response_bytes)?;
            }
            Ok(())
        })
    }

    fn profiler(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        for Gauge { family: definition, label, value } in &self.gauges {
            family(encoder, definition, |metric| gauge(metric, &label.iter().copied().collect(), value))?;
        }
        family(encoder, &defs::SERIES_OVERFLOWED, |metric| count(metric, &Vec::new(), &self.overflowed))?;
        for (rows, values) in &self.counters {
            let mut metric = encoder.encode_descriptor(rows.name, &rows.help, None, metric_type(rows.kind))?;
            for (row, value) in rows.rows.iter().zip(values) {
                let labels = row.row().labels.to_vec();
                match rows.kind {
                    Kind::Counter => count(&mut metric, &labels, value)?,
                    _ => gauge(&mut metric, &labels, value)?,
                }
            }
        }
        Ok(())
    }
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.requests(&mut encoder)?;
        self.stages(&mut encoder)?;
        self.coverage(&mut encoder)?;
        self.streams(&mut encoder)?;
        self.profiler(&mut encoder)
    }
}

const fn metric_type(kind: Kind) -> MetricType {
    match kind {
        Kind::Counter => MetricType::Counter,
        Kind::Gauge => MetricType::Gauge,
        Kind::Histogram => MetricType::Histogram,
    }
}

/// Writes the head of a family, then what `samples` writes. The encoder puts the unit behind the name itself.
fn family(
    encoder: &mut DescriptorEncoder<'_>,
    definition: &Family,
    samples: impl FnOnce(&mut MetricEncoder<'_>) -> fmt::Result,
) -> fmt::Result {
    let base = definition.unit.and_then(|unit| definition.name.strip_suffix(unit)?.strip_suffix('_'));
    let unit = definition.unit.map(|unit| Unit::Other(unit.to_owned()));
    let kind = metric_type(definition.kind);
    samples(&mut encoder.encode_descriptor(base.unwrap_or(definition.name), definition.help, unit.as_ref(), kind)?)
}

type Labels<'a> = Vec<(&'a str, &'a str)>;

fn count(metric: &mut MetricEncoder<'_>, labels: &Labels<'_>, value: &impl EncodeCounterValue) -> fmt::Result {
    if labels.is_empty() {
        return metric.encode_counter::<NoLabelSet, _, u64>(value, None);
    }
    metric.encode_family(labels)?.encode_counter::<NoLabelSet, _, u64>(value, None)
}

fn gauge(metric: &mut MetricEncoder<'_>, labels: &Labels<'_>, value: &impl EncodeGaugeValue) -> fmt::Result {
    if labels.is_empty() {
        return metric.encode_gauge(value);
    }
    metric.encode_family(labels)?.encode_gauge(value)
}

#[cfg(test)]
#[path = "prometheus_tests.rs"]
mod tests;
