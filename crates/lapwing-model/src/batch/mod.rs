//! Adaptive batching: which waiting calls run together, and when. Each served model has one [`Queue`], which its executor thread
//! empties.
//!
//! 1. Calls accumulate while the executor is busy.
//! 2. A call is due at its arrival plus [`Tuning::stretch`] times its own forward time; the earliest due goes first. So a short
//!    call overtakes a long one that arrived a little earlier, but not one that has waited in proportion to its length.
//! 3. A batch is large enough when its fixed cost is [`Tuning::fixed_share`] of its forward time: in a larger one calls mostly
//!    wait for each other. A long backlog allows a larger batch ([`Tuning::backlog_share`]).
//! 4. A free executor waits for one more call only if, by the latest gaps, that saves more time (a forward's fixed cost) than all
//!    waiting calls lose, and never past a deadline less the expected forward time.
//! 5. At most [`Tuning::overtakes`] batches overtake a call; after that, calls go in order of arrival until it has run.
//!
//! Times are nanoseconds. Nothing here reads the wall clock, runs a model, or looks into a call.

mod arrivals;
mod fit;
mod pack;
mod queue;

#[cfg(test)]
mod tests;

pub use fit::{Fit, Line};
pub use queue::{Next, Queue, Taken, Waiting};

use lapwing_engine::clock::Stamp;

/// The parameters of the adaptive policy. The defaults come from the simulation; users cannot set them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tuning {
    /// How many batches with a younger call may start before a waiting call; after that, arrival order holds until it has run.
    pub overtakes: u32,
    /// How long a call yields to shorter ones, as a multiple of its own forward time.
    pub stretch: f64,
    /// The share of a batch's forward time at which its fixed cost no longer matters.
    pub fixed_share: f64,
    /// The share of all waiting work that one batch may hold, if that is more than the fixed cost requires.
    pub backlog_share: f64,
}

impl Default for Tuning {
    fn default() -> Self {
        Self { overtakes: 3, stretch: 2.0, fixed_share: 0.05, backlog_share: 0.25 }
    }
}

/// The size of one call, by which batches are formed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallCost {
    /// Sequences, or rows of a model that has none.
    pub rows: usize,
    /// Tokens of all its sequences; zero where the model has none.
    pub tokens: usize,
}

impl CallCost {
    /// The cost as one number, at least one: tokens, or rows where there are none.
    #[must_use]
    pub const fn units(self) -> usize {
        let units = if self.tokens == 0 { self.rows } else { self.tokens };
        if units == 0 { 1 } else { units }
    }

    /// The sum of both.
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
    pub cost: CallCost,
    /// When it came.
    pub arrived: Stamp,
    /// When it expires: it is not run after that.
    pub deadline: Option<Stamp>,
}

/// How batches are formed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// By the rules in the module's documentation.
    Adaptive,
    /// In order of arrival: this many calls, or those waiting when the oldest has waited for `max_wait_ns`.
    Fixed {
        /// The number of calls.
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
    /// Most units ([`CallCost::units`]) of one batch; a call with more runs alone.
    pub max_tokens: usize,
    /// How long a call waits for others in any case, unless the batch is full.
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

/// Why the queue refused a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    /// The queue is full.
    #[error("queue: {waiting} calls are waiting, which is the limit")]
    Full {
        /// How many.
        waiting: usize,
    },
    /// The queue takes no more calls.
    #[error("queue: closed")]
    Closed,
}
