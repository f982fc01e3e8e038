//! Lapwing's own telemetry, sent to an OpenTelemetry Collector: metrics at an interval, traces of sampled requests.
//!
//! Everything here runs on a separate thread, except the sampler, which sees each merged exchange on the aggregator's thread.
//! A collector that does not answer costs bounded memory; what it does not take is counted. It never delays the aggregator, and never
//! sends an exchange twice.
//!
//! ```
//! use std::{collections::BTreeMap, sync::Arc};
//! use lapwing_attribution::otlp::OwnTraces;
//! use lapwing_ledger::SamplingThreshold;
//! use lapwing_metrics::{Counters, Labels};
//! use lapwing_telemetry::{TailSampler, TraceQueue};
//!
//! let (queue, mut taken) = TraceQueue::new(Arc::new(Counters::default()));
//! let own_traces = Arc::new(OwnTraces::new(lapwing_ledger::TraceMark::random()));
//! let sampler = TailSampler::new(SamplingThreshold::EVERYTHING, BTreeMap::new(), Arc::new(Labels::new(8, 8, 8)), queue, own_traces);
//! drop(sampler);
//! assert!(taken.blocking_recv().is_none(), "the exporter ends with the sampler");
//! ```

#![forbid(unsafe_code)]

mod config;
mod conventions;
mod delta;
mod export_metrics;
mod export_traces;
mod resource;
mod sampler;
mod spans;
mod trace_queue;

pub use config::{Config, SignalExport, Temporality};
pub use export_metrics::{CollectMetrics, MetricsExporter};
pub use export_traces::TracesExporter;
pub use resource::ServiceResource;
pub use sampler::TailSampler;
pub use trace_queue::{QueuedExchange, SampledExchange, SamplingReason, TraceQueue};

#[cfg(test)]
mod tests;

use lapwing_attribution::collector::RetryPolicy;
use lapwing_metrics::{Counter, Counters};
use lapwing_net::error_text;
use lapwing_settings::Period;

/// How often a request is sent before it is given up: over about fifteen seconds, in which a collector restarts.
const ATTEMPTS: u32 = 6;

const fn retry_policy(timeout: Period) -> RetryPolicy {
    RetryPolicy::new(ATTEMPTS, timeout.0)
}

/// Counts `what` (spans, data points) a collector refused although it took their request.
fn note_rejected(counters: &Counters, (counter, what): (Counter, &str), rejected: i64, reason: &str) {
    let Some(rejected) = u64::try_from(rejected).ok().filter(|rejected| *rejected > 0) else { return };
    counters.add(counter, rejected);
    tracing::warn!(rejected, reason = error_text(reason), "telemetry: the collector refused {what}");
}
