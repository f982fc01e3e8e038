//! The content of one poll: sums, counts and gauges since the server started, by model and by row of the table of servers.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::text::{MetricLine, Sample};
use lapwing_ledger::Server;
use lapwing_protocol::servers::{FieldLocation, ReportedField};

/// A model's name; `None` is the server as a whole, which is what single-model servers report.
pub(crate) type ModelLabel = Option<Box<str>>;

/// The labels that name the model.
const MODEL_LABELS: [&str; 2] = ["model_name", "model"];

/// When the process that answered was started, in seconds since the Unix epoch. Where several processes share a port, each serves
/// its own counters, and this distinguishes them.
const PROCESS_START: &str = "process_start_time_seconds";

/// Request counters, used as the divisor for a server's plain counters of time.
const REQUESTS: [(Server, &str); 2] =
    [(Server::Triton, "nv_inference_request_success"), (Server::TorchServe, "ts_inference_requests_total")];

/// The values of one row, summed over the label sets of one model, in the row's own unit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct RowValues {
    /// The sum of a histogram or summary.
    pub(crate) sum: Option<f64>,
    /// Its count.
    pub(crate) count: Option<f64>,
    /// A counter's or gauge's value.
    pub(crate) plain: Option<f64>,
}

/// One poll.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PolledMetrics {
    /// By model, then by the row's index in the list that was used for reading.
    pub(crate) by_model: BTreeMap<ModelLabel, BTreeMap<usize, RowValues>>,
    /// Requests since the server started, if its counters of time need them.
    pub(crate) requests: BTreeMap<ModelLabel, f64>,
    /// The start of the process whose counters these are, as the bits of a number; `None` if the server does not say.
    pub(crate) process: Option<u64>,
    /// Lines that are not Prometheus text.
    pub(crate) malformed: usize,
}

#[derive(Clone, Copy, Debug)]
enum RowValue {
    Sum,
    Count,
    Plain,
    Requests,
}

/// One use of a sample.
#[derive(Clone, Copy, Debug)]
struct WantedSample {
    row: usize,
    part: RowValue,
    /// A label that the sample must have, and its value.
    selector: Option<(&'static str, &'static str)>,
}

/// The samples of a server's text that are read.
#[derive(Debug, Default)]
pub(crate) struct WantedSamples {
    by_name: FxHashMap<Box<str>, Vec<WantedSample>>,
}

impl WantedSamples {
    /// The samples for the rows of `server` that are metrics.
    pub(crate) fn of(server: Server, rows: &[&'static ReportedField]) -> Self {
        let mut wants = Self::default();
        for (row, location) in rows.iter().enumerate().map(|(at, row)| (at, row.location)) {
            let FieldLocation::Metric(metric) = location else { continue };
            let (family, selector) = family(metric);
            let mut want = |suffix: &str, part| {
                wants.by_name.entry(format!("{family}{suffix}").into()).or_default().push(WantedSample { row, part, selector });
            };
            want("_sum", RowValue::Sum);
            want("_count", RowValue::Count);
            want("", RowValue::Plain);
        }
        for (_, name) in REQUESTS.iter().filter(|(of, _)| *of == server) {
            wants.by_name.entry((*name).into()).or_default().push(WantedSample {
                row: 0,
                part: RowValue::Requests,
                selector: None,
            });
        }
        wants
    }

    /// Reads a server's text.
    pub(crate) fn read(&self, text: &str) -> PolledMetrics {
        let mut reading = PolledMetrics::default();
        for line in text.lines() {
            match MetricLine::of(line) {
                MetricLine::Sample(sample) if sample.name == PROCESS_START => reading.process = Some(sample.value.to_bits()),
                MetricLine::Sample(sample) if sample.value.is_finite() => {
                    let wants = self.by_name.get(sample.name).map_or(&[][..], Vec::as_slice);
                    wants.iter().filter(|want| fits(&sample, want.selector)).for_each(|want| reading.take(&sample, *want));
                }
                MetricLine::Malformed => reading.malformed += 1,
                _ => {}
            }
        }
        reading
    }
}

impl PolledMetrics {
    fn take(&mut self, sample: &Sample<'_>, want: WantedSample) {
        let model: ModelLabel = MODEL_LABELS.iter().find_map(|label| sample.label(label)).map(|name| name.into_owned().into());
        if let RowValue::Requests = want.part {
            *self.requests.entry(model).or_default() += sample.value;
            return;
        }
        let parts = self.parts(model, want.row);
        let part = match want.part {
            RowValue::Sum => &mut parts.sum,
            RowValue::Count => &mut parts.count,
            RowValue::Plain | RowValue::Requests => &mut parts.plain,
        };
        *part = Some(part.unwrap_or(0.0) + sample.value);
    }

    /// The values of a row, created if needed.
    pub(crate) fn parts(&mut self, model: ModelLabel, row: usize) -> &mut RowValues {
        self.by_model.entry(model).or_default().entry(row).or_default()
    }
}

/// Splits a metric as rows write it, `family{label=value}`, into the name and the selector.
pub(crate) fn family(metric: &'static str) -> (&'static str, Option<(&'static str, &'static str)>) {
    match metric.split_once('{') {
        Some((family, rest)) => (family, rest.trim_end_matches('}').split_once('=')),
        None => (metric, None),
    }
}

fn fits(sample: &Sample<'_>, selector: Option<(&'static str, &'static str)>) -> bool {
    selector.is_none_or(|(label, value)| sample.label(label).as_deref() == Some(value))
}
