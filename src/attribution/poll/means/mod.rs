//! Means per request from two polls: the difference between them, divided by the number of requests. A counter that fell means
//! that the server restarted; that model then has no means until the next poll.

use std::collections::BTreeMap;

use super::reading::{ModelLabel, PolledMetrics, RowValues};
use crate::ledger::{BatchStatistics, Report, ReportPlace, Stage};
use crate::protocol::servers::{Quantity, ReportedField, Scale};

/// Longer means cannot be durations of requests.
const ABSURD_NS: f64 = 24.0 * 3600.0 * 1e9;

/// The statistics of one model between two polls.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Means {
    /// Mean durations per request, in the order of the rows.
    pub(super) reports: Vec<Report>,
    /// Batch statistics.
    pub(super) batch: Option<BatchStatistics>,
}

/// The means between `before` and `after`, by model, for models of which something is known. Both were read with the same `rows`,
/// whose order is that of a request's stages.
pub(super) fn between(
    before: &PolledMetrics,
    after: &PolledMetrics,
    rows: &[&'static ReportedField],
) -> BTreeMap<ModelLabel, Means> {
    let whole = Interval::of(before, after, &None);
    let mut means = BTreeMap::new();
    for model in after.by_model.keys() {
        let own = if model.is_some() { Interval::of(before, after, model) } else { None };
        let Some(decides) = own.as_ref().or(whole.as_ref().filter(|_| model.is_none())) else { continue };
        // values without a model apply to each of the server's models
        let intervals: Vec<&Interval<'_>> = own.iter().chain(&whole).collect();
        let model_means =
            Means { reports: reports(&intervals, rows, has_queue_metric(after, model, rows)), batch: batch(&intervals, rows) };
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
    /// `None` if nothing is known of the model, or a value fell.
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

    /// The mean of the values added to a histogram or summary; for a counter, per request.
    fn mean(&self, row: usize) -> Option<f64> {
        let (before, after) = (self.before(row), self.after.get(&row)?);
        let (sum, count) = match (after.sum, after.count) {
            (Some(sum), Some(count)) => (sum - before.sum.unwrap_or(0.0), count - before.count.unwrap_or(0.0)),
            _ => (after.plain? - before.plain.unwrap_or(0.0), self.requests?),
        };
        let mean = sum / count;
        (count > 0.0 && mean.is_finite() && mean >= 0.0).then_some(mean)
    }

    fn gauge(&self, row: usize) -> Option<f64> {
        self.after.get(&row)?.plain.filter(|value| *value >= 0.0)
    }
}

/// The first of the intervals that has a mean of the row.
fn mean(intervals: &[&Interval<'_>], row: usize) -> Option<f64> {
    intervals.iter().find_map(|interval| interval.mean(row))
}

fn reports(intervals: &[&Interval<'_>], rows: &[&'static ReportedField], has_queue_metric: bool) -> Vec<Report> {
    let mut reports: Vec<Report> = Vec::new();
    let mut with_queue: Vec<usize> = Vec::new();
    for (at, row) in rows.iter().enumerate() {
        let (stage, phase) = match row.quantity {
            Quantity::Stage(stage) => (stage, None),
            Quantity::Phase(phase) => (Stage::Forward, Some(phase)),
            _ => continue,
        };
        let Some(duration_ns) = mean(intervals, at).and_then(|mean| ns(mean, row.scale)) else { continue };
        match reports.iter_mut().find(|r| (r.stage, r.phase) == (stage, phase)) {
            Some(report) if row.flags.adds_up => report.duration_ns = report.duration_ns.saturating_add(duration_ns),
            Some(_) => {}
            None => {
                if row.flags.includes_queue && (has_queue_metric || !row.flags.queue_if_reported) {
                    with_queue.push(reports.len());
                }
                reports.push(Report { phase, ..Report::of(stage, duration_ns, ReportPlace::Head) });
            }
        }
    }
    without_queue(&mut reports, &with_queue);
    if reports.iter().any(|r| r.phase.is_some()) {
        reports.retain(|r| r.stage != Stage::Forward || r.phase.is_some()); // the whole is the sum of its phases
    }
    reports
}

/// Subtracts the queue time from the reports that include it. If the queue time is unknown, such reports are dropped.
fn without_queue(reports: &mut Vec<Report>, with_queue: &[usize]) {
    let queue_ns = reports.iter().find(|r| r.stage == Stage::Queue).map(|r| r.duration_ns);
    for at in with_queue.iter().rev() {
        match queue_ns {
            Some(queue_ns) => reports[*at].duration_ns = reports[*at].duration_ns.saturating_sub(queue_ns),
            None => drop(reports.remove(*at)),
        }
    }
}

fn ns(mean: f64, scale: Scale) -> Option<u64> {
    let unit_ns = match scale {
        Scale::Ns => 1.0,
        Scale::Us => 1e3,
        Scale::Ms => 1e6,
        Scale::S => 1e9,
        Scale::RustDebug | Scale::Count | Scale::Text => return None,
    };
    let ns = mean * unit_ns;
    (ns <= ABSURD_NS).then(|| ns.round() as u64)
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
