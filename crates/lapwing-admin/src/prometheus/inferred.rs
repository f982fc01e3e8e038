//! The families of inferred stages: sums over the requests of the last five minutes, so that pods add up. They are absent where nothing
//! is diagnosed, and empty while nothing is inferred.

use std::fmt;

use crate::inferred::InferredSeries;
use lapwing_diagnosis::{FittedStages, FittedValue};
use lapwing_ledger::Stage;
use lapwing_metrics::defs;
use lapwing_metrics::exposition::{Encoder, family, gauge};

/// Inferred time by stage, and of how many requests it is.
pub(crate) fn encode(inferred: &InferredSeries, encoder: &mut dyn Encoder) -> fmt::Result {
    let fitted = || inferred.iter().filter_map(|(names, stages)| Some((names, stages.fitted.as_ref()?)));
    family(encoder, &defs::INFERRED_SECONDS, |encoder| {
        for ([route, model, upstream], stages) in fitted() {
            for (stage, estimate, seconds) in estimates(stages) {
                let series = [("route", &**route), ("model", &**model), ("upstream", &**upstream)];
                let own = [("stage", stage.name()), ("estimate", estimate)];
                gauge(encoder, series.into_iter().chain(own).collect::<Vec<_>>(), seconds)?;
            }
        }
        Ok(())
    })?;
    family(encoder, &defs::INFERRED_REQUESTS, |encoder| {
        for ([route, model, upstream], stages) in fitted() {
            let labels = vec![("route", &**route), ("model", &**model), ("upstream", &**upstream)];
            gauge(encoder, labels, stages.requests)?;
        }
        Ok(())
    })
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
