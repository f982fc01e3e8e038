//! The statistics of a server whose address is known: reads them, and stores the differences to the previous poll where the merge
//! looks.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::detect::{self, Candidate};
use super::means::{self, Means};
use super::reading::{ModelLabel, PolledMetrics, WantedSamples};
use super::triton::{self, EnsembleSteps};
use super::{Poller, http};
use crate::attribution::Polled;
use crate::ledger::{Server, Stamp};
use crate::protocol::servers::{ReportedField, table};
use crate::settings::Upstream;

/// Where the statistics are, how they are read, and the previous poll.
#[derive(Debug)]
pub(super) struct Feed {
    server: Server,
    at: Upstream,
    path: String,
    form: FeedFormat,
    rows: Vec<&'static ReportedField>,
    last: Option<PolledMetrics>,
}

#[derive(Debug)]
enum FeedFormat {
    /// Prometheus text.
    Text(WantedSamples),
    /// Triton's JSON; the steps of the models that clients ask for, and the model to be asked about next.
    Triton { steps: EnsembleSteps, next: Option<Box<str>> },
}

/// The result of one query.
pub(super) enum PollOutcome {
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
pub(super) fn found(candidate: &Candidate, body: &Bytes) -> (Option<Server>, Option<Feed>) {
    if candidate.path == detect::METADATA {
        let Some((server, has_statistics)) = detect::by_metadata(body) else { return (None, None) };
        let is_triton = has_statistics && server == Server::Triton;
        return (Some(server), is_triton.then(|| Feed::triton(candidate.at.clone())));
    }
    let Some(server) = detect::by_metrics(&text_of(body)) else { return (None, None) };
    (Some(server), of(server, candidate, body))
}

/// The statistics of `server`, if this is an answer with them.
pub(super) fn of(server: Server, candidate: &Candidate, body: &Bytes) -> Option<Feed> {
    let mut feed = match server {
        Server::Triton if candidate.path == triton::STATS => Feed::triton(candidate.at.clone()),
        _ if detect::by_metrics(&text_of(body)) == Some(server) => Feed::text(server, candidate),
        _ => return None,
    };
    feed.last = Some(feed.read(body).ok()?);
    Some(feed)
}

impl Feed {
    fn triton(at: Upstream) -> Self {
        let rows = table::statistics(Server::Triton).map(|(_, row)| row).collect();
        let form = FeedFormat::Triton { steps: EnsembleSteps::new(), next: None };
        Self { server: Server::Triton, at, path: triton::STATS.to_owned(), form, rows, last: None }
    }

    fn text(server: Server, candidate: &Candidate) -> Self {
        let rows: Vec<&'static ReportedField> = table::metrics(server).map(|(_, row)| row).collect();
        let form = FeedFormat::Text(WantedSamples::of(server, &rows));
        Self { server, at: candidate.at.clone(), path: candidate.path.clone(), form, rows, last: None }
    }

    pub(super) const fn server(&self) -> Server {
        self.server
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// Sends one query: for the statistics, or for the steps of a model that may be an ensemble.
    pub(super) async fn ask(&mut self, poller: &Poller) -> PollOutcome {
        if let FeedFormat::Triton { steps, next } = &mut self.form
            && let Some(model) = next.take()
        {
            let found = match triton::config_path(&model) {
                Some(path) => http::get(&self.at, &path).await.ok().and_then(|body| triton::steps(&body).ok()),
                None => None,
            };
            steps.insert(model, found.unwrap_or_default());
            return PollOutcome::Besides;
        }
        let reading = match http::get(&self.at, &self.path).await {
            Ok(body) => self.read(&body),
            Err(error) if error.is_refusal() => return PollOutcome::Refused(error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        match reading {
            Ok(reading) => {
                self.take(reading, poller);
                PollOutcome::Read
            }
            Err(reason) => PollOutcome::Failed(reason),
        }
    }

    fn read(&self, body: &Bytes) -> Result<PolledMetrics, String> {
        match &self.form {
            FeedFormat::Triton { .. } => triton::read(body, &self.rows).map_err(|error| error.to_string()),
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

    /// Stores the means since the previous poll.
    fn take(&mut self, reading: PolledMetrics, poller: &Poller) {
        let last = self.last.take();
        if let Some(last) = last {
            let mut means = means::between(&last, &reading, &self.rows);
            match &mut self.form {
                FeedFormat::Triton { steps, next } => {
                    triton::ensembles(&mut means, steps, &poller.rules.load());
                    *next = unknown(&means, steps, poller);
                }
                FeedFormat::Text(_) => lone(&mut means, &reading),
            }
            put(means, poller);
        }
        self.last = Some(reading);
    }
}

/// Stores what is known of the models that clients asked for.
fn put(means: BTreeMap<ModelLabel, Means>, poller: &Poller) {
    let at = Stamp::now();
    for (model, Means { reports, batch }) in means {
        let polled = Polled { reports, batch, at };
        match model.as_deref().map(|model| poller.labels.models.find(model)) {
            Some(Some(name)) => poller.statistics.put(name, polled),
            Some(None) => {}
            None => poller.statistics.put_whole(polled),
        }
    }
}

/// A model that clients ask for and that may or may not be an ensemble.
fn unknown(means: &BTreeMap<ModelLabel, Means>, steps: &EnsembleSteps, poller: &Poller) -> Option<Box<str>> {
    let asked = means.keys().flatten().filter(|model| poller.labels.models.find(model).is_some());
    asked.into_iter().find(|model| !steps.contains_key(*model)).cloned()
}

/// Copies the statistics of a server's only model to requests that name another model, or none.
fn lone(means: &mut BTreeMap<ModelLabel, Means>, reading: &PolledMetrics) {
    let mut models = reading.by_model.keys().flatten();
    if let (Some(model), None) = (models.next(), models.next())
        && let Some(means_of_model) = means.get(&Some(model.clone())).cloned()
    {
        means.insert(None, means_of_model);
    }
}

/// The text of an answer. If it is a JSON string, its content, because one version of llama.cpp writes its metrics that way.
fn text_of(body: &[u8]) -> String {
    let quoted = body.starts_with(b"\"").then(|| serde_json::from_slice(body).ok()).flatten();
    quoted.unwrap_or_else(|| String::from_utf8_lossy(body).into_owned())
}
