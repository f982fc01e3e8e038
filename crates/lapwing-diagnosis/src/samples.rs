//! The exchanges of a window, each with the number of exchanges that it represents, and quantiles of them.

use super::observation::Observation;

/// A kept exchange.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample<'a> {
    pub(crate) seen: &'a Observation,
    /// How many exchanges it represents, at least one.
    pub(crate) weight: f64,
    /// The place of its block of time in the window.
    pub(crate) block: usize,
}

/// All kept exchanges of a window, the fastest first.
#[derive(Debug, Default)]
pub(crate) struct Samples<'a> {
    list: Vec<Sample<'a>>,
    weight: f64,
    blocks: usize,
}

impl<'a> Samples<'a> {
    /// Of exchanges from `blocks` blocks of time.
    pub(crate) fn new(mut list: Vec<Sample<'a>>, blocks: usize) -> Self {
        list.sort_unstable_by_key(|sample| (sample.seen.total_ns, sample.seen.arrived));
        Self { weight: list.iter().map(|sample| sample.weight).sum(), list, blocks }
    }

    /// The exchanges, the fastest first.
    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Sample<'a>> {
        self.list.iter()
    }

    /// How many exchanges they represent.
    pub(crate) const fn weight(&self) -> f64 {
        self.weight
    }

    /// How many blocks of time they come from.
    pub(crate) const fn blocks(&self) -> usize {
        self.blocks
    }

    /// The total in nanoseconds that a share `quantile` of the exchanges does not exceed; zero without exchanges.
    pub(crate) fn quantile(&self, quantile: f64) -> u64 {
        let mut below = 0.0;
        for sample in &self.list {
            below += sample.weight;
            if below >= quantile * self.weight {
                return sample.seen.total_ns;
            }
        }
        self.list.last().map_or(0, |sample| sample.seen.total_ns)
    }

    /// The slowest `count`.
    pub(crate) fn last(&self, count: usize) -> &[Sample<'a>] {
        self.list.get(self.list.len().saturating_sub(count)..).unwrap_or_default()
    }

    /// Those between two quantiles, at least one if there are any.
    pub(crate) fn between(&self, lower: f64, upper: f64) -> &[Sample<'a>] {
        let place = |quantile: f64| {
            let mut below = 0.0;
            let reached = |sample: &Sample<'_>| {
                below += sample.weight;
                below > quantile * self.weight
            };
            self.list.iter().position(reached).unwrap_or(self.list.len())
        };
        let (from, to) = (place(lower), place(upper));
        let from = from.min(self.list.len().saturating_sub(1));
        self.list.get(from..to.max(from + 1).min(self.list.len())).unwrap_or_default()
    }
}

/// A weighted mean.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mean {
    sum: f64,
    weight: f64,
}

impl Mean {
    /// Adds a value.
    pub(crate) fn add(&mut self, value: f64, weight: f64) {
        self.sum += value * weight;
        self.weight += weight;
    }

    /// The mean; NaN without values.
    pub(crate) fn get(self) -> f64 {
        if self.weight > 0.0 { self.sum / self.weight } else { f64::NAN }
    }

    /// The sum of the weights.
    pub(crate) const fn weight(self) -> f64 {
        self.weight
    }
}
