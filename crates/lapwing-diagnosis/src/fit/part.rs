//! What some of a series' blocks say together, and the model that is fitted to it.

use super::block::{Block, Ratios};
use super::cells::{WideCells, total};
use super::model::Model;
use super::solve;

/// The sums of some blocks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pooled {
    pub(crate) cells: WideCells,
    ratios: Ratios,
    gaps: [f64; 3],
}

/// The sums of some blocks and the model that fits them.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) model: Model,
    pub(crate) cells: WideCells,
    /// How service times vary about their mean.
    pub(crate) ratios: Ratios,
    /// Arrivals per second; zero if unknown.
    pub(crate) rate: f64,
    /// The squared coefficient of variation of the gaps between arrivals; one for a Poisson process.
    pub(crate) gap_variation: f64,
}

impl Pooled {
    pub(crate) fn of<'a>(blocks: impl Iterator<Item = &'a Block>) -> Self {
        let mut pooled = Self::default();
        for block in blocks {
            pooled.cells.add_all(&block.cells);
            pooled.ratios.merge(&block.ratios);
            for (sum, more) in pooled.gaps.iter_mut().zip(block.gaps) {
                *sum += more;
            }
        }
        pooled
    }

    /// Fits a model of as many slots as `near` has, starting from it.
    pub(crate) fn fit(self, near: &Model) -> Option<Part> {
        let moments = self.cells.moments();
        let candidate = solve::fit_slots(moments, &total(moments), *near, 2)?;
        Some(self.with(candidate.model))
    }

    pub(crate) fn with(self, model: Model) -> Part {
        let [count, sum, squares] = self.gaps;
        let rate = if sum > 0.0 { count / sum } else { 0.0 };
        let mean = sum / count.max(1.0);
        let gap_variation = if mean > 0.0 { (squares / count / (mean * mean) - 1.0).max(0.0) } else { 0.0 };
        Part { model, cells: self.cells, ratios: self.ratios, rate, gap_variation }
    }
}

impl Part {
    /// The mean service time of a request that asks for `work` units, in nanoseconds, outliers aside.
    pub(crate) fn service_ns(&self, work: f64) -> f64 {
        self.model.service(work)
    }

    /// The mean service time of all requests, in nanoseconds, outliers aside.
    pub(crate) fn mean_service_ns(&self) -> f64 {
        self.model.service(total(self.cells.moments()).work)
    }

    /// For how long a request takes a slot in the mean, as those behind it see it, in nanoseconds; zero if no waiting was seen.
    pub(crate) fn slot_ns(&self) -> f64 {
        self.model.per_ahead * f64::from(self.model.slots)
    }

    /// What requests ask for: weight, mean and standard deviation of each cell's work.
    pub(crate) fn works(&self) -> impl Iterator<Item = (f64, f64, f64)> {
        self.cells
            .moments()
            .iter()
            .filter(|moments| moments.weight > 0.0)
            .map(|moments| (moments.weight, moments.work, (moments.work_work / moments.weight).max(0.0).sqrt()))
    }
}
