//! What came of a warm-up, as sentences and as JSON.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::requests::WarmRequests;
use super::standing::{CacheStanding, SeriesStanding};
use lapwing_ledger::Stamp;

/// How far a warm-up is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WarmProgress {
    /// Requests that were answered or failed.
    pub done: usize,
    /// All of them.
    pub all: usize,
}

/// What came of a warm-up.
#[derive(Clone, Debug, Serialize)]
pub struct WarmReport {
    /// Requests of the file.
    pub(crate) read: u64,
    /// Different ones of them, which are sent.
    pub(crate) distinct: usize,
    /// Requests of the file that were not sent, for the recording hides a value of theirs.
    pub(crate) hidden: u64,
    /// Different requests beyond the bound.
    pub(crate) beyond: usize,
    /// Requests that were sent to show that the upstream gives the same answer to the same question.
    pub(crate) proving: u64,
    /// Different requests that were answered.
    pub(crate) answered: u64,
    /// Those of them that were answered from the cache.
    pub(crate) known: u64,
    /// Requests without a good answer, by status or reason.
    pub(crate) failed: BTreeMap<String, u64>,
    pub(crate) entries_before: u64,
    pub(crate) entries_after: u64,
    /// Answers that were stored meanwhile, for whomever.
    pub(crate) stored: u64,
    /// What is known of routes and models at the end.
    pub(crate) series: Vec<SeriesStanding>,
    /// How long nothing was sent because the upstream was busy.
    pub(crate) paused_ns: u64,
    pub(crate) duration_ns: u64,
    /// What somebody should know.
    pub(crate) warnings: Vec<String>,
    #[serde(skip)]
    began: Option<Stamp>,
}

impl WarmReport {
    /// Before anything was sent.
    pub(crate) fn new(requests: &WarmRequests, before: &CacheStanding, began: Stamp) -> Self {
        let mut report = Self {
            read: requests.read,
            distinct: requests.list.len(),
            hidden: requests.hidden,
            beyond: requests.beyond,
            proving: 0,
            answered: 0,
            known: 0,
            failed: BTreeMap::new(),
            entries_before: before.entries,
            entries_after: 0,
            stored: 0,
            series: Vec::new(),
            paused_ns: 0,
            duration_ns: 0,
            warnings: Vec::new(),
            began: Some(began),
        };
        if requests.hidden > 0 {
            report.warnings.push(format!(
                "{} requests of the recording are not sent: values in them are hidden (***), so they would ask another question",
                requests.hidden
            ));
        }
        if requests.beyond > 0 {
            report.warnings.push(format!("{} different requests are beyond --max-requests, the rarest ones", requests.beyond));
        }
        if before.scope == "authorization" {
            let credentials = "cache.scope is authorization: an answer is given to those with the same credentials, and a recording has none; \
                               clients that send some are asked for anew (scope: shared, or the credentials in a file of requests)";
            report.warnings.push(credentials.to_owned());
        }
        report
    }

    /// After the last request.
    pub(crate) fn end(&mut self, before: &CacheStanding, after: CacheStanding) {
        self.entries_after = after.entries;
        self.stored = after.stored.saturating_sub(before.stored);
        self.duration_ns = self.began.map_or(0, |began| Stamp::now().since(began));
        if self.duration_ns > after.ttl_ns {
            let (took, ttl) = (seconds(self.duration_ns), seconds(after.ttl_ns));
            self.warnings
                .push(format!("it took {took}, and answers are given for {ttl} (cache.ttl): the first ones are out of date"));
        }
        self.series = after.series;
    }

    pub(crate) fn fail(&mut self, why: String) {
        *self.failed.entry(why).or_default() += 1;
    }

    /// Whether every request was answered, and answers are kept.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.failed.is_empty() && self.entries_after > 0
    }
}

#[allow(clippy::cast_precision_loss, reason = "three digits are shown")]
fn seconds(ns: u64) -> String {
    format!("{:.1} s", Duration::from_nanos(ns).as_secs_f64())
}

impl fmt::Display for WarmReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { read, distinct, proving, answered, known, failed, entries_before, entries_after, stored, .. } = self;
        writeln!(
            f,
            "{read} requests in the file, {distinct} different ones to send; {proving} more to prove that the same question has the same answer"
        )?;
        writeln!(f, "{answered} answered, {known} of them from the cache already, in {}", seconds(self.duration_ns))?;
        if self.paused_ns > 0 {
            writeln!(f, "paused for {} while the upstream was busy", seconds(self.paused_ns))?;
        }
        for (why, count) in failed {
            writeln!(f, "{count} failed: {why}")?;
        }
        writeln!(f, "the cache keeps {entries_after} answers now, {entries_before} before; {stored} were stored")?;
        for SeriesStanding { route, model, state, needed, .. } in &self.series {
            let model = if model.is_empty() { String::new() } else { format!(", model {model}") };
            let why = match &**state {
                "unproven" => format!(": {needed} more answers must be the same until they are kept"),
                "refused" => ": the same question had another answer, so none is kept".to_owned(),
                _ => String::new(),
            };
            writeln!(f, "{route}{model}: {state}{why}")?;
        }
        self.warnings.iter().try_for_each(|warning| writeln!(f, "note: {warning}"))
    }
}
