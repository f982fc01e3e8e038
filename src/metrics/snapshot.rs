//! What a query of the registry gives: plain data, copied out, that nobody else changes. Durations are nanoseconds,
//! times per unit picoseconds.

use std::sync::Arc;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::cells::Count;
use super::figures::SeriesTotals;
use super::layout::Layout;
use super::measure::Measure;
use super::series::SeriesFacts;
use super::window::Window;
use crate::ledger::{PerUnit, SeriesKey, Source, Unit};

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
    /// Its unit, its server, its batches.
    pub facts: SeriesFacts,
    /// Exact counts and sums.
    pub figures: SeriesTotals,
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

/// How many units a time was divided by; of such as are counted by the 10⁹ with a fraction.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Units {
    /// Whole ones.
    Whole(u128),
    /// So many times [`Unit::per`].
    Share(f64),
}

impl Units {
    /// So many of `unit`.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "a ratio")]
    pub fn new(amount: u128, unit: Unit) -> Self {
        if unit.per() == 1 { Self::Whole(amount) } else { Self::Share(amount as f64 / unit.per() as f64) }
    }
}

/// The figures of a per-unit histogram. Quantiles are at most 0.8 % high; the rest is exact.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct UnitDistribution {
    /// What a unit is: [`Unit::per_name`].
    pub unit: &'static str,
    /// How many requests.
    pub count: u64,
    /// The units that their time was divided by.
    pub units: Units,
    /// All time over all units, in picoseconds per unit.
    pub mean_ps: f64,
    /// Median of the requests' values, in picoseconds per unit as all that follows.
    pub p50_ps: u64,
    /// 90th percentile.
    pub p90_ps: u64,
    /// 99th percentile.
    pub p99_ps: u64,
    /// 99.9th percentile.
    pub p999_ps: u64,
    /// The largest value, exactly.
    pub max_ps: u64,
}

/// A histogram of each layout, so that one serves many calls.
#[derive(Clone, Debug)]
pub struct HistogramScratch {
    time: Histogram<u64>,
    per_unit: Histogram<u64>,
}

impl Default for HistogramScratch {
    fn default() -> Self {
        Self { time: Layout::Time.histogram(), per_unit: Layout::PerUnit.histogram() }
    }
}

impl SeriesSnapshot {
    /// The counts of one measure: lowest value of the cell, and how many fell into it, in rising order.
    pub fn counts(&self, measure: Measure) -> impl Iterator<Item = (u64, u64)> {
        let (prefix, layout) = (measure.index() as u32, measure.layout());
        let from = self.counts.partition_point(|c| c.key >> 16 < prefix);
        let counts = self.counts[from..].iter().take_while(move |c| c.key >> 16 == prefix);
        counts.map(move |c| (layout.lowest(c.key as u16), c.count))
    }

    /// One measure as a histogram, which is `scratch`'s until the next call.
    pub fn fill<'a>(&self, measure: Measure, scratch: &'a mut HistogramScratch) -> &'a Histogram<u64> {
        let into = match measure.layout() {
            Layout::Time => &mut scratch.time,
            Layout::PerUnit => &mut scratch.per_unit,
        };
        into.reset();
        for (value, count) in self.counts(measure) {
            into.saturating_record_n(value, count);
        }
        into
    }

    /// 50th, 90th, 99th and 99.9th percentile.
    fn quantiles(&self, measure: Measure, max: u64, scratch: &mut HistogramScratch) -> [u64; 4] {
        let mut quantiles = [0; 4];
        let histogram = self.fill(measure, scratch);
        for (place, value) in quantiles.iter_mut().zip(histogram.value_at_quantiles([0.5, 0.9, 0.99, 0.999])) {
            *place = value.min(max);
        }
        quantiles
    }

    /// Count, mean, quantiles and maximum of one measure of durations.
    pub fn distribution(&self, measure: Measure, scratch: &mut HistogramScratch) -> Distribution {
        let extent = self.figures.extent(measure);
        if extent.count == 0 {
            return Distribution::default();
        }
        let [p50_ns, p90_ns, p99_ns, p999_ns] = self.quantiles(measure, extent.max_ns, scratch);
        let mean_ns = extent.sum_ns / extent.count;
        Distribution { count: extent.count, mean_ns, p50_ns, p90_ns, p99_ns, p999_ns, max_ns: extent.max_ns }
    }

    /// Time per unit of a slot; `None` where it did not occur.
    pub fn per_unit(&self, slot: PerUnit, scratch: &mut HistogramScratch) -> Option<UnitDistribution> {
        let (unit, extent) = (self.unit(slot)?, self.figures.per_unit(slot));
        let [p50_ps, p90_ps, p99_ps, p999_ps] = self.quantiles(Measure::PerUnit(slot), extent.max_ps, scratch);
        let (count, mean_ps, max_ps) = (extent.count, extent.mean_ps(unit), extent.max_ps);
        let (unit, units) = (unit.per_name(), Units::new(extent.units, unit));
        Some(UnitDistribution { unit, count, units, mean_ps, p50_ps, p90_ps, p99_ps, p999_ps, max_ps })
    }

    /// The unit of a slot; `None` where it did not occur.
    #[must_use]
    pub fn unit(&self, slot: PerUnit) -> Option<Unit> {
        let primary = self.facts.primary.filter(|_| self.figures.per_unit(slot).count > 0)?;
        Some(slot.unit(primary))
    }

    /// The share of a stage or phase: its sum over the sum of totals, `0..=1`; zero where nothing was answered.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "a ratio")]
    pub fn share(&self, part: Measure) -> f64 {
        let total = self.figures.extent(Measure::Total).sum_ns;
        if total == 0 { 0.0 } else { self.figures.extent(part).sum_ns as f64 / total as f64 }
    }

    /// On whose word, and in how many requests, a stage or phase is known; nothing for other measures.
    pub fn sources(&self, part: Measure) -> impl Iterator<Item = (Source, u64)> {
        let counts = match part {
            Measure::Stage(stage) => self.figures.sources[stage.index()],
            Measure::Phase(phase) => self.figures.phase_sources[phase.index()],
            _ => [0; Source::COUNT],
        };
        Source::ALL.into_iter().zip(counts).filter(|(_, count)| *count > 0)
    }
}
