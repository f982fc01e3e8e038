//! What is shown of a trial: by metrics, and by the report.

use std::sync::Arc;

use super::block::BlockFigures;
use super::config::Config;
use super::measure::TrialEffect;

/// What a trial does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrialState {
    /// The lever is on and off in turn.
    Running,
    /// Its time is over, and the lever is as configured.
    Over,
    /// The lever is off, for this reason.
    Stopped(String),
}

/// What a block was of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockSide {
    /// The lever was on.
    On,
    /// It was off.
    Off,
    /// Either, and most requests failed, so that it is not compared.
    Failed,
}

impl BlockSide {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::On, Self::Off, Self::Failed];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
            Self::Failed => "failed",
        }
    }
}

/// What metrics say of a trial.
#[derive(Clone, Copy, Debug)]
pub struct TrialStatus {
    /// The lever's name.
    pub lever: &'static str,
    /// Whether the trial has it on now.
    pub is_on: bool,
    /// Whether it stays off.
    pub is_stopped: bool,
    /// Blocks that are over.
    pub blocks: [(BlockSide, u64); 3],
    /// Requests by side, and those of both that were not counted: in the beginning of a block, or longer than it.
    pub requests: [(&'static str, u64); 4],
}

/// What requests show of a side, or of a block.
#[derive(Clone, Debug, PartialEq)]
pub struct TrialSide {
    /// Blocks.
    pub blocks: u64,
    /// Requests that are counted.
    pub requests: u64,
    /// Those of them that failed.
    pub failed: u64,
    /// The work of the others, in the units of each.
    pub units: u64,
    /// In a second.
    pub requests_per_s: f64,
    /// The same.
    pub units_per_s: f64,
    /// The p50 of their total time.
    pub p50_ns: Option<f64>,
    /// The p99.
    pub p99_ns: Option<f64>,
    /// Requests that outlasted their block.
    pub outlasting: u64,
    /// Requests that their client left.
    pub left: u64,
}

impl TrialSide {
    pub(crate) fn of(blocks: u64, figures: &BlockFigures) -> Self {
        let BlockFigures { requests, failed, units, outlasting, left, ref totals, .. } = *figures;
        Self {
            blocks,
            requests,
            failed,
            units,
            requests_per_s: figures.per_second(requests),
            units_per_s: figures.per_second(units),
            p50_ns: totals.quantile(0.5),
            p99_ns: totals.quantile(0.99),
            outlasting,
            left,
        }
    }
}

/// A block that is over.
#[derive(Clone, Debug, PartialEq)]
pub struct ShownBlock {
    /// Whether the lever was on.
    pub is_on: bool,
    /// Whether it is compared.
    pub is_compared: bool,
    /// When it began, in nanoseconds since the trial did.
    pub after_ns: u64,
    /// Its requests.
    pub side: TrialSide,
}

/// Everything that is known of a trial.
#[derive(Clone, Debug)]
pub struct TrialSnapshot {
    /// What metrics say of it.
    pub status: TrialStatus,
    /// What it does.
    pub state: TrialState,
    /// Its settings.
    pub config: Arc<Config>,
    /// How long ago it began.
    pub after_ns: u64,
    /// How long the block lasts that is open.
    pub next_in_ns: Option<u64>,
    /// What cannot be judged, and why.
    pub doubts: Vec<String>,
    /// The lever's effects.
    pub effects: [TrialEffect; 4],
    /// Requests while it was on.
    pub on: TrialSide,
    /// While it was off.
    pub off: TrialSide,
    /// The last blocks.
    pub blocks: Vec<ShownBlock>,
}
