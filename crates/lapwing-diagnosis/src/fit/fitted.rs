//! What a fit says: its parameters, each with an interval.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::block::Block;
use super::estimate::jackknife;
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
