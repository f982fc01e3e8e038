//! `/metrics`: every family of `metrics::defs` since the start, as OpenMetrics text, or as Prometheus text 0.0.4 when the client
//! accepts only that. Durations are seconds here, as is the custom in Prometheus.
//!
//! Buckets are counted from the same HDR cells that `/stats` reads, so the figures agree.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Registry;

use self::encode::{count, family, gauge, metric_type};
use self::plain::PlainWriter;
use self::series::{Series, seconds};
use super::surfaces::Surfaces;
use super::{gather, process};
use crate::metrics::defs::{self, MetricFamily, MetricKind};
use crate::metrics::{Counter, NAME_TABLES, PolledSnapshot, Window};

mod debt;
mod encode;
mod plain;
mod series;
mod shadow;
mod traffic;
mod work;

/// `Content-Type` of OpenMetrics text.
pub(super) const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// `Content-Type` of Prometheus text.
pub(super) const PLAIN: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Writes the text of all families.
///
/// # Errors
///
/// When the encoder refuses a family, or `out` the text.
pub(super) fn openmetrics(surfaces: &Surfaces, out: &mut impl fmt::Write) -> fmt::Result {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Scrape::of(surfaces)));
    prometheus_client::encoding::text::encode(out, &registry)
}

/// The same as Prometheus text 0.0.4.
///
/// # Errors
///
/// As for [`openmetrics`].
pub(super) fn plain(surfaces: &Surfaces, out: &mut impl fmt::Write) -> fmt::Result {
    openmetrics(surfaces, &mut PlainWriter::new(out))
}

/// The values that one scrape shows, copied out of the registry.
#[derive(Debug)]
struct Scrape {
    series: Vec<Series>,
    polled: Vec<PolledSnapshot>,
    shadow: Option<shadow::Shadow>,
    gauges: Vec<Gauge>,
    overflowed: u64,
    retired: u64,
    unnamed: [(u64, u64); 2],
    counters: Vec<(defs::RowFamily, Vec<u64>)>,
}

/// A gauge of the process as a whole, with at most one label.
#[derive(Debug)]
struct Gauge {
    family: MetricFamily,
    label: Option<(&'static str, &'static str)>,
    value: f64,
}

impl Scrape {
    #[allow(clippy::cast_precision_loss, reason = "Prometheus has floating point only")]
    fn of(surfaces: &Surfaces) -> Self {
        let series = gather::series(&surfaces.registry, Window::All, Series::of);
        let ((in_use, overflowed), limit, polled, retired, unnamed) = {
            let registry = surfaces.registry.lock();
            let (polled, retired) = (registry.polled(Window::All), registry.retired().series);
            (registry.fill(), registry.config().max_series, polled, retired, registry.labels().unnamed())
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
        let shadow = surfaces.shadow.as_ref().map(shadow::Shadow::of);
        Self { series, polled, shadow, gauges, overflowed, retired, unnamed, counters }
    }

    fn profiler(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        for Gauge { family: definition, label, value } in &self.gauges {
            family(encoder, definition, |metric| gauge(metric, &label.iter().copied().collect(), value))?;
        }
        family(encoder, &defs::SERIES_OVERFLOWED, |metric| count(metric, &Vec::new(), &self.overflowed))?;
        family(encoder, &defs::SERIES_RETIRED, |metric| count(metric, &Vec::new(), &self.retired))?;
        let tables = || NAME_TABLES.into_iter().zip(self.unnamed);
        family(encoder, &defs::NAMES_UNPROVEN, |metric| {
            tables().try_for_each(|(table, (unproven, _))| count(metric, &vec![("table", table)], &unproven))
        })?;
        family(encoder, &defs::NAMES_OVERFLOWED, |metric| {
            tables().try_for_each(|(table, (_, overflowed))| count(metric, &vec![("table", table)], &overflowed))
        })?;
        for (rows, values) in &self.counters {
            let mut metric = encoder.encode_descriptor(rows.name, &rows.help, None, metric_type(rows.kind))?;
            for (row, value) in rows.rows.iter().zip(values) {
                let labels = row.row().labels.to_vec();
                match rows.kind {
                    MetricKind::Counter => count(&mut metric, &labels, value)?,
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
        self.completeness(&mut encoder)?;
        self.polled(&mut encoder)?;
        self.streams(&mut encoder)?;
        self.per_unit(&mut encoder)?;
        self.generation(&mut encoder)?;
        self.debt(&mut encoder)?;
        self.batches(&mut encoder)?;
        if let Some(shadow) = &self.shadow {
            shadow.encode(&mut encoder)?;
        }
        self.profiler(&mut encoder)
    }
}

#[cfg(test)]
mod tests;
