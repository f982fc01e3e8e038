//! Triton's models whose steps are not known yet. What an ensemble counts lacks the queues of its steps, and its forward time holds
//! the steps that have another role; so a model has no statistics until its configuration was read, and then all of them at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::means::Means;
use super::reading::{ModelLabel, PolledMetrics};
use super::triton::EnsembleSteps;
use lapwing_ledger::Stamp;
use lapwing_net::error_text;

/// How often a model's configuration is asked for in vain before the model is left out.
const ATTEMPTS: u32 = 4;

/// One poll and its time.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    pub(crate) metrics: Arc<PolledMetrics>,
    pub(crate) at: Stamp,
}

/// The models that wait for their configuration; at most as many as clients ask for.
#[derive(Debug, Default)]
pub(crate) struct WaitingModels {
    /// By model, the poll since which it waits, and how often its configuration was asked for in vain.
    since: BTreeMap<Box<str>, (Reading, u32)>,
    /// The model to be asked about next.
    pub(crate) next: Option<Box<str>>,
}

impl WaitingModels {
    /// Takes out of `means` the models whose steps are `unknown`. They wait since the poll `last`, and one of them is asked about
    /// next.
    pub(crate) fn withhold(&mut self, means: &mut BTreeMap<ModelLabel, Means>, unknown: impl Fn(&str) -> bool, last: &Reading) {
        means.retain(|model, _| {
            let Some(model) = model.as_ref().filter(|model| unknown(model)) else { return true };
            self.since.entry(model.clone()).or_insert_with(|| (last.clone(), 0));
            false
        });
        let asked = self.since.iter().filter(|(model, (_, failed))| *failed < ATTEMPTS && unknown(model));
        self.next = asked.min_by_key(|(_, (_, failed))| *failed).map(|(model, _)| model.clone());
    }

    /// Whether a model waits whose configuration may still be read.
    pub(crate) fn is_waiting(&self) -> bool {
        self.since.values().any(|(_, failed)| *failed < ATTEMPTS)
    }

    /// The configuration of a model could not be read.
    pub(crate) fn failed(&mut self, model: &str) {
        let Some((_, failed)) = self.since.get_mut(model) else { return };
        *failed += 1;
        if *failed == ATTEMPTS {
            let model = error_text(model);
            tracing::warn!(model, "triton gives no configuration of the model; its statistics are left out");
        }
    }

    /// The models whose steps are known by now, each with the poll since which it waited. They wait no longer.
    pub(crate) fn take_known(&mut self, steps: &EnsembleSteps) -> Vec<(Box<str>, Reading)> {
        let known = self.since.extract_if(.., |model, _| steps.contains_key(model));
        known.map(|(model, (since, _))| (model, since)).collect()
    }
}
