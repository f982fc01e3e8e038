//! Each model's metrics, and `/metrics` as OpenMetrics text. Durations are nanoseconds here and seconds in the text.
//! docs/ENGINE.md is checked against [`FAMILIES`].

use std::fmt;
use std::sync::atomic::AtomicU64;

use http::{HeaderName, HeaderValue};
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family as Samples;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::error::{Bound, Outcome, RequestError};
use super::placement::{LabelSet, PlacementMetrics};
use lapwing_metrics::REQUEST_BOUNDS_NS;
use lapwing_metrics::defs::{MetricFamily, MetricKind};
use lapwing_model::service::{Answer, Batched, Servable};

/// `Content-Type` of the text of [`Metrics::text`].
pub(crate) const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The field of HTTP, and the key of gRPC's metadata.
pub(crate) const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");
/// What ran the model: `plan`, `tabular`, `onnxruntime` or `rten`.
pub(crate) const EXECUTOR: HeaderName = HeaderName::from_static("lapwing-executor");

const NS_PER_S: f64 = 1e9;

const REQUESTS: MetricFamily = MetricFamily {
    name: "lapwing_engine_requests",
    kind: MetricKind::Counter,
    unit: None,
    labels: &["model", "version", "executor", "outcome"],
    help: "Inference requests of a served model that ended, each once, by how they ended.",
};
const STAGES: MetricFamily = MetricFamily {
    name: "lapwing_engine_stage_duration_seconds",
    kind: MetricKind::Histogram,
    unit: Some("seconds"),
    labels: &["model", "stage"],
    help: "Where the time of answered requests went: preprocessing (decoding, and laying the batch end to end), queue, forward, postprocessing (cutting the batch, and encoding).",
};
const BATCH_CALLS: MetricFamily = MetricFamily {
    name: "lapwing_engine_batch_calls",
    kind: MetricKind::Histogram,
    unit: None,
    labels: &["model"],
    help: "Calls in the batch in which a request ran, each answered request once.",
};
const BATCH_TOKENS: MetricFamily = MetricFamily {
    name: "lapwing_engine_batch_tokens",
    kind: MetricKind::Histogram,
    unit: None,
    labels: &["model"],
    help: "Executed tokens (rows, where a model has no sequences) of the batch in which a request ran, each answered request once.",
};
const TOKENS: MetricFamily = MetricFamily {
    name: "lapwing_engine_tokens",
    kind: MetricKind::Counter,
    unit: None,
    labels: &["model", "kind"],
    help: "Tokens (rows, where a model has no sequences) of answered requests: executed with padding, or useful; each request adds its batch's over the calls in it.",
};
const IN_FLIGHT: MetricFamily = MetricFamily {
    name: "lapwing_engine_requests_in_flight",
    kind: MetricKind::Gauge,
    unit: None,
    labels: &["model"],
    help: "Inference requests of a model that have come and not ended: being read, waiting, or running.",
};
const READY: MetricFamily = MetricFamily {
    name: "lapwing_engine_ready",
    kind: MetricKind::Gauge,
    unit: None,
    labels: &["model", "version"],
    help: "1 while the model is warm and takes requests, else 0.",
};
const BODY_BYTES: MetricFamily = MetricFamily {
    name: "lapwing_engine_body_bytes",
    kind: MetricKind::Gauge,
    unit: None,
    labels: &[],
    help: "Memory that request bodies take, from their first byte until the model has run; engine.body_budget bounds it.",
};
const BOUNDS: MetricFamily = MetricFamily {
    name: "lapwing_engine_bounds_exceeded",
    kind: MetricKind::Counter,
    unit: None,
    labels: &["bound"],
    help: "Requests that were refused because they exceeded a bound of the server, by the bound.",
};

pub(crate) const DEVICE: MetricFamily = MetricFamily {
    name: "lapwing_engine_device_info",
    kind: MetricKind::Gauge,
    unit: None,
    labels: &["model", "version", "device", "name", "precision"],
    help: "1 for where a model runs now, and in what numbers; name is the GPU's, as its driver says it.",
};
pub(crate) const FALLBACK: MetricFamily = MetricFamily {
    name: "lapwing_engine_fallback",
    kind: MetricKind::Counter,
    unit: None,
    labels: &["model", "reason"],
    help: "How often a model was put on the processor though a GPU was looked for, when it was loaded or while it ran.",
};

/// Every family of `/metrics`.
pub const FAMILIES: &[MetricFamily] =
    &[REQUESTS, STAGES, BATCH_CALLS, BATCH_TOKENS, TOKENS, IN_FLIGHT, READY, BODY_BYTES, BOUNDS, DEVICE, FALLBACK];
/// Where the time of a request went, in nanoseconds: the model's stages, with what serving adds to the first and the last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StageTimes {
    pub(crate) preprocessing_ns: u64,
    pub(crate) queue_ns: u64,
    pub(crate) forward_ns: u64,
    pub(crate) postprocessing_ns: u64,
}

impl StageTimes {
    /// The stages of an answer whose request took `decode_ns` to decode, and which took `encode_ns` to encode.
    pub(crate) const fn of(answer: &Answer, decode_ns: u64, encode_ns: u64) -> Self {
        let stages = &answer.stages;
        Self {
            preprocessing_ns: stages.preprocessing_ns.saturating_add(decode_ns),
            queue_ns: stages.queue_ns,
            forward_ns: stages.forward_ns,
            postprocessing_ns: stages.postprocessing_ns.saturating_add(encode_ns),
        }
    }

    /// In the order in which they are reported: preprocessing begins with the decoding.
    pub(crate) const fn stages(&self) -> [(&'static str, u64); 4] {
        [
            ("preprocessing", self.preprocessing_ns),
            ("queue", self.queue_ns),
            ("forward", self.forward_ns),
            ("postprocessing", self.postprocessing_ns),
        ]
    }
}

/// `Server-Timing` of an answer, its stages in milliseconds under the names that Lapwing's attribution reads:
/// `preprocessing;dur=0.012345, queue;dur=…, forward;dur=…, postprocessing;dur=…`
pub(crate) fn server_timing(spent: &StageTimes) -> Option<HeaderValue> {
    let entry = |(name, ns): (&str, u64)| format!("{name};dur={}.{:06}", ns / 1_000_000, ns % 1_000_000);
    HeaderValue::try_from(spent.stages().map(entry).join(", ")).ok()
}

type Fractional = Counter<f64, AtomicU64>;

/// Every metric family, and the registry that writes them.
#[derive(Debug)]
pub(crate) struct Metrics {
    requests: Samples<LabelSet, Counter>,
    stages: Samples<LabelSet, Histogram>,
    batch_calls: Samples<LabelSet, Histogram>,
    batch_tokens: Samples<LabelSet, Histogram>,
    tokens: Samples<LabelSet, Fractional>,
    in_flight: Samples<LabelSet, Gauge>,
    ready: Samples<LabelSet, Gauge>,
    body_bytes: Gauge,
    bounds: [Counter; Bound::ALL.len()],
    device: Samples<LabelSet, Gauge>,
    fallback: Samples<LabelSet, Counter>,
    registry: Mutex<Registry>,
}

/// The samples of one version of one model.
#[derive(Debug)]
pub(crate) struct ModelMetrics {
    outcomes: [Counter; Outcome::ALL.len()],
    stages: [Histogram; 4],
    batch_calls: Histogram,
    batch_tokens: Histogram,
    executed: Fractional,
    useful: Fractional,
    in_flight: Gauge,
    ready: Gauge,
    placement: PlacementMetrics,
}

#[allow(clippy::cast_precision_loss, reason = "Prometheus has floating point only")]
fn seconds() -> Histogram {
    Histogram::new(REQUEST_BOUNDS_NS.iter().map(|ns| *ns as f64 / NS_PER_S))
}

/// 1, 2, 4, … 32,768.
fn powers() -> Histogram {
    Histogram::new((0..16).map(|i| f64::from(1_u32 << i)))
}

impl Default for Metrics {
    fn default() -> Self {
        let bounds: Samples<LabelSet, Counter> = Samples::default();
        let of = |bound: Bound| bounds.get_or_create_owned(&vec![("bound", bound.name().to_owned())]);
        let metrics = Self {
            bounds: Bound::ALL.map(of),
            body_bytes: Gauge::default(),
            requests: Samples::default(),
            stages: Samples::new_with_constructor(seconds),
            batch_calls: Samples::new_with_constructor(powers),
            batch_tokens: Samples::new_with_constructor(powers),
            tokens: Samples::default(),
            in_flight: Samples::default(),
            ready: Samples::default(),
            device: Samples::default(),
            fallback: Samples::default(),
            registry: Mutex::new(Registry::default()),
        };
        {
            let mut registry = metrics.registry.lock();
            registry.register(REQUESTS.name, trimmed(REQUESTS.help), metrics.requests.clone());
            let base = STAGES.name.trim_end_matches("_seconds");
            registry.register_with_unit(base, trimmed(STAGES.help), Unit::Seconds, metrics.stages.clone());
            registry.register(BATCH_CALLS.name, trimmed(BATCH_CALLS.help), metrics.batch_calls.clone());
            registry.register(BATCH_TOKENS.name, trimmed(BATCH_TOKENS.help), metrics.batch_tokens.clone());
            registry.register(TOKENS.name, trimmed(TOKENS.help), metrics.tokens.clone());
            registry.register(IN_FLIGHT.name, trimmed(IN_FLIGHT.help), metrics.in_flight.clone());
            registry.register(READY.name, trimmed(READY.help), metrics.ready.clone());
            registry.register(BODY_BYTES.name, trimmed(BODY_BYTES.help), metrics.body_bytes.clone());
            registry.register(BOUNDS.name, trimmed(BOUNDS.help), bounds);
            registry.register(DEVICE.name, trimmed(DEVICE.help), metrics.device.clone());
            registry.register(FALLBACK.name, trimmed(FALLBACK.help), metrics.fallback.clone());
        }
        metrics
    }
}

/// The help text without its full stop, which the registry adds.
fn trimmed(help: &str) -> &str {
    help.trim_end_matches('.')
}

impl Metrics {
    /// The metrics of a model, at zero except where it is placed.
    pub(crate) fn tallies(&self, served: &dyn Servable) -> ModelMetrics {
        let about = served.about();
        let model = || ("model", about.name.clone());
        let version = || ("version", about.version.clone());
        let outcome = |outcome: Outcome| {
            let executor = ("executor", about.executor.name().to_owned());
            let labels = vec![model(), version(), executor, ("outcome", outcome.name().to_owned())];
            self.requests.get_or_create_owned(&labels)
        };
        let stage = |(name, _): (&str, u64)| self.stages.get_or_create_owned(&vec![model(), ("stage", name.to_owned())]);
        let kind = |kind: &str| self.tokens.get_or_create_owned(&vec![model(), ("kind", kind.to_owned())]);
        ModelMetrics {
            outcomes: Outcome::ALL.map(outcome),
            stages: StageTimes::default().stages().map(stage),
            batch_calls: self.batch_calls.get_or_create_owned(&vec![model()]),
            batch_tokens: self.batch_tokens.get_or_create_owned(&vec![model()]),
            executed: kind("executed"),
            useful: kind("useful"),
            in_flight: self.in_flight.get_or_create_owned(&vec![model()]),
            ready: self.ready.get_or_create_owned(&vec![model(), version()]),
            placement: PlacementMetrics::new(self.device.clone(), self.fallback.clone(), served),
        }
    }

    /// Counts a request that was refused, if a bound is the reason.
    pub(crate) fn refused(&self, error: &RequestError) {
        if let Some(bound) = error.bound() {
            self.bounds[bound as usize].inc();
        }
    }

    /// Sets what bodies take now.
    pub(crate) fn set_body_bytes(&self, bytes: usize) {
        self.body_bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// OpenMetrics text.
    pub(crate) fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry.lock())?;
        Ok(text)
    }
}

impl ModelMetrics {
    /// Counts a request that arrived.
    pub(crate) fn begin(&self) {
        self.in_flight.inc();
    }

    /// Counts a request that ended.
    pub(crate) fn end(&self, outcome: Outcome) {
        self.in_flight.dec();
        self.outcomes[outcome as usize].inc();
    }

    /// Records where the time of an answered request went, and its batch.
    #[allow(clippy::cast_precision_loss, reason = "Prometheus has floating point only")]
    pub(crate) fn answered(&self, spent: &StageTimes, batch: &Batched) {
        for (histogram, (_, ns)) in self.stages.iter().zip(spent.stages()) {
            histogram.observe(ns as f64 / NS_PER_S);
        }
        self.batch_calls.observe(batch.calls as f64);
        self.batch_tokens.observe(batch.executed as f64);
        let calls = batch.calls.max(1) as f64;
        self.executed.inc_by(batch.executed as f64 / calls);
        self.useful.inc_by(batch.useful as f64 / calls);
    }

    /// Updates the metrics of readiness and placement.
    pub(crate) fn refresh(&self, served: &dyn Servable) {
        self.ready.set(i64::from(served.is_ready()));
        self.placement.refresh(served);
    }
}
