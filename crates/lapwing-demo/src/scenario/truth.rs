//! What a scenario did to each request: nanoseconds by stage. The server tells its part in a field of the answer, the clients and the
//! link know theirs, and all of it can be written to a file, to be held against what Lapwing says.

use std::io::{self, Write};
use std::path::Path;

use http::HeaderValue;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::knobs::Scenario;
use crate::injected::{ARRIVED, Injected, add};
use lapwing_diagnosis::LatencyBound;
use lapwing_ledger::{Stage, Stamp};

/// The most requests of which the truth is kept: 64 bytes each.
const MAX_RECORDS: usize = 1 << 18;

/// What was done to one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Truth {
    /// As the client measured it, in nanoseconds.
    pub(crate) total_ns: u64,
    /// Time that the script took, by stage.
    pub(crate) injected: Injected,
    /// When the server began with it.
    pub(crate) arrived: Option<Stamp>,
}

impl Truth {
    /// The server's part, from its field.
    pub(crate) fn of_field(value: Option<&HeaderValue>) -> Self {
        let mut truth = Self::default();
        let text = value.and_then(|value| value.to_str().ok()).unwrap_or_default();
        for (name, ns) in text.split(", ").filter_map(|part| part.split_once(";ns=")) {
            let Ok(ns) = ns.parse() else { continue };
            match Stage::from_name(name) {
                Some(stage) => truth.add(stage, ns),
                None if name == ARRIVED => truth.arrived = Stamp::from_ns(ns),
                None => {}
            }
        }
        truth
    }

    /// Adds time to a stage.
    pub(crate) fn add(&mut self, stage: Stage, ns: u64) {
        add(&mut self.injected, stage, ns);
    }
}

/// The truth about the requests of a run, in the order in which they ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct TruthLog(Vec<Truth>);

impl TruthLog {
    /// Keeps one, unless there are too many.
    pub(crate) fn push(&mut self, truth: Truth) {
        if self.0.len() < MAX_RECORDS {
            self.0.push(truth);
        }
    }

    /// How many there are.
    #[cfg(test)]
    pub(crate) fn records(&self) -> &[Truth] {
        &self.0
    }

    /// Writes a line of JSON with the scenario and what counts as right, and then one for each request.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub(crate) fn write(&self, path: &Path, scenario: &Scenario) -> io::Result<()> {
        #[derive(Serialize)]
        struct Line {
            total_ns: u64,
            injected_ns: Map<String, Value>,
        }
        let mut out = io::BufWriter::new(std::fs::File::create(path)?);
        writeln!(out, "{}", head(scenario))?;
        for Truth { total_ns, injected, .. } in &self.0 {
            let injected_ns = injected.iter().map(|(stage, ns)| (stage.name().to_owned(), (*ns).into())).collect();
            serde_json::to_writer(&mut out, &Line { total_ns: *total_ns, injected_ns })?;
            writeln!(out)?;
        }
        out.flush()
    }
}

/// The scenario, its budget, where it shows, and the diagnosis that counts as right.
fn head(scenario: &Scenario) -> Value {
    let (quantile, limit_ms) = scenario.budget;
    let right = scenario.expected.map(|right| json!({"bound": right.bound.map(LatencyBound::name), "cause": right.cause.name()}));
    let sign =
        scenario.shows.map(|sign| json!({"stage": sign.stage.name(), "quantile": sign.quantile, "least_ms": sign.least_ms}));
    json!({"scenario": scenario.name, "budget": {"quantile": quantile, "limit_ms": limit_ms}, "right": right, "shows": sign})
}

#[cfg(test)]
mod tests {
    use super::super::table::find;
    use super::*;
    use crate::injected::field;

    #[test]
    fn what_the_server_tells_comes_back() {
        let mut injected = Injected::default();
        add(&mut injected, Stage::Hydration, 40);
        add(&mut injected, Stage::Queue, 0);
        add(&mut injected, Stage::Hydration, 2);
        let arrived = Stamp::from_ns(77).unwrap();
        let value = field(&injected, arrived).unwrap();
        assert_eq!(value, "hydration;ns=42, arrived;ns=77");
        assert_eq!(Truth::of_field(Some(&value)), Truth { injected, arrived: Some(arrived), ..Truth::default() });
        assert_eq!(Truth::of_field(None), Truth::default());
        assert_eq!(Truth::of_field(Some(&HeaderValue::from_static("warp;ns=1, queue;ns=x, queue"))), Truth::default());
    }

    #[test]
    fn the_file_begins_with_what_counts_as_right() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("truth");
        let mut truth = Truth { total_ns: 9, ..Truth::default() };
        truth.add(Stage::Ingress, 5);
        let mut log = TruthLog::default();
        log.push(truth);
        log.write(&path, find("slow-client").unwrap()).unwrap();
        let lines: Vec<Value> =
            std::fs::read_to_string(&path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines[0]["right"], json!({"bound": "network", "cause": "slow_client"}));
        assert_eq!(lines[0]["shows"]["stage"], "ingress");
        assert_eq!(lines[1..], [json!({"total_ns": 9, "injected_ns": {"ingress": 5}})]);
        assert_eq!(head(find("healthy").unwrap())["right"], Value::Null);
    }
}
