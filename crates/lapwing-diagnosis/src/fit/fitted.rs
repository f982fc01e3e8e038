//! What a fit says: its parameters, each with an interval.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::block::Block;
use super::model::Model;
use super::part::{Part, Pooled};

/// A parameter and the interval that holds it with a probability of 95 %.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FittedValue {
    /// The estimate.
    pub value: f64,
    /// The lower bound.
    pub low: f64,
    /// The upper bound.
    pub high: f64,
}

impl FittedValue {
    pub(crate) fn new(value: f64, half_width: f64) -> Self {
        Self { value, low: value - half_width, high: value + half_width }
    }

    /// The same, where values below zero have no meaning.
    pub(crate) fn not_negative(self) -> Self {
        Self { value: self.value.max(0.0), low: self.low.max(0.0), high: self.high.max(0.0) }
    }

    /// Half the interval's length.
    #[must_use]
    pub fn half_width(&self) -> f64 {
        (self.high - self.low) / 2.0
    }
}

/// How requests wait for one another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FittedWaiting {
    /// None was seen: windows do not grow with the number in flight.
    Unseen {
        /// The mean number in flight of the busiest cell, itself included.
        most_in_flight: f64,
    },
    /// Requests wait for those ahead of them.
    Fitted {
        /// What each request ahead adds, beyond the slots, in nanoseconds.
        per_ahead_ns: FittedValue,
        /// How many requests the server works on at once.
        slots: u32,
        /// The least and the most that the figures allow.
        slots_interval: [u32; 2],
    },
}

/// What a series' windows are made of.
#[derive(Clone, Debug)]
pub struct WindowFit {
    /// What every request takes, in nanoseconds.
    pub fixed_ns: FittedValue,
    /// What each unit of work takes, in nanoseconds.
    pub per_unit_ns: FittedValue,
    /// The mean service time, in nanoseconds.
    pub service_ns: FittedValue,
    /// How requests wait for one another.
    pub waiting: FittedWaiting,
    /// The share of the windows' variance that the model leaves, outliers aside, `0..=1`.
    pub unexplained_share: f64,
    /// The share of requests that are much longer or shorter than the model explains, `0..=1`.
    pub outlier_share: f64,
    /// Requests that were fitted, outliers included.
    pub samples: u64,
    /// The mean window, outliers included, in nanoseconds.
    pub window_mean_ns: f64,
    pub(crate) model: Model,
    pub(crate) all: Part,
    /// What each block holds, to draw intervals of what follows from a fit.
    pub(crate) blocks: Vec<Block>,
    /// The fits without one block each.
    pub(crate) without: Vec<Part>,
    /// How many samples each of them lacks.
    pub(crate) shares: Vec<f64>,
}

impl WindowFit {
    /// What follows from a fit, with an interval by the jackknife over blocks of time.
    pub(crate) fn derive(&self, of: impl Fn(&Part) -> f64) -> FittedValue {
        let others: Vec<f64> = self.without.iter().map(&of).collect();
        let value = of(&self.all);
        FittedValue::new(value, jackknife(value, &others, &self.shares)).not_negative()
    }

    /// What all blocks say together.
    pub(crate) fn all(&self) -> &Part {
        &self.all
    }

    /// What as many blocks say, drawn with replacement; `draw` returns a place below its argument.
    pub(crate) fn resample(&self, mut draw: impl FnMut(usize) -> usize) -> Option<Part> {
        let count = self.blocks.len();
        let drawn: Vec<usize> = (0..count).map(|_| draw(count)).collect();
        Pooled::of(drawn.iter().filter_map(|at| self.blocks.get(*at))).fit(&self.model)
    }
}

/// Half the 95 % interval by the jackknife of blocks of unequal size (Busing, Meijer and van der Leeden, 1999).
pub(crate) fn jackknife(value: f64, without: &[f64], shares: &[f64]) -> f64 {
    let blocks = without.len() as f64;
    let total: f64 = shares.iter().sum();
    let pseudo = |other: f64, share: f64| {
        let times = total / share;
        (times * value - (times - 1.0) * other, times)
    };
    let mean =
        without.iter().zip(shares).map(|(other, share)| pseudo(*other, *share)).map(|(value, times)| value / times).sum::<f64>();
    let variance = without
        .iter()
        .zip(shares)
        .map(|(other, share)| pseudo(*other, *share))
        .map(|(value, times)| (value - mean).powi(2) / (times - 1.0))
        .sum::<f64>()
        / blocks;
    student(shares) * variance.sqrt()
}

/// The 97.5 % quantile of Student's t with one degree of freedom less than there are blocks; blocks of unequal size count as fewer.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most the number of blocks")]
fn student(shares: &[f64]) -> f64 {
    const QUANTILES: [f64; 10] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    let blocks = (shares.iter().sum::<f64>().powi(2) / squares.max(1.0)).floor() as usize;
    QUANTILES[blocks.saturating_sub(2).min(QUANTILES.len() - 1)]
}
