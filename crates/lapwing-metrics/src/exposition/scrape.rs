//! The families of one scrape, copied out of the registry, and the order in which they are written.

use std::fmt;

use parking_lot::Mutex;

use super::encode::{Encoder, FamilyHead, SampleLabels, count, family, gauge};
use super::process;
use super::series::{ScrapeScope, ScrapedSeries, seconds};
use crate::defs::{self, MetricFamily, MetricKind};
use crate::{Counter, CounterKind, Counters, NAME_TABLES, PolledSnapshot, Registry, Window, gather};

/// The values that one scrape shows, copied out of the registry.
#[derive(Debug)]
pub struct Scrape {
    /// Every series.
    pub series: Vec<ScrapedSeries>,
    pub(crate) polled: Vec<PolledSnapshot>,
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

/// Families of other crates, each set at its place among those of the registry.
#[allow(clippy::missing_errors_doc, reason = "no encoder fails: writing into memory does not")]
pub trait Extras {
    /// Those that follow the budgets.
    fn after_budgets(&self, _: &mut dyn Encoder) -> fmt::Result {
        Ok(())
    }

    /// Those that follow what polls counted.
    fn after_polled(&self, _: &mut dyn Encoder) -> fmt::Result {
        Ok(())
    }

    /// Those that follow the batches.
    fn after_batches(&self, _: &mut dyn Encoder) -> fmt::Result {
        Ok(())
    }
}

/// No further families.
impl Extras for () {}

impl Scrape {
    /// Copies what a scrape shows; locks the registry for one series at a time.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "Prometheus has floating point only")]
    pub fn of(registry: &Mutex<Registry>, counters: &Counters, scope: &ScrapeScope) -> Self {
        let series = gather::series(registry, Window::All, |series| ScrapedSeries::of(series, scope));
        let ((in_use, overflowed), limit, polled, retired, unnamed) = {
            let registry = registry.lock();
            let (polled, retired) = (registry.polled(Window::All), registry.retired().series);
            (registry.fill(), registry.config().max_series, polled, retired, registry.labels().unnamed())
        };
        let gauge = |family, value| Gauge { family, label: None, value };
        let mut gauges = vec![
            gauge(defs::SERIES, in_use as f64),
            gauge(defs::SERIES_LIMIT, limit as f64),
            Gauge { family: defs::BUILD_INFO, label: Some(("version", env!("CARGO_PKG_VERSION"))), value: 1.0 },
            gauge(defs::UPTIME, seconds(scope.started.elapsed())),
            gauge(defs::PROCESS_START, seconds(scope.started_unix_ns)),
        ];
        gauges.extend(process::resident_bytes().map(|bytes| gauge(defs::PROCESS_RSS, bytes as f64)));
        let values = |rows: &[Counter]| rows.iter().map(|row| counters.get(*row)).collect();
        let counters = defs::row_families().into_iter().map(|f| (values(&f.rows), f)).map(|(v, f)| (f, v)).collect();
        Self { series, polled, gauges, overflowed, retired, unnamed, counters }
    }

    /// Writes every family, one after the other, with those of `extras` among them.
    ///
    /// # Errors
    ///
    /// When a family cannot be encoded, which does not happen.
    pub fn encode(&self, extras: &impl Extras, encoder: &mut dyn Encoder) -> fmt::Result {
        self.requests(encoder)?;
        self.budgets(encoder)?;
        extras.after_budgets(encoder)?;
        self.stages(encoder)?;
        self.coverage(encoder)?;
        self.completeness(encoder)?;
        self.polled(encoder)?;
        extras.after_polled(encoder)?;
        self.streams(encoder)?;
        self.per_unit(encoder)?;
        self.generation(encoder)?;
        self.debt(encoder)?;
        self.batches(encoder)?;
        extras.after_batches(encoder)?;
        self.profiler(encoder)
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
                if row.row().kind == CounterKind::Timestamp && *value == 0 {
                    continue;
                }
                let labels = SampleLabels::from(row.row().labels.to_vec());
                match rows.kind {
                    MetricKind::Counter => count(encoder, labels, *value)?,
                    _ => gauge(encoder, labels, *value)?,
                }
            }
            encoder.end()?;
        }
        Ok(())
    }
}
