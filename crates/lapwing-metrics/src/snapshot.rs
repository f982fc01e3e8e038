//! The result of a query of the registry: plain data that is copied out. Durations are nanoseconds, times per unit picoseconds.

use std::sync::Arc;

use hdrhistogram::Histogram;
use schemars::JsonSchema;
use serde::Serialize;

use super::budget::RouteBudget;
use super::cells::Count;
use super::exemplars::Exemplar;
use super::figures::SeriesTotals;
use super::layout::Layout;
use super::measure::Measure;
use super::polled::{BatchStatistics, PolledTotals};
use super::series::SeriesFacts;
use lapwing_ledger::{ForwardDebt, PerUnit, SeriesKey, Source, Stamp, Unit, Work};

/// One series in a window.
#[derive(Clone, Debug)]
pub struct SeriesSnapshot {
    /// The key.
    pub key: SeriesKey,
    /// The route's text.
    pub route: Arc<str>,
    /// The model's text; empty if requests name no model.
    pub model: Arc<str>,
    /// The upstream's text.
    pub upstream: Arc<str>,
    /// What its computational debt is compared with; `None` where no request had an optimum.
    pub optimum: Option<Arc<str>>,
    /// Its unit and its server.
    pub facts: SeriesFacts,
    /// Exact counts and sums.
    pub figures: SeriesTotals,
    /// What polls of the upstream's statistics counted for its model, if its requests have work: shared by all series of the model.
    pub polled: Option<PolledTotals>,
    /// The latest batches of its model by the upstream's statistics.
    pub batch: Option<BatchStatistics>,
    /// Example requests of buckets, the latest last.
    pub exemplars: Vec<Arc<Exemplar>>,
    /// Within what its requests should end.
    pub budget: RouteBudget,
    /// When it was opened: all counts since the start are since then.
    pub opened: Stamp,
    pub(crate) counts: Vec<Count<u64>>,
}

/// The summary of one histogram. Quantiles are those of the merged histogram, at most 0.1 % (below 1 ms: 512 ns) too high; count,
/// mean and maximum are exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Distribution {
    /// How many durations.
    pub count: u64,
    /// The exact sum divided by the count.
    pub mean_ns: u64,
    /// Median.
    pub p50_ns: u64,
    /// 90th percentile.
    pub p90_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// The longest duration, exact.
    pub max_ns: u64,
}

/// A number of units that a time was divided by. For units that are counted in 10⁹ (FLOPs) it has a fraction.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Units {
    /// A whole number of units.
    Whole(u128),
    /// A multiple of [`Unit::per`].
    Share(f64),
}

impl Units {
    /// `amount` of `unit`.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "a ratio")]
    pub fn new(amount: u128, unit: Unit) -> Self {
        if unit.per() == 1 { Self::Whole(amount) } else { Self::Share(amount as f64 / unit.per() as f64) }
    }
}

/// The summary of a per-unit histogram. Quantiles are at most 0.8 % too high; the other values are exact.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct UnitDistribution {
    /// The name of the unit: [`Unit::per_name`].
    pub unit: &'static str,
    /// How many requests.
    pub count: u64,
    /// The units that their time was divided by.
    pub units: Units,
    /// The total time divided by the total units, in picoseconds per unit.
    pub mean_ps: f64,
    /// Median of the requests' values, in picoseconds per unit like all following fields.
    pub p50_ps: u64,
    /// 90th percentile.
    pub p90_ps: u64,
    /// 99th percentile.
    pub p99_ps: u64,
    /// 99.9th percentile.
    pub p999_ps: u64,
    /// The largest value, exact.
    pub max_ps: u64,
}

/// The summary of debt ratios, where 1 is the optimum. Quantiles are at most 0.1 % (below 1: 0.0005) too high; count, mean and
/// maximum are exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct RatioDistribution {
    /// How many requests.
    pub count: u64,
    /// The mean: each request counts alike.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// The largest ratio, exact.
    pub max: f64,
}

/// One histogram of each layout, reused over many calls.
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

impl HistogramScratch {
    /// 50th, 90th, 99th and 99.9th percentile of durations, given as counts of values.
    pub(crate) fn quantiles_of(&mut self, counts: impl Iterator<Item = (u64, u64)>, max_ns: u64) -> [u64; 4] {
        self.time.reset();
        counts.for_each(|(value, count)| self.time.saturating_record_n(value, count));
        let mut quantiles = [0; 4];
        for (place, value) in quantiles.iter_mut().zip(self.time.value_at_quantiles([0.5, 0.9, 0.99, 0.999])) {
            *place = value.min(max_ns);
        }
        quantiles
    }
}

impl SeriesSnapshot {
    /// The counts of one measure in rising order: the lowest value of a cell, and the number of values in it.
    pub fn counts(&self, measure: Measure) -> impl Iterator<Item = (u64, u64)> {
        let layout = measure.layout();
        self.cells(measure).iter().map(move |c| (layout.lowest(c.key as u16), c.count))
    }

    /// The counts of one measure by cell, in rising order.
    pub(crate) fn cells(&self, measure: Measure) -> &[Count<u64>] {
        let prefix = measure.index() as u32;
        let from = self.counts.partition_point(|c| c.key >> 16 < prefix);
        let length = self.counts[from..].partition_point(|c| c.key >> 16 == prefix);
        &self.counts[from..from + length]
    }

    /// One measure as a histogram, which stays valid until the next call with `scratch`.
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

    /// The debt ratios of one cost class, or of all of them; `None` if there are none.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "a ratio")]
    pub fn debt(&self, class: Option<usize>, scratch: &mut HistogramScratch) -> Option<RatioDistribution> {
        let totals = self.figures.debt()?;
        let extent = class.map_or_else(|| totals.ratios(), |class| totals.class(class));
        let mean = extent.mean()?;
        let classes = class.map_or(0..Work::CLASSES, |class| class..class + 1);
        let into = &mut scratch.time;
        into.reset();
        for (value, count) in classes.flat_map(|class| self.counts(Measure::Debt(class))) {
            into.saturating_record_n(value, count);
        }
        let ratio = |ppm: u64| ppm.min(extent.max_ppm) as f64 / ForwardDebt::PPM as f64;
        let quantiles: Vec<f64> = into.value_at_quantiles([0.5, 0.9, 0.99, 0.999]).map(ratio).collect();
        let [p50, p90, p99, p999] = quantiles.try_into().unwrap_or_default();
        Some(RatioDistribution { count: extent.count, mean, p50, p90, p99, p999, max: ratio(extent.max_ppm) })
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

    /// Time per unit of a slot; `None` if the slot did not occur.
    pub fn per_unit(&self, slot: PerUnit, scratch: &mut HistogramScratch) -> Option<UnitDistribution> {
        let (unit, extent) = (self.unit(slot)?, self.figures.per_unit(slot));
        let [p50_ps, p90_ps, p99_ps, p999_ps] = self.quantiles(Measure::PerUnit(slot), extent.max_ps, scratch);
        let (count, mean_ps, max_ps) = (extent.count, extent.mean_ps(unit), extent.max_ps);
        let (unit, units) = (unit.per_name(), Units::new(extent.units, unit));
        Some(UnitDistribution { unit, count, units, mean_ps, p50_ps, p90_ps, p99_ps, p999_ps, max_ps })
    }

    /// The unit of a slot; `None` if the slot did not occur.
    #[must_use]
    pub fn unit(&self, slot: PerUnit) -> Option<Unit> {
        let primary = self.facts.primary.filter(|_| self.figures.per_unit(slot).count > 0)?;
        Some(slot.unit(primary))
    }

    /// The share of a stage or phase: its sum divided by the sum of totals, `0..=1`; zero if nothing was answered.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "a ratio")]
    pub fn share(&self, part: Measure) -> f64 {
        let total = self.figures.extent(Measure::Total).sum_ns;
        if total == 0 { 0.0 } else { self.figures.extent(part).sum_ns as f64 / total as f64 }
    }

    /// The sources of a stage or phase with the number of requests of each; empty for other measures.
    pub fn sources(&self, part: Measure) -> impl Iterator<Item = (Source, u64)> {
        let counts = match part {
            Measure::Stage(stage) => self.figures.sources[stage.index()],
            Measure::Phase(phase) => self.figures.phase_sources[phase.index()],
            _ => [0; Source::COUNT],
        };
        Source::ALL.into_iter().zip(counts).filter(|(_, count)| *count > 0)
    }
}
