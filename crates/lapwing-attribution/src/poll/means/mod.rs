//! What a server counted between two polls: by model and stage a sum of time and the number of requests that it covers. A counter
//! that fell means that the server restarted; that model then has nothing until the next poll.
//!
//! Sums are kept, not means, so that those of several polls add up to what the server counted.

use std::collections::BTreeMap;

use super::reading::{ModelLabel, PolledMetrics, RowValues};
use lapwing_ledger::{Phase, Stage};
use lapwing_metrics::{BatchStatistics, PolledStage, PolledSum};
use lapwing_protocol::servers::{Quantity, ReportedField, Scale};

/// Longer means cannot be durations of requests.
const ABSURD_NS: f64 = 24.0 * 3600.0 * 1e9;
/// More requests cannot be answered between two polls.
const ABSURD_REQUESTS: f64 = 1e9;

/// The statistics of one model between two polls.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Means {
    /// Time by stage, in the order of the rows.
    pub(crate) stages: Vec<PolledStage>,
    /// Batch statistics.
    pub(crate) batch: Option<BatchStatistics>,
}

/// The means between `before` and `after`, by model, for models of which something is known. Both were read with the same `rows`,
/// whose order is that of a request's stages.
pub(crate) fn between(
    before: &PolledMetrics,
    after: &PolledMetrics,
    rows: &[&'static ReportedField],
) -> BTreeMap<ModelLabel, Means> {
    let whole = Interval::of(before, after, &None);
    let mut means = BTreeMap::new();
    for model in after.by_model.keys() {
        let own = if model.is_some() { Interval::of(before, after, model) } else { None };
        let Some(decides) = own.as_ref().or(whole.as_ref().filter(|_| model.is_none())) else { continue };
        // values without a model say something of each of the server's models, but their sum is that of the server
        let intervals: Vec<&Interval<'_>> = own.iter().chain(&whole).collect();
        let model_means =
            Means { stages: stages(&intervals, rows, has_queue_metric(after, model, rows)), batch: batch(&intervals, rows) };
        if decides.is_used() && model_means != Means::default() {
            means.insert(model.clone(), model_means);
        }
    }
    means
}

/// Whether there is any value for the queue time of the model, even an old one.
fn has_queue_metric(after: &PolledMetrics, model: &ModelLabel, rows: &[&'static ReportedField]) -> bool {
    let is_queue = |row: &usize| rows.get(*row).is_some_and(|row| row.quantity == Quantity::Stage(Stage::Queue));
    [model, &None].into_iter().any(|of| after.by_model.get(of).is_some_and(|parts| parts.keys().any(is_queue)))
}

/// The time between two polls of one model.
struct Interval<'a> {
    before: Option<&'a BTreeMap<usize, RowValues>>,
    after: &'a BTreeMap<usize, RowValues>,
    requests: Option<f64>,
}

impl<'a> Interval<'a> {
    /// `None` if nothing is known about the model, or a value fell.
    fn of(before: &'a PolledMetrics, after: &'a PolledMetrics, model: &ModelLabel) -> Option<Self> {
        let now = after.by_model.get(model)?;
        let requests = |of: &PolledMetrics| of.requests.get(model).copied();
        let requests = requests(after).map(|n| n - requests(before).unwrap_or(0.0));
        let interval = Self { before: before.by_model.get(model), after: now, requests };
        (!interval.fell()).then_some(interval)
    }

    fn before(&self, row: usize) -> RowValues {
        self.before.and_then(|parts| parts.get(&row)).copied().unwrap_or_default()
    }

    fn fell(&self) -> bool {
        let fell =
            |before: Option<f64>, after: Option<f64>| before.is_some_and(|before| after.is_none_or(|after| after < before));
        let cumulative = self.before.into_iter().flatten();
        self.requests.is_some_and(|n| n < 0.0)
            || cumulative.into_iter().any(|(row, before)| {
                let after = self.after.get(row).copied().unwrap_or_default();
                fell(before.sum, after.sum) || fell(before.count, after.count)
            })
    }

    /// Whether requests were counted; true if the server counts none.
    fn is_used(&self) -> bool {
        let counts = || self.after.iter().filter_map(|(row, parts)| Some((*row, parts.count?)));
        match self.requests {
            Some(requests) => requests > 0.0,
            None => counts().next().is_none() || counts().any(|(row, count)| count > self.before(row).count.unwrap_or(0.0)),
        }
    }

    /// The sum of the values added to a histogram or summary, and their number; for a counter, the number of requests.
    fn added(&self, row: usize) -> Option<(f64, f64)> {
        let (before, after) = (self.before(row), self.after.get(&row)?);
        let (sum, count) = match (after.sum, after.count) {
            (Some(sum), Some(count)) => (sum - before.sum.unwrap_or(0.0), count - before.count.unwrap_or(0.0)),
            _ => (after.plain? - before.plain.unwrap_or(0.0), self.requests?),
        };
        let mean = sum / count;
        (count > 0.0 && mean.is_finite() && mean >= 0.0).then_some((sum, count))
    }

    fn mean(&self, row: usize) -> Option<f64> {
        self.added(row).map(|(sum, count)| sum / count)
    }

    fn gauge(&self, row: usize) -> Option<f64> {
        self.after.get(&row)?.plain.filter(|value| *value >= 0.0)
    }
}

/// The first of the intervals that has a mean of the row.
fn mean(intervals: &[&Interval<'_>], row: usize) -> Option<f64> {
    intervals.iter().find_map(|interval| interval.mean(row))
}

/// Time of a stage while the rows are read.
struct StageTime {
    stage: Stage,
    phase: Option<Phase>,
    requests: f64,
    sum_ns: f64,
    /// Whether it is of the first of the intervals; else it is known from values of the whole server, which count it.
    is_own: bool,
    has_queue: bool,
}

impl StageTime {
    fn mean_ns(&self) -> f64 {
        self.sum_ns / self.requests
    }
}

/// The time of each stage in the first of the intervals.
fn stages(intervals: &[&Interval<'_>], rows: &[&'static ReportedField], has_queue_metric: bool) -> Vec<PolledStage> {
    let mut found: Vec<StageTime> = Vec::new();
    for (at, row) in rows.iter().enumerate() {
        let (stage, phase) = match row.quantity {
            Quantity::Stage(stage) => (stage, None),
            Quantity::Phase(phase) => (Stage::Forward, Some(phase)),
            _ => continue,
        };
        let added = intervals.iter().enumerate().find_map(|(place, interval)| Some((place == 0, interval.added(at)?)));
        let (Some((is_own, (sum, requests))), Some(unit_ns)) = (added, unit_ns(row.scale)) else { continue };
        let has_queue = row.flags.includes_queue && (has_queue_metric || !row.flags.queue_if_reported);
        let time = StageTime { stage, phase, requests, sum_ns: sum * unit_ns, is_own, has_queue };
        if time.mean_ns() > ABSURD_NS || requests > ABSURD_REQUESTS {
            continue;
        }
        match found.iter_mut().find(|known| (known.stage, known.phase) == (stage, phase)) {
            Some(known) if row.flags.adds_up => {
                (known.sum_ns, known.requests) = (known.sum_ns + time.sum_ns, known.requests.max(requests));
            }
            Some(_) => {}
            None => found.push(time),
        }
    }
    without_queue(&mut found);
    if found.iter().any(|time| time.phase.is_some()) {
        found.retain(|time| time.stage != Stage::Forward || time.phase.is_some()); // the whole is the sum of its phases
    }
    let own = found.into_iter().filter(|time| time.is_own && time.requests >= 0.5);
    own.map(|time| {
        let requests = time.requests.round();
        let sum = PolledSum { requests: requests as u64, ns: (time.mean_ns() * requests).round() as u64 };
        PolledStage { stage: time.stage, phase: time.phase, sum }
    })
    .collect()
}

/// Subtracts the queue time from the stages that include it. If the queue time is unknown, such stages are dropped.
fn without_queue(found: &mut Vec<StageTime>) {
    let queue_ns = found.iter().find(|time| time.stage == Stage::Queue).map(StageTime::mean_ns);
    found.retain_mut(|time| match (time.has_queue, queue_ns) {
        (false, _) => true,
        (true, Some(queue_ns)) => {
            time.sum_ns = (time.sum_ns - queue_ns * time.requests).max(0.0);
            true
        }
        (true, None) => false,
    });
}

/// Nanoseconds in a unit of a scale of time.
const fn unit_ns(scale: Scale) -> Option<f64> {
    match scale {
        Scale::Ns => Some(1.0),
        Scale::Us => Some(1e3),
        Scale::Ms => Some(1e6),
        Scale::S => Some(1e9),
        Scale::RustDebug | Scale::Count | Scale::Text => None,
    }
}

/// Padding counts rows of an execution that no request asked for, and the batch size counts them too; the returned size excludes
/// them.
fn batch(intervals: &[&Interval<'_>], rows: &[&'static ReportedField]) -> Option<BatchStatistics> {
    let of = |quantity: Quantity| rows.iter().enumerate().filter(move |(_, row)| row.quantity == quantity);
    let level = |row| intervals.iter().find_map(|i| i.mean(row).or_else(|| i.gauge(row)));
    let sum = |quantity| {
        let mut known = of(quantity).filter_map(|(at, row)| Some((level(at)?, row)));
        let (first, _) = known.next()?;
        Some(known.filter(|(_, row)| row.flags.adds_up).fold(first, |sum, (level, _)| sum + level))
    };
    let padded = of(Quantity::Padding).find_map(|(at, _)| mean(intervals, at));
    let (size, padding) = match (sum(Quantity::BatchSize), padded) {
        (Some(executed), Some(padded)) if padded < executed => (Some(executed - padded), Some(padded / executed)),
        (executed, _) => (executed, None),
    };
    let batch = BatchStatistics { size, padding, running: sum(Quantity::Running), waiting: sum(Quantity::Waiting) };
    (batch != BatchStatistics::default()).then_some(batch)
}

#[cfg(test)]
mod tests;
