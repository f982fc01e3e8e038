//! `/metrics`: every family of `metrics::defs` since the start, in the format that a scrape asks for: Prometheus protobuf with native
//! histograms, OpenMetrics text, or Prometheus text 0.0.4. Durations are seconds here, as is the custom in Prometheus.
//!
//! Buckets are counted from the same HDR cells that `/stats` reads, so the figures agree. A series is copied out of the registry
//! under a lock of microseconds; what follows is done outside of it, family by family.

use std::fmt;
use std::sync::Arc;

use opentelemetry_proto::tonic::metrics::v1::Metric;

use self::encode::{Encoder, FamilyHead, Labels, count, family, gauge};
pub(crate) use self::format::Format;
use self::otlp::OtlpEncoder;
use self::protobuf::ProtobufEncoder;
use self::series::{Scope, Series, seconds};
use self::text::TextEncoder;
use super::diagnosis::DiagnosisSurface;
use super::inferred::InferredSeries;
use super::surfaces::Surfaces;
use super::{gather, process};
use lapwing_metrics::defs::{self, MetricFamily, MetricKind};
use lapwing_metrics::{Counter, NAME_TABLES, PolledSnapshot, Shown, Window};
use lapwing_shadow::ShadowCounters;

mod budget;
mod debt;
mod diagnosis;
mod encode;
mod format;
mod inferred;
mod native;
mod otlp;
mod protobuf;
mod series;
mod shadow;
mod text;
mod traffic;
mod work;

/// Writes all families in a format, in pieces.
///
/// # Errors
///
/// When a family cannot be encoded, which does not happen.
pub(crate) fn write(surfaces: &Surfaces, format: Format) -> Result<Vec<Vec<u8>>, fmt::Error> {
    let (schema, has_classic) = {
        let registry = surfaces.registry.lock();
        (registry.config().native_schema, registry.config().classic_buckets == Shown::On)
    };
    let native_schema = (format == Format::Protobuf).then_some(schema);
    let scope = Scope { started: surfaces.started, started_unix_ns: surfaces.started_unix_ns, native_schema };
    let scrape = Scrape::of(surfaces, &scope);
    if format == Format::Protobuf {
        let mut encoder = ProtobufEncoder::new(has_classic, surfaces.started_unix_ns);
        scrape.encode(&mut encoder)?;
        return Ok(encoder.finish());
    }
    let mut encoder = TextEncoder::new(format == Format::Plain);
    scrape.encode(&mut encoder)?;
    Ok(encoder.finish())
}

/// All families as OTLP metrics, cumulative.
///
/// # Errors
///
/// When a family cannot be encoded, which does not happen.
pub(crate) fn otlp_metrics(surfaces: &Surfaces, now_unix_ns: u64) -> Result<Vec<Metric>, fmt::Error> {
    let schema = surfaces.registry.lock().config().native_schema;
    let started_unix_ns = surfaces.started_unix_ns;
    let scope = Scope { started: surfaces.started, started_unix_ns, native_schema: Some(schema) };
    let mut encoder = OtlpEncoder::new(started_unix_ns, now_unix_ns);
    Scrape::of(surfaces, &scope).encode(&mut encoder)?;
    Ok(encoder.finish())
}

/// The values that one scrape shows, copied out of the registry.
#[derive(Debug)]
struct Scrape {
    series: Vec<Series>,
    polled: Vec<PolledSnapshot>,
    shadow: Option<shadow::Shadow>,
    recording: Arc<ShadowCounters>,
    excess: Option<diagnosis::BudgetExcess>,
    inferred: Option<InferredSeries>,
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
    fn of(surfaces: &Surfaces, scope: &Scope) -> Self {
        let series = gather::series(&surfaces.registry, Window::All, |series| Series::of(series, scope));
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
        let shadow = surfaces.shadow.as_ref().map(|shadow| shadow::Shadow::of(shadow, scope));
        let labels = surfaces.registry.lock().labels().clone();
        let excess = |diagnosis: &DiagnosisSurface| diagnosis::BudgetExcess::of((diagnosis.totals)(), &labels, &series);
        let excess = surfaces.diagnosis.as_ref().map(excess);
        let inferred = InferredSeries::of(surfaces);
        let recording = surfaces.recording.clone();
        Self { series, polled, shadow, recording, excess, inferred, gauges, overflowed, retired, unnamed, counters }
    }

    fn profiler(&self, encoder: &mut dyn Encoder) -> fmt::Result {
        for Gauge { family: definition, label, value } in &self.gauges {
            family(encoder, definition, |encoder| gauge(encoder, label.iter().copied().collect::<Vec<_>>(), *value))?;
        }
        family(encoder, &defs::SERIES_OVERFLOWED, |encoder| count(encoder, Vec::new(), self.overflowed))?;
        family(encoder, &defs::SERIES_RETIRED, |encoder| count(encoder, Vec::new(), self.retired))?;
        let tables = || NAME_TABLES.into_iter().zip(self.unnamed);
        family(encoder, &defs::NAMES_UNPROVEN, |encoder| {
            tables().try_for_each(|(table, (unproven, _))| count(encoder, vec![("table", table)], unproven))
        })?;
        family(encoder, &defs::NAMES_OVERFLOWED, |encoder| {
            tables().try_for_each(|(table, (_, overflowed))| count(encoder, vec![("table", table)], overflowed))
        })?;
        for (rows, values) in &self.counters {
            encoder.begin(&FamilyHead { name: rows.name, kind: rows.kind, unit: None, help: &rows.help })?;
            for (row, value) in rows.rows.iter().zip(values) {
                let labels = Labels::from(row.row().labels.to_vec());
                match rows.kind {
                    MetricKind::Counter => count(encoder, labels, *value)?,
                    _ => gauge(encoder, labels, *value)?,
                }
            }
            encoder.end()?;
        }
        Ok(())
    }

    /// Writes every family, one after the other.
    fn encode(&self, encoder: &mut dyn Encoder) -> fmt::Result {
        self.requests(encoder)?;
        self.budgets(encoder)?;
        self.excess(encoder)?;
        self.stages(encoder)?;
        self.coverage(encoder)?;
        self.completeness(encoder)?;
        self.polled(encoder)?;
        self.inferred(encoder)?;
        self.streams(encoder)?;
        self.per_unit(encoder)?;
        self.generation(encoder)?;
        self.debt(encoder)?;
        self.batches(encoder)?;
        if let Some(shadow) = &self.shadow {
            shadow.encode(encoder)?;
        }
        shadow::recording(&self.recording, encoder)?;
        self.profiler(encoder)
    }
}

#[cfg(test)]
mod tests;
