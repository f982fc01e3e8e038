//! The file of the pairs of a replay: everything that its report was made of, in order, so that the report can be made again.

use std::io::BufRead;

use serde::{Deserialize, Serialize};

use super::exchange::first;
use super::lines::{FileError, FileLimits, JsonLines};
use crate::{OutputResult, PairHalf, PairTable, SideAccount};
use lapwing_ledger::{PairId, Stamp};
use lapwing_metrics::Labels;

/// The first line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairsHeader {
    /// `lapwing-pairs`.
    pub format: String,
    /// The version of the format.
    pub version: u32,
    /// What the targets are compared with.
    pub baseline: String,
    /// The targets' names, in the order of their indices.
    pub targets: Vec<String>,
    /// How many requests were to be sent to each target; absent if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<u64>,
}

impl PairsHeader {
    /// The name of the format.
    pub const FORMAT: &'static str = "lapwing-pairs";
    /// The version that is written and read.
    pub const VERSION: u32 = 1;

    /// The first line of the pairs of these targets.
    #[must_use]
    pub fn new(baseline: String, targets: Vec<String>, requests: Option<u64>) -> Self {
        Self { format: Self::FORMAT.to_owned(), version: Self::VERSION, baseline, targets, requests }
    }
}

/// A further line: something that became known of a pair, at `t_ns` from the start of the replay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PairEvent {
    /// The baseline's side.
    Baseline {
        /// When it became known.
        t_ns: u64,
        /// The number of the pair, from 1.
        pair: u64,
        /// What it took.
        side: SideAccount,
    },
    /// A target's side.
    Target {
        /// When it became known.
        t_ns: u64,
        /// The number of the pair, from 1.
        pair: u64,
        /// The target's index.
        target: usize,
        /// What it took.
        side: SideAccount,
    },
    /// The comparison of a target's output with the baseline's.
    Output {
        /// When it became known.
        t_ns: u64,
        /// The number of the pair, from 1.
        pair: u64,
        /// The target's index.
        target: usize,
        /// Whether they differ.
        differ: bool,
        /// Whether it cannot be told.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        unjudged: bool,
        /// Whether they differ only in what the baseline's own answers differ in.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        excused: bool,
    },
    /// The end of the replay.
    End {
        /// When it ended.
        t_ns: u64,
    },
}

impl PairEvent {
    /// The event of a comparison of outputs.
    #[must_use]
    pub const fn output(t_ns: u64, pair: PairId, target: usize, result: OutputResult) -> Self {
        let (unjudged, excused) = (matches!(result, OutputResult::Unjudged), matches!(result, OutputResult::Noise));
        Self::Output { t_ns, pair: pair.get(), target, differ: result.is_mismatch(), unjudged, excused }
    }

    /// Applies it to `pairs`, which began at `started`. Live and from a file it is the same call, so both reports are the same.
    pub fn apply(&self, pairs: &mut PairTable, labels: &Labels, started: Stamp) {
        let t_ns = match self {
            Self::Baseline { t_ns, .. } | Self::Target { t_ns, .. } | Self::Output { t_ns, .. } | Self::End { t_ns } => *t_ns,
        };
        let now = started.plus(t_ns);
        pairs.tick(now);
        match self {
            Self::Baseline { pair, side, .. } => {
                if let Some(pair) = PairId::new(*pair) {
                    pairs.primary_half(pair, PairHalf::of_account(side, labels), now);
                }
            }
            Self::Target { pair, target, side, .. } => {
                if let Some(pair) = PairId::new(*pair) {
                    pairs.copy_half(pair, *target, &PairHalf::of_account(side, labels), now);
                }
            }
            Self::Output { pair, target, differ, unjudged, excused, .. } => {
                if let Some(pair) = PairId::new(*pair) {
                    let result = match (differ, unjudged, excused) {
                        (_, true, _) => OutputResult::Unjudged,
                        (true, ..) => OutputResult::Mismatch,
                        (_, _, true) => OutputResult::Noise,
                        _ => OutputResult::Same,
                    };
                    pairs.outputs(pair, *target, result, now);
                }
            }
            Self::End { .. } => {}
        }
    }
}

/// Reads a file of pairs, and hands each line to `event` after the first.
///
/// # Errors
///
/// If it is no such file, is broken anywhere, or exceeds a limit.
pub fn read_pairs<T>(
    reader: impl BufRead,
    limits: FileLimits,
    begin: impl FnOnce(PairsHeader) -> T,
    mut event: impl FnMut(&mut T, &PairEvent),
) -> Result<T, FileError> {
    let mut lines = JsonLines::new(reader, limits);
    let header: PairsHeader = first(&mut lines, PairsHeader::FORMAT, PairsHeader::VERSION)?;
    let targets = header.targets.len();
    if !(1..=64).contains(&targets) {
        return Err(lines.fault(format!("{targets} targets; there are 1 to 64")));
    }
    let mut into = begin(header);
    while let Some(line) = lines.next_value()? {
        if let PairEvent::Target { target, .. } | PairEvent::Output { target, .. } = &line
            && *target >= targets
        {
            return Err(lines.fault(format!("target {target}; there are {targets}")));
        }
        event(&mut into, &line);
    }
    Ok(into)
}
