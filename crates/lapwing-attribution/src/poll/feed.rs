//! The statistics of a server whose address is known: reads them, and hands on what was counted since the previous poll.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::detect::{self, Candidate};
use super::http;
use super::means::{self, Means};
use super::reading::{ModelLabel, PolledMetrics, WantedSamples};
use super::statistics::Statistics;
use super::triton::{self, EnsembleSteps};
use super::waiting::{Reading, WaitingModels};
use lapwing_ledger::{LabelId, Server, Stamp};
use lapwing_metrics::{Labels, PolledInterval, PolledKey, PolledStage};
use lapwing_net::{Target, error_text};
use lapwing_protocol::servers::{ReportedField, table};
use lapwing_settings::ConfigHandle;

use crate::rules::Rules;

/// How many processes of a server are distinguished.
const MAX_PROCESSES: usize = 64;

/// Where the statistics are, how they are read, and the previous polls.
#[derive(Debug)]
pub(crate) struct Feed {
    server: Server,
    at: Target,
    path: String,
    form: FeedFormat,
    rows: Vec<&'static ReportedField>,
    /// The previous poll of each process that answers.
    last: BTreeMap<Option<u64>, Reading>,
}

#[derive(Debug)]
enum FeedFormat {
    /// Prometheus text.
    Text(WantedSamples),
    /// Triton's JSON; the steps of the models that clients ask for, and the models whose steps are not known.
    Triton { steps: EnsembleSteps, waiting: WaitingModels },
}

/// Where a feed puts what the server counted, and what it needs to name it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FeedSink<'p> {
    pub(crate) labels: &'p Labels,
    pub(crate) rules: &'p ConfigHandle<Rules>,
    pub(crate) upstream: LabelId,
    pub(crate) statistics: &'p Statistics,
}

/// The result of one query.
pub(crate) enum PollOutcome {
    /// Statistics were read.
    Read,
    /// Something else was queried this time.
    Besides,
    /// No answer, or none that can be read.
    Failed(String),
    /// The server answered that it has none.
    Refused(String),
}

/// The server that the answer to a configured candidate reveals, and its statistics if they were found with it.
pub(crate) fn found(candidate: &Candidate, body: &Bytes) -> (Option<Server>, Option<Feed>) {
    if candidate.path == detect::METADATA {
        let Some((server, has_statistics)) = detect::by_metadata(body) else { return (None, None) };
        let is_triton = has_statistics && server == Server::Triton;
        return (Some(server), is_triton.then(|| Feed::triton(candidate.at.clone())));
    }
    let Some(server) = detect::by_metrics(&text_of(body)) else { return (None, None) };
    (Some(server), of(server, candidate, body))
}

/// The statistics of `server`, if this is an answer with them.
pub(crate) fn of(server: Server, candidate: &Candidate, body: &Bytes) -> Option<Feed> {
    let mut feed = match server {
        Server::Triton if candidate.path == triton::STATS => Feed::triton(candidate.at.clone()),
        _ if detect::by_metrics(&text_of(body)) == Some(server) => Feed::text(server, candidate),
        _ => return None,
    };
    let metrics = Arc::new(feed.read(body).ok()?);
    feed.remember(&Reading { metrics, at: Stamp::now() });
    Some(feed)
}

impl Feed {
    fn triton(at: Target) -> Self {
        let rows = table::statistics(Server::Triton).map(|(_, row)| row).collect();
        let form = FeedFormat::Triton { steps: EnsembleSteps::new(), waiting: WaitingModels::default() };
        Self { server: Server::Triton, at, path: triton::STATS.to_owned(), form, rows, last: BTreeMap::new() }
    }

    fn text(server: Server, candidate: &Candidate) -> Self {
        let rows: Vec<&'static ReportedField> = table::metrics(server).map(|(_, row)| row).collect();
        let form = FeedFormat::Text(WantedSamples::of(server, &rows));
        Self { server, at: candidate.at.clone(), path: candidate.path.clone(), form, rows, last: BTreeMap::new() }
    }

    pub(crate) const fn server(&self) -> Server {
        self.server
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Whether counts wait for another query, which is due even if no request comes.
    pub(crate) fn is_waiting(&self) -> bool {
        matches!(&self.form, FeedFormat::Triton { waiting, .. } if waiting.is_waiting())
    }

    /// Sends one query: for the statistics, or for the steps of a model that may be an ensemble.
    pub(crate) async fn ask(&mut self, sink: &FeedSink<'_>) -> PollOutcome {
        if let FeedFormat::Triton { steps, waiting } = &mut self.form
            && let Some(model) = waiting.next.take()
        {
            let found = match triton::config_path(&model) {
                Some(path) => http::get(&self.at, &path).await.ok().and_then(|body| triton::steps(&body).ok()),
                None => None,
            };
            match found {
                Some(found) => drop(steps.insert(model, found)),
                None => waiting.failed(&model),
            }
            return PollOutcome::Besides;
        }
        let reading = match http::get(&self.at, &self.path).await {
            Ok(body) => self.read(&body),
            Err(error) if error.is_refusal() => return PollOutcome::Refused(error_text(&error)),
            Err(error) => Err(error_text(&error)),
        };
        match reading {
            Ok(reading) => {
                self.take(reading, sink);
                PollOutcome::Read
            }
            Err(reason) => PollOutcome::Failed(reason),
        }
    }

    fn read(&self, body: &Bytes) -> Result<PolledMetrics, String> {
        match &self.form {
            FeedFormat::Triton { .. } => triton::read(body, &self.rows).map_err(|error| error_text(&error)),
            FeedFormat::Text(wants) => {
                let text = text_of(body);
                let reading = wants.read(&text);
                // before the first request there are no values; the server is then recognised by the names alone
                if reading.by_model.is_empty() && detect::by_metrics(&text) != Some(self.server) {
                    return Err(format!("these are not the metrics of {}", self.server.title()));
                }
                Ok(reading)
            }
        }
    }

    /// Keeps a poll and returns the previous one of the same process. Of too many processes the one that was polled least recently
    /// is forgotten.
    fn remember(&mut self, now: &Reading) -> Option<Reading> {
        let last = self.last.insert(now.metrics.process, now.clone());
        if self.last.len() > MAX_PROCESSES
            && let Some(oldest) = self.last.iter().min_by_key(|(_, reading)| reading.at).map(|(process, _)| *process)
        {
            self.last.remove(&oldest);
        }
        last
    }

    /// Hands on what the server counted since the previous poll.
    fn take(&mut self, metrics: PolledMetrics, sink: &FeedSink<'_>) {
        let now = Reading { metrics: Arc::new(metrics), at: Stamp::now() };
        let Some(last) = self.remember(&now) else { return };
        let mut means = means::between(&last.metrics, &now.metrics, &self.rows);
        match &mut self.form {
            FeedFormat::Triton { steps, waiting } => {
                let rules = sink.rules.load();
                triton::ensembles(&mut means, steps, &rules);
                let is_asked = |model: &str| sink.labels.models.find(model).is_some();
                waiting.withhold(&mut means, |model| is_asked(model) && !steps.contains_key(model), &last);
                for (model, since) in waiting.take_known(steps) {
                    let model = Some(model);
                    means.remove(&model); // part of what was counted since it waits
                    let mut since_then = means::between(&since.metrics, &now.metrics, &self.rows);
                    triton::ensembles(&mut since_then, steps, &rules);
                    since_then.retain(|of, _| *of == model);
                    put(since_then, now.at.since(since.at), false, sink);
                }
                put(means, now.at.since(last.at), false, sink);
            }
            FeedFormat::Text(_) => {
                let is_lone = join_lone(&mut means, &now.metrics);
                put(means, now.at.since(last.at), is_lone, sink);
            }
        }
    }
}

/// Hands on what was counted for the models that clients asked for, and for the server as a whole. The `lone` model of a server
/// that clients call by another name, or by none, is the server as a whole.
fn put(means: BTreeMap<ModelLabel, Means>, covered_ns: u64, lone: bool, sink: &FeedSink<'_>) {
    let (models, upstream) = (&sink.labels.models, sink.upstream);
    let whole = sink.labels.no_model();
    for (model, Means { stages, batch }) in means {
        let name = match model.as_deref().map(|model| models.find(model)) {
            Some(Some(name)) => name,
            Some(None) if !lone => continue,
            Some(None) | None => whole,
        };
        sink.statistics.put(PolledKey { model: name, upstream }, PolledInterval { covered_ns, stages, batch });
    }
}

/// Adds what a server with one model counts without naming it to that model. Returns whether there is only one.
fn join_lone(means: &mut BTreeMap<ModelLabel, Means>, metrics: &PolledMetrics) -> bool {
    let mut models = metrics.by_model.keys().flatten();
    let (Some(model), None) = (models.next(), models.next()) else { return false };
    if let Some(whole) = means.remove(&None) {
        let own = means.entry(Some(model.clone())).or_default();
        let is_new = |time: &PolledStage| !own.stages.iter().any(|known| (known.stage, known.phase) == (time.stage, time.phase));
        let added: Vec<PolledStage> = whole.stages.into_iter().filter(is_new).collect();
        own.stages.extend(added);
        own.batch = own.batch.or(whole.batch);
    }
    true
}

/// The text of an answer. If it is a JSON string, its content, because one version of llama.cpp writes its metrics that way.
fn text_of(body: &[u8]) -> String {
    let quoted = body.starts_with(b"\"").then(|| serde_json::from_slice(body).ok()).flatten();
    quoted.unwrap_or_else(|| String::from_utf8_lossy(body).into_owned())
}
