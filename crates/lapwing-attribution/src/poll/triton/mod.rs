//! Triton's own statistics from `GET /v2/models/stats`, and the steps of ensembles from `GET /v2/models/M/config`.
//!
//! Means are per request: a cache hit computes nothing, but counts. An ensemble's own statistics contain the sum of its steps'
//! compute time, but neither their queue time nor the batches they ran in.

use std::collections::BTreeMap;

use serde::de::{Deserializer, Error as _};
use serde::{Deserialize, Serialize};

use super::means::Means;
use super::reading::{ModelLabel, PolledMetrics};
use crate::Rules;
use lapwing_ledger::Stage;
use lapwing_metrics::{BatchStatistics, PolledStage, PolledSum};
use lapwing_protocol::servers::{FieldLocation, Quantity, ReportedField};

/// The statistics of all models.
pub(crate) const STATS: &str = "/v2/models/stats";

/// The name that Triton's spans use for the model; a user's span rule on it applies to the statistics too.
const MODEL_NAME: &str = "triton.model_name";

/// The steps of ensembles, by the ensemble's name; empty for a model that is not an ensemble.
pub(crate) type EnsembleSteps = BTreeMap<Box<str>, Vec<Box<str>>>;

#[derive(Deserialize)]
struct Stats {
    model_stats: Vec<ModelStats>,
}

/// One version of one model. Statistics that have a count and a time each are found by name.
#[derive(Deserialize)]
struct ModelStats {
    name: Box<str>,
    #[serde(default)]
    inference_count: Number,
    #[serde(default)]
    execution_count: Number,
    #[serde(default)]
    inference_stats: BTreeMap<Box<str>, Timed>,
}

impl ModelStats {
    /// Answered requests, including cache hits.
    fn requests(&self) -> Option<Number> {
        let count = |name| self.inference_stats.get(name).map(|timed| timed.count).filter(|count: &Number| count.0 > 0.0);
        count("success").or_else(|| count("queue"))
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Timed {
    count: Number,
    ns: Number,
}

/// A number, which clients that turn protobuf into JSON write as text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
struct Number(f64);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either<'a> {
            Number(f64),
            #[serde(borrow)]
            Text(std::borrow::Cow<'a, str>),
        }
        let number = match Either::deserialize(deserializer)? {
            Either::Number(number) => number,
            Either::Text(text) => text.parse().map_err(D::Error::custom)?,
        };
        if number >= 0.0 { Ok(Self(number)) } else { Err(D::Error::custom("is negative")) }
    }
}

/// Reads the statistics of all models, with the versions of one model added up.
pub(crate) fn read(body: &[u8], rows: &[&'static ReportedField]) -> Result<PolledMetrics, serde_json::Error> {
    let stats: Stats = serde_json::from_slice(body)?;
    let mut reading = PolledMetrics::default();
    for model in stats.model_stats {
        let requests = model.requests();
        let name: ModelLabel = Some(model.name);
        for (at, row) in rows.iter().enumerate() {
            let (sum, count) = match (row.quantity, timed(row).and_then(|name| model.inference_stats.get(name))) {
                (Quantity::BatchSize, _) => (model.inference_count, model.execution_count),
                (Quantity::Stage(Stage::Queue), Some(timed)) => (timed.ns, timed.count),
                // a statistic that never ran has no mean; one that ran has a mean over all requests, including cache hits
                (_, Some(timed)) if timed.count.0 > 0.0 => (timed.ns, requests.unwrap_or(timed.count)),
                _ => continue,
            };
            let parts = reading.parts(name.clone(), at);
            let add = |to: &mut Option<f64>, number: Number| *to = Some(to.unwrap_or(0.0) + number.0);
            add(&mut parts.sum, sum);
            add(&mut parts.count, count);
        }
    }
    Ok(reading)
}

/// The name under `inference_stats` for a row.
fn timed(row: &ReportedField) -> Option<&'static str> {
    let FieldLocation::Statistics(path) = row.location else { return None };
    path.strip_prefix("model_stats[].inference_stats.")?.strip_suffix(".ns")
}

/// The path of a model's configuration; `None` if its name cannot be part of a path.
pub(crate) fn config_path(model: &str) -> Option<String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    (!model.is_empty() && model.bytes().all(is_plain)).then(|| format!("/v2/models/{model}/config"))
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Config {
    ensemble_scheduling: Option<Ensemble>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Ensemble {
    step: Vec<Step>,
}

#[derive(Deserialize)]
struct Step {
    model_name: Box<str>,
}

/// The steps in a model's configuration; empty for a model that is not an ensemble.
pub(crate) fn steps(config: &[u8]) -> Result<Vec<Box<str>>, serde_json::Error> {
    let config: Config = serde_json::from_slice(config)?;
    Ok(config.ensemble_scheduling.unwrap_or_default().step.into_iter().map(|step| step.model_name).collect())
}

/// Adds the queue time of its steps to each ensemble. The forward time of a step whose name maps to another stage moves to that
/// stage, as with spans. Its batches are those of the step that is its forward, of several the longest.
pub(crate) fn ensembles(means: &mut BTreeMap<ModelLabel, Means>, steps: &EnsembleSteps, rules: &Rules) {
    for (ensemble, steps) in steps.iter().filter(|(_, steps)| !steps.is_empty()) {
        let of = |step: &str| means.get(&Some(Box::from(step))).map_or(&[][..], |m| m.stages.as_slice());
        let mut added: Vec<(Stage, u64)> = Vec::new();
        let mut forward: Option<(u64, Option<BatchStatistics>)> = None;
        for step in steps {
            let role = rules
                .span(step, |name| (name == MODEL_NAME).then(|| step.as_ref().into()))
                .filter(|role| matches!(role, Stage::Hydration | Stage::Preprocessing | Stage::Postprocessing));
            for time in of(step) {
                let mean_ns = time.sum.mean_ns();
                match (time.stage, role) {
                    (Stage::Queue, _) => added.push((Stage::Queue, mean_ns)),
                    (Stage::Forward, Some(role)) => added.push((role, mean_ns)),
                    (Stage::Forward, None) if forward.is_none_or(|(longest_ns, _)| mean_ns > longest_ns) => {
                        let batch = means.get(&Some(step.clone())).and_then(|means| means.batch);
                        forward = Some((mean_ns, batch));
                    }
                    _ => {}
                }
            }
        }
        let Some(own) = means.get_mut(&Some(ensemble.clone())) else { continue };
        own.batch = forward.and_then(|(_, batch)| batch);
        // a step runs for other callers too, so its mean counts as often as the ensemble ran
        let requests = own.stages.iter().map(|time| time.sum.requests).max().unwrap_or(0);
        for (stage, mean_ns) in added {
            let ns = mean_ns.saturating_mul(requests);
            let taken_ns = if stage == Stage::Queue { ns } else { take(&mut own.stages, ns) };
            give(&mut own.stages, stage, PolledSum { requests, ns: taken_ns });
        }
    }
}

/// Takes up to `ns` from forward.
fn take(stages: &mut [PolledStage], ns: u64) -> u64 {
    let Some(forward) = stages.iter_mut().find(|time| time.stage == Stage::Forward) else { return 0 };
    let taken_ns = ns.min(forward.sum.ns);
    forward.sum.ns -= taken_ns;
    taken_ns
}

fn give(stages: &mut Vec<PolledStage>, stage: Stage, sum: PolledSum) {
    match stages.iter_mut().find(|time| time.stage == stage) {
        Some(time) => time.sum.ns = time.sum.ns.saturating_add(sum.ns),
        None if sum.ns > 0 => {
            let at = stages.iter().position(|time| time.stage > stage).unwrap_or(stages.len());
            stages.insert(at, PolledStage { stage, phase: None, sum });
        }
        None => {}
    }
}

#[cfg(test)]
mod tests;
