//! What model servers count themselves, read by polls: sums of time with the number of requests that they cover, by model and
//! stage. They describe many requests at once, so they are kept apart from the series and enter no histogram.
//!
//! Sums are those of the server: nothing is added, shared out or counted twice. A window holds the polls that ended in it.
//! Memory: 0.4 KiB for each model, and as much for each slot of time with a poll (at most 10 fine and 31 coarse).

mod table;

use schemars::JsonSchema;
use serde::Serialize;

use super::sums::Mean;
use lapwing_ledger::{LabelId, Phase, Stage};

pub(crate) use table::PolledTable;

/// The model that statistics are of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PolledKey {
    /// The model as the server names it; the empty name where the server's statistics name none.
    pub model: LabelId,
    /// The upstream.
    pub upstream: LabelId,
}

/// What the upstream's statistics report about batches: means over one poll, or the latest levels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct BatchStatistics {
    /// Rows per execution of the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<f64>,
    /// The share of what was executed that was padding, in `[0, 1)`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub padding: Option<f64>,
    /// Requests that were running.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running: Option<f64>,
    /// Requests that were waiting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<f64>,
}

/// What the server counted between two polls for one stage, or for one phase of forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolledStage {
    /// The stage.
    pub stage: Stage,
    /// The phase, if the server distinguishes phases.
    pub phase: Option<Phase>,
    /// The sum, and the requests that it covers.
    pub sum: PolledSum,
}

/// Time that a server counted, and the number of requests that it covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PolledSum {
    /// Requests.
    pub requests: u64,
    /// Their time in all, in nanoseconds.
    pub ns: u64,
}

impl PolledSum {
    /// The time per request, in nanoseconds; zero if there are no requests.
    #[must_use]
    pub const fn mean_ns(&self) -> u64 {
        match self.requests {
            0 => 0,
            requests => self.ns.saturating_add(requests / 2) / requests,
        }
    }

    const fn add(&mut self, other: Self) {
        self.requests = self.requests.saturating_add(other.requests);
        self.ns = self.ns.saturating_add(other.ns);
    }
}

/// What the server counted for one model between two polls.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PolledInterval {
    /// The time between the polls, in nanoseconds.
    pub covered_ns: u64,
    /// By stage, in the order of a request's life.
    pub stages: Vec<PolledStage>,
    /// Batches.
    pub batch: Option<BatchStatistics>,
}

impl PolledInterval {
    /// The most requests that a stage was counted for.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.stages.iter().map(|stage| stage.sum.requests).max().unwrap_or(0)
    }

    /// Adds a later interval.
    pub fn append(&mut self, later: Self) {
        self.covered_ns = self.covered_ns.saturating_add(later.covered_ns);
        self.stages.extend(later.stages);
        self.batch = later.batch.or(self.batch);
    }
}

/// What polls counted for one model over a period of time. Totals of several periods add up.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PolledTotals {
    /// Polls that found something.
    pub polls: u64,
    /// The time that they cover: from the poll before each to it, in nanoseconds.
    pub covered_ns: u64,
    /// Rows per execution: a mean over the polls, weighed by their requests.
    pub batch_size: Mean,
    /// The share of padding, likewise.
    pub padding: Mean,
    stages: [PolledSum; Stage::COUNT],
    phases: [PolledSum; Phase::COUNT],
    /// The phases together: each request has both, so the time adds up and the requests do not.
    both: PolledSum,
    /// Forward of polls without phases.
    whole: PolledSum,
}

impl PolledTotals {
    /// What was counted for a stage; phases of forward are part of it.
    #[must_use]
    pub fn stage(&self, stage: Stage) -> PolledSum {
        let mut sum = self.stages[stage.index()];
        if stage == Stage::Forward {
            sum.add(self.whole);
            sum.add(self.both);
        }
        sum
    }

    /// What was counted for a phase of forward.
    #[must_use]
    pub const fn phase(&self, phase: Phase) -> PolledSum {
        self.phases[phase.index()]
    }

    /// What was counted, each part once: of forward its phases where the server distinguishes them, and the rest of it.
    pub fn parts(&self) -> impl Iterator<Item = (Stage, Option<Phase>, PolledSum)> {
        let phases = Phase::FORWARD.map(|phase| (Stage::Forward, Some(phase), self.phase(phase)));
        let stages = Stage::ALL.map(|stage| (stage, None, if stage == Stage::Forward { self.whole } else { self.stage(stage) }));
        stages.into_iter().chain(phases).filter(|(_, _, sum)| sum.requests > 0)
    }

    fn add(&mut self, interval: &PolledInterval) {
        self.polls += 1;
        self.covered_ns = self.covered_ns.saturating_add(interval.covered_ns);
        let mut phases = PolledSum::default();
        for PolledStage { stage, phase, sum } in &interval.stages {
            match phase {
                Some(phase) => {
                    self.phases[phase.index()].add(*sum);
                    phases = PolledSum { requests: phases.requests.max(sum.requests), ns: phases.ns.saturating_add(sum.ns) };
                }
                None if *stage == Stage::Forward => self.whole.add(*sum),
                None => self.stages[stage.index()].add(*sum),
            }
        }
        self.both.add(phases);
        let (batch, weight) = (interval.batch.unwrap_or_default(), interval.requests().max(1));
        self.batch_size.record(batch.size, weight);
        self.padding.record(batch.padding, weight);
    }

    fn merge(&mut self, other: &Self) {
        self.polls += other.polls;
        self.covered_ns = self.covered_ns.saturating_add(other.covered_ns);
        self.batch_size.merge(&other.batch_size);
        self.padding.merge(&other.padding);
        let sums = self.stages.iter_mut().chain(&mut self.phases);
        for (mine, theirs) in sums.zip(other.stages.iter().chain(&other.phases)) {
            mine.add(*theirs);
        }
        self.whole.add(other.whole);
        self.both.add(other.both);
    }
}

#[cfg(test)]
mod tests;
