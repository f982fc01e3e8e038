//! Which waiting calls run together, and when: one [`Queue`] for each served model, emptied by its executor thread.
//!
//! 1. Calls gather by themselves while the executor is busy; a batch holds calls of one lane.
//! 2. A call is due at its arrival plus [`Tuning::stretch`] times what it would take alone, and the earliest due goes first: a
//!    short call passes a long one that came a little earlier, but none that has waited in proportion to its length.
//! 3. A batch ends where its fixed cost is but [`Tuning::fixed_share`] of its forward, for a larger one mostly makes its members
//!    wait for each other; a long backlog allows a larger one ([`Tuning::backlog_share`]).
//! 4. A free executor waits for one more call only where, by the gaps seen lately, that saves more time (a forward's fixed cost)
//!    than all who wait lose; never past a deadline less the expected forward.
//! 5. No call is passed by more than [`Tuning::overtakes`] batches: then calls go in order of arrival until it has gone.
//!
//! Times are nanoseconds. Nothing here reads the wall clock, runs a model, or knows what a call holds.

mod arrivals;
mod fit;
mod pack;
mod queue;
mod waiting;

#[cfg(test)]
mod tests;

pub use fit::{Fit, Line};
pub use queue::{Queue, Taken};
pub use waiting::{Next, Waiting};

use crate::clock::Stamp;

/// What the adaptive policy aims at. The defaults come from the simulation; they are no settings of the user's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tuning {
    /// How many batches with a younger call in them may start before a call that waits; then arrival order holds until it ran.
    pub overtakes: u32,
    /// How many times its own forward a call yields to shorter ones.
    pub stretch: f64,
    /// The part of a batch's forward at which its fixed cost no longer matters.
    pub fixed_share: f64,
    /// The part of all waiting work that one batch may hold, where that is more than the fixed cost asks for.
    pub backlog_share: f64,
}

impl Default for Tuning {
    fn default() -> Self {
        Self { overtakes: 3, stretch: 2.0, fixed_share: 0.05, backlog_share: 0.25 }
    }
}

/// What one call asks of the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Sequences, or rows of a model that has none.
    pub rows: usize,
    /// Tokens of all its sequences; zero where the model has none.
    pub tokens: usize,
}

impl Cost {
    /// The cost as one number, at least one: tokens, or rows where there are none.
    #[must_use]
    pub const fn units(self) -> usize {
        let units = if self.tokens == 0 { self.rows } else { self.tokens };
        if units == 0 { 1 } else { units }
    }

    /// Both together.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self { rows: self.rows.saturating_add(other.rows), tokens: self.tokens.saturating_add(other.tokens) }
    }
}

/// One waiting call.
#[derive(Clone, Debug)]
pub struct Item<T> {
    /// What the executor gets back.
    pub payload: T,
    /// What it costs.
    pub cost: Cost,
    /// Only calls of the same lane run together: one number for a model with a plan, the trailing shapes' hash for others.
    pub lane: u64,
    /// When it came.
    pub arrived: Stamp,
    /// From when on it is not run any more.
    pub deadline: Option<Stamp>,
}

/// How batches are formed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// As this module's head tells.
    Adaptive,
    /// In order of arrival: so many calls, or what has come when the oldest has waited for `max_wait_ns`.
    Fixed {
        /// How many.
        calls: usize,
    },
}

/// The limits of a queue and its batches. Limits below one count as one; `max_wait_ns` is never below `min_wait_ns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// How batches are formed.
    pub policy: Policy,
    /// Most calls of one batch.
    pub max_calls: usize,
    /// Most rows of one batch; a call with more runs alone.
    pub max_rows: usize,
    /// Most units ([`Cost::units`]) of one batch; a call with more runs alone.
    pub max_tokens: usize,
    /// How long a call waits for company in any case, unless the batch is full.
    pub min_wait_ns: u64,
    /// How long a call waits for company at most; for a free executor it waits as long as it takes.
    pub max_wait_ns: u64,
    /// Most calls that may wait.
    pub queue_calls: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            policy: Policy::Adaptive,
            max_calls: 256,
            max_rows: 4096,
            max_tokens: 16_384,
            min_wait_ns: 0,
            max_wait_ns: 5_000_000,
            queue_calls: 1024,
        }
    }
}

impl Config {
    /// With every limit at least one, and the longest wait no shorter than the shortest.
    fn sane(mut self) -> Self {
        for limit in [&mut self.max_calls, &mut self.max_rows, &mut self.max_tokens, &mut self.queue_calls] {
            *limit = (*limit).max(1);
        }
        if let Policy::Fixed { calls } = &mut self.policy {
            *calls = (*calls).clamp(1, self.max_calls);
        }
        self.max_wait_ns = self.max_wait_ns.max(self.min_wait_ns);
        self
    }
}

/// Why a call was not taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    /// As many calls wait as may.
    #[error("queue: {waiting} calls are waiting, which is the limit")]
    Full {
        /// How many.
        waiting: usize,
    },
    /// The queue takes no more calls.
    #[error("queue: closed")]
    Closed,
}
