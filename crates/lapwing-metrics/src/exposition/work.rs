//! The families of work: time per unit, cost classes, phases, token timing, and batches.

use std::collections::BTreeSet;
use std::fmt;

use super::encode::{Encoder, count, family, gauge};
use super::scrape::Scrape;
use super::series::{ScrapedSeries, histogram};
use crate::defs::{self, MetricFamily};
use crate::{BatchStatistics, Measure};
use lapwing_ledger::{PerUnit, Work};

/// The lowest amount of each cost class: the value of the label `class`.
pub(crate) const FLOORS: [&str; Work::CLASSES] = [
    "1", "2", "4", "8", "16", "32", "64", "128", "256", "512", "1024", "2048", "4096", "8192", "16384", "32768", "65536",
    "131072", "262144", "524288", "1048576", "2097152", "4194304", "8388608", "16777216",
];

impl ScrapedSeries {
    /// The labels of a per-unit slot; `None` where it did not occur.
    fn slot(&self, slot: PerUnit) -> Option<Vec<(&'static str, &'static str)>> {
        let primary = self.facts.primary.filter(|_| self.figures.per_unit(slot).count > 0)?;
        Some(vec![("stage", slot.name()), ("unit", slot.unit(primary).per_name())])
    }
}

impl Scrape {
    /// Time per unit, units, classes.
    pub(crate) fn per_unit(&self, encoder: &mut dyn Encoder) -> fmt::Result {
        histogram(&self.series, encoder, &defs::STAGE_PER_UNIT, |series, measure| match measure {
            Measure::PerUnit(slot) => series.slot(slot),
            _ => None,
        })?;
        family(encoder, &defs::STAGE_UNITS, |metric| {
            for series in &self.series {
                for slot in PerUnit::ALL {
                    let Some(own) = series.slot(slot) else { continue };
                    let per = series.facts.primary.map_or(1, |primary| slot.unit(primary).per());
                    count(metric, series.with(&own), amount(series.figures.per_unit(slot).units) / amount(per.into()))?;
                }
            }
            Ok(())
        })?;
        family(encoder, &defs::WORK_UNITS, |metric| {
            for series in &self.series {
                for (unit, sum) in series.figures.work() {
                    count(metric, series.with(&[("unit", unit.name())]), amount(sum.amount))?;
                }
            }
            Ok(())
        })?;
        histogram(&self.series, encoder, &defs::CLASS_DURATION, |series, measure| match measure {
            Measure::Class(class) => Some(vec![("class", *FLOORS.get(class)?), ("unit", series.facts.primary?.name())]),
            _ => None,
        })
    }

    /// Phases, and token timing as the proxy measured it and as the server reported it.
    pub(crate) fn generation(&self, encoder: &mut dyn Encoder) -> fmt::Result {
        histogram(&self.series, encoder, &defs::PHASE_DURATION, |_, measure| match measure {
            Measure::Phase(phase) => Some(vec![("phase", phase.name())]),
            _ => None,
        })?;
        let observers = |proxy, server| {
            move |_: &ScrapedSeries, measure: Measure| match measure {
                m if m == proxy => Some(vec![("observer", "proxy")]),
                m if m == server => Some(vec![("observer", "server")]),
                _ => None,
            }
        };
        let first = observers(Measure::FirstToken, Measure::ServerFirstToken);
        histogram(&self.series, encoder, &defs::FIRST_TOKEN, first)?;
        let per_token = observers(Measure::PerOutputToken, Measure::ServerPerOutputToken);
        histogram(&self.series, encoder, &defs::PER_OUTPUT_TOKEN, per_token)?;
        histogram(&self.series, encoder, &defs::INTER_TOKEN, |_, measure| (measure == Measure::InterToken).then(Vec::new))
    }

    /// The upstreams' latest statistics, and the server that each was recognised as.
    pub(crate) fn batches(&self, encoder: &mut dyn Encoder) -> fmt::Result {
        self.latest(encoder, &defs::BATCH_SIZE, |batch| batch.size)?;
        self.latest(encoder, &defs::BATCH_PADDING, |batch| batch.padding)?;
        self.latest(encoder, &defs::RUNNING, |batch| batch.running)?;
        self.latest(encoder, &defs::WAITING, |batch| batch.waiting)?;
        let servers = self.series.iter().filter_map(|series| Some((series.upstream(), series.facts.server?)));
        family(encoder, &defs::UPSTREAM_INFO, |metric| {
            for (upstream, server) in servers.collect::<BTreeSet<_>>() {
                gauge(metric, vec![("upstream", upstream), ("server", server.name())], 1.0)?;
            }
            Ok(())
        })
    }

    /// Writes a gauge of the upstream's latest statistics.
    fn latest(&self, encoder: &mut dyn Encoder, of: &MetricFamily, value: fn(&BatchStatistics) -> Option<f64>) -> fmt::Result {
        family(encoder, of, |metric| {
            for series in &self.series {
                if let Some(value) = series.batch.as_ref().and_then(value) {
                    gauge(metric, series.with(&[]), value)?;
                }
            }
            Ok(())
        })
    }
}

#[allow(clippy::cast_precision_loss, reason = "Prometheus has floating point only")]
pub(crate) const fn amount(of: u128) -> f64 {
    of as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_called_by_their_lowest_amount() {
        assert!(FLOORS.iter().enumerate().all(|(class, floor)| *floor == (1_u64 << class).to_string()));
    }
}
