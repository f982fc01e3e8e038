//! What the model servers count themselves, as `/stats` shows it next to the stages: sums with their counts, never quantiles.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use super::pairs::Pairs;
use crate::{BatchStatistics, PolledSnapshot, PolledSum, PolledTotals};
use lapwing_ledger::{Phase, Stage};

/// The statistics of one model.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct PolledModel {
    model: Option<Arc<str>>,
    upstream: Arc<str>,
    routes: Vec<Arc<str>>,
    #[serde(flatten)]
    sums: PolledSums,
    #[serde(skip_serializing_if = "Option::is_none")]
    batch: Option<BatchStatistics>,
}

/// Sums by stage and phase.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct PolledSums {
    polls: u64,
    covered_ns: u64,
    stages: Pairs<Sum>,
    phases: Pairs<Sum>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Sum {
    count: u64,
    sum_ns: u64,
    mean_ns: u64,
}

impl From<&PolledTotals> for PolledSums {
    fn from(totals: &PolledTotals) -> Self {
        let stages = Stage::ALL.into_iter().map(|stage| (stage.name(), totals.stage(stage)));
        let phases = Phase::ALL.into_iter().map(|phase| (phase.name(), totals.phase(phase)));
        Self { polls: totals.polls, covered_ns: totals.covered_ns, stages: counted(stages), phases: counted(phases) }
    }
}

fn counted(sums: impl Iterator<Item = (&'static str, PolledSum)>) -> Pairs<Sum> {
    let sum = |sum: PolledSum| Sum { count: sum.requests, sum_ns: sum.ns, mean_ns: sum.mean_ns() };
    sums.filter(|(_, of)| of.requests > 0).map(|(name, of)| (name, sum(of))).collect()
}

impl From<PolledSnapshot> for PolledModel {
    fn from(of: PolledSnapshot) -> Self {
        let PolledSnapshot { model, upstream, routes, totals, batch } = of;
        let model = Some(model).filter(|model| !model.is_empty());
        Self { model, upstream, routes, sums: PolledSums::from(&totals), batch: latest(&totals, batch) }
    }
}

/// Means of batches over the polls of a window, and the latest counts of requests that run and wait.
pub(crate) fn latest(totals: &PolledTotals, latest: Option<BatchStatistics>) -> Option<BatchStatistics> {
    let latest = latest.unwrap_or_default();
    let batch = BatchStatistics {
        size: totals.batch_size.value(),
        padding: totals.padding.value(),
        running: latest.running,
        waiting: latest.waiting,
    };
    (batch != BatchStatistics::default()).then_some(batch)
}
