//! The families of what is inferred: stages as sums over the requests of the last five minutes, so that pods add up; the wait that a
//! request would meet now, and what the server can take. They are absent where nothing is diagnosed, and empty while nothing is inferred.

use std::fmt;

use crate::inferred::{InferredSeries, SeriesNames};
use lapwing_diagnosis::{FittedStages, FittedValue};
use lapwing_ledger::Stage;
use lapwing_metrics::defs::{self, MetricFamily};
use lapwing_metrics::exposition::{Encoder, family, gauge};

/// Everything that is inferred, with so many requests in flight now.
pub(crate) fn encode(inferred: &InferredSeries, in_flight: u64, encoder: &mut dyn Encoder) -> fmt::Result {
    let fitted = || inferred.iter().filter_map(|(names, figures)| Some((names, figures.stages.as_ref()?.fitted.as_ref()?)));
    family(encoder, &defs::INFERRED_SECONDS, |encoder| {
        for (names, stages) in fitted() {
            for (stage, estimate, seconds) in estimates(stages) {
                gauge(encoder, labels(names, [("stage", stage.name()), ("estimate", estimate)]), seconds)?;
            }
        }
        Ok(())
    })?;
    family(encoder, &defs::INFERRED_REQUESTS, |encoder| {
        fitted().try_for_each(|(names, stages)| gauge(encoder, labels(names, []), stages.requests))
    })?;
    let waits = inferred.iter().filter_map(|(names, figures)| Some((names, figures.waiting?.predicted_ns(in_flight))));
    let waits = waits.map(|(names, ns)| (names, None, seconds(ns)));
    with_intervals(&defs::PREDICTED_WAIT, waits, encoder)?;
    let capacities = || {
        let known = inferred.iter().filter_map(|(names, figures)| Some((names, figures.capacity.as_ref()?)));
        known.filter_map(|(names, (quantile, capacity))| Some((names, *quantile, capacity.utilisation, capacity.rate_at_budget?)))
    };
    let utilised = capacities().map(|(names, _, utilisation, _)| (names, None, utilisation));
    with_intervals(&defs::UTILISATION, utilised, encoder)?;
    let rates = capacities().map(|(names, quantile, _, rate)| (names, Some(quantile), rate));
    with_intervals(&defs::CAPACITY, rates, encoder)
}

/// Writes a family of values with the ends of their 95 % intervals, some of them for a quantile.
fn with_intervals<'n>(
    of: &MetricFamily,
    values: impl Iterator<Item = (&'n SeriesNames, Option<&'static str>, FittedValue)>,
    encoder: &mut dyn Encoder,
) -> fmt::Result {
    family(encoder, of, |encoder| {
        for (names, quantile, FittedValue { value, low, high }) in values {
            for (estimate, value) in [("mean", value), ("low", low), ("high", high)] {
                let own = quantile.map(|quantile| ("quantile", quantile)).into_iter().chain([("estimate", estimate)]);
                gauge(encoder, labels(names, own), value)?;
            }
        }
        Ok(())
    })
}

fn labels<'l>(
    [route, model, upstream]: &'l SeriesNames,
    own: impl IntoIterator<Item = (&'static str, &'l str)>,
) -> Vec<(&'static str, &'l str)> {
    [("route", &**route), ("model", &**model), ("upstream", &**upstream)].into_iter().chain(own).collect()
}

fn seconds(FittedValue { value, low, high }: FittedValue) -> FittedValue {
    FittedValue { value: value / 1e9, low: low / 1e9, high: high / 1e9 }
}

/// The sums in seconds, with the bounds of their 95 % intervals where there are any.
#[allow(clippy::cast_precision_loss, reason = "Prometheus has floating point only")]
fn estimates(stages: &FittedStages) -> Vec<(Stage, &'static str, f64)> {
    let seconds = |mean_ns: f64| mean_ns * stages.requests as f64 / 1e9;
    let with_interval = |stage, FittedValue { value, low, high }| {
        [("sum", value), ("low", low), ("high", high)].map(|(estimate, ns)| (stage, estimate, seconds(ns)))
    };
    let queue = stages.queue.map(|queue| with_interval(Stage::Queue, queue.mean_ns));
    let explained = with_interval(Stage::Forward, stages.forward.mean_ns).into_iter().chain(queue.into_iter().flatten());
    explained.chain([(Stage::Upstream, "sum", seconds(stages.unexplained_mean_ns as f64))]).collect()
}
