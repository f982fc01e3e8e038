//! What one poll read: by model and by row of the table of servers, sums and counts since the server started, and gauges.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::text::{Line, Sample};
use crate::ledger::Server;
use crate::protocol::servers::{FieldLocation, ReportedField};

/// A model; `None` stands for the server as a whole, which is how servers of one model speak.
pub(super) type Model = Option<Box<str>>;

/// The labels that name the model.
const MODEL_LABELS: [&str; 2] = ["model_name", "model"];

/// Counters of requests, by which a server's plain counters of time are divided.
const REQUESTS: [(Server, &str); 2] =
    [(Server::Triton, "nv_inference_request_success"), (Server::TorchServe, "ts_inference_requests_total")];

/// What is known of one row, summed over the label sets of one model. In the row's own unit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Parts {
    /// The sum of a histogram or summary.
    pub(super) sum: Option<f64>,
    /// Its count.
    pub(super) count: Option<f64>,
    /// A counter's or gauge's value.
    pub(super) plain: Option<f64>,
}

/// One poll.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Reading {
    /// By model, then by the row's place in the list that the reading was made with.
    pub(super) by_model: BTreeMap<Model, BTreeMap<usize, Parts>>,
    /// Requests since the server started, where its counters of time need them.
    pub(super) requests: BTreeMap<Model, f64>,
    /// Lines that were no Prometheus text.
    pub(super) malformed: usize,
}

#[derive(Clone, Copy, Debug)]
enum Part {
    Sum,
    Count,
    Plain,
    Requests,
}

/// What one name of a sample is wanted for.
#[derive(Clone, Copy, Debug)]
struct Want {
    row: usize,
    part: Part,
    /// A label that the sample must have, and its value.
    selector: Option<(&'static str, &'static str)>,
}

/// Which samples of a server's text are wanted.
#[derive(Debug, Default)]
pub(super) struct Wants {
    by_name: FxHashMap<Box<str>, Vec<Want>>,
}

impl Wants {
    /// Of the rows that stand in metrics of `server`.
    pub(super) fn of(server: Server, rows: &[&'static ReportedField]) -> Self {
        let mut wants = Self::default();
        for (row, location) in rows.iter().enumerate().map(|(at, row)| (at, row.location)) {
            let FieldLocation::Metric(metric) = location else { continue };
            let (family, selector) = family(metric);
            let mut want = |suffix: &str, part| {
                wants.by_name.entry(format!("{family}{suffix}").into()).or_default().push(Want { row, part, selector });
            };
            want("_sum", Part::Sum);
            want("_count", Part::Count);
            want("", Part::Plain);
        }
        for (_, name) in REQUESTS.iter().filter(|(of, _)| *of == server) {
            wants.by_name.entry((*name).into()).or_default().push(Want { row: 0, part: Part::Requests, selector: None });
        }
        wants
    }

    /// Reads a server's text.
    pub(super) fn read(&self, text: &str) -> Reading {
        let mut reading = Reading::default();
        for line in text.lines() {
            match Line::of(line) {
                Line::Sample(sample) if sample.value.is_finite() => {
                    let wants = self.by_name.get(sample.name).map_or(&[][..], Vec::as_slice);
                    wants.iter().filter(|want| fits(&sample, want.selector)).for_each(|want| reading.take(&sample, *want));
                }
                Line::Malformed => reading.malformed += 1,
                _ => {}
            }
        }
        reading
    }
}

impl Reading {
    fn take(&mut self, sample: &Sample<'_>, want: Want) {
        let model: Model = MODEL_LABELS.iter().find_map(|label| sample.label(label)).map(|name| name.into_owned().into());
        if let Part::Requests = want.part {
            *self.requests.entry(model).or_default() += sample.value;
            return;
        }
        let parts = self.parts(model, want.row);
        let part = match want.part {
            Part::Sum => &mut parts.sum,
            Part::Count => &mut parts.count,
            Part::Plain | Part::Requests => &mut parts.plain,
        };
        *part = Some(part.unwrap_or(0.0) + sample.value);
    }

    /// The parts of a row, to be added to.
    pub(super) fn parts(&mut self, model: Model, row: usize) -> &mut Parts {
        self.by_model.entry(model).or_default().entry(row).or_default()
    }
}

/// The name of a metric as rows write it, and what stands behind it: `family{label=value}`.
pub(super) fn family(metric: &'static str) -> (&'static str, Option<(&'static str, &'static str)>) {
    match metric.split_once('{') {
        Some((family, rest)) => (family, rest.trim_end_matches('}').split_once('=')),
        None => (metric, None),
    }
}

fn fits(sample: &Sample<'_>, selector: Option<(&'static str, &'static str)>) -> bool {
    selector.is_none_or(|(label, value)| sample.label(label).as_deref() == Some(value))
}
