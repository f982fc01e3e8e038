//! The demo server's OTLP spans: one server span per sampled request, and a child per step.
//!
//! Times are nanoseconds since the Unix epoch, placed by one reading of the wall clock per request.

pub(crate) mod exporter;

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};

use super::steps::{Step, TimedStep};
use super::tickets::MODEL;
use lapwing_ledger::{SpanId, Stamp, TraceContext, clock};

/// The path of inference requests; with the method, the server span's name.
pub(crate) const ROUTE: &str = "/v2/models/tickets/infer";

/// When a request's head had been read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    at: Stamp,
    unix_ns: u64,
}

impl Arrival {
    /// Reads both clocks.
    pub(crate) fn now() -> Self {
        Self { at: Stamp::now(), unix_ns: clock::unix_ns() }
    }

    /// The moment.
    pub(crate) const fn at(self) -> Stamp {
        self.at
    }

    /// The request's spans under the caller's, ending now; the children first, as they end before their parent.
    pub(crate) fn spans(self, caller: TraceContext, status: u16, steps: &[TimedStep]) -> Vec<Span> {
        let server = SpanId::random();
        let mut spans: Vec<Span> = steps.iter().map(|timed| self.child(caller, server, timed)).collect();
        spans.push(Span {
            name: format!("POST {ROUTE}"),
            kind: SpanKind::Server.into(),
            attributes: vec![
                text("http.request.method", "POST"),
                text("http.route", ROUTE),
                number("http.response.status_code", status.into()),
            ],
            ..self.span(caller, server, caller.span, self.at, Stamp::now())
        });
        spans
    }

    fn child(self, caller: TraceContext, server: SpanId, timed: &TimedStep) -> Span {
        let (name, attributes) = match timed.step {
            Step::Hydration { rows, hits } => (
                "feature_hydration",
                vec![
                    boolean("cache_hit", rows == hits),
                    count("feature.rows", rows),
                    count("feature.cache_hits", hits),
                    count("feature.cache_misses", rows.saturating_sub(hits)),
                ],
            ),
            Step::Preprocessing { tokens } => ("preprocessing", vec![count("text.tokens", tokens)]),
            Step::Forward { rows } => ("model_forward", vec![text("model.name", MODEL), count("batch.rows", rows)]),
            Step::Postprocessing => ("postprocessing", Vec::new()),
        };
        Span {
            name: name.to_owned(),
            kind: SpanKind::Internal.into(),
            attributes,
            ..self.span(caller, SpanId::random(), server, timed.start, timed.end)
        }
    }

    fn span(self, caller: TraceContext, id: SpanId, parent: SpanId, start: Stamp, end: Stamp) -> Span {
        Span {
            trace_id: caller.trace.0.to_vec(),
            span_id: id.0.to_vec(),
            parent_span_id: parent.0.to_vec(),
            flags: u32::from(caller.flags),
            start_time_unix_nano: self.place(start),
            end_time_unix_nano: self.place(end),
            ..Span::default()
        }
    }

    fn place(self, stamp: Stamp) -> u64 {
        self.unix_ns.saturating_add(stamp.since(self.at))
    }
}

/// Wraps spans in the demo server's resource.
pub(crate) fn resource_spans(spans: Vec<Span>) -> ResourceSpans {
    let attributes = vec![text("service.name", "lapwing-demo-server"), text("service.instance.id", "demo")];
    let scope = InstrumentationScope { name: "lapwing.demo".to_owned(), ..InstrumentationScope::default() };
    ResourceSpans {
        resource: Some(Resource { attributes, ..Resource::default() }),
        scope_spans: vec![ScopeSpans { scope: Some(scope), spans, ..ScopeSpans::default() }],
        ..ResourceSpans::default()
    }
}

fn text(key: &str, value: &str) -> KeyValue {
    attribute(key, Value::StringValue(value.to_owned()))
}

fn boolean(key: &str, value: bool) -> KeyValue {
    attribute(key, Value::BoolValue(value))
}

fn count(key: &str, value: usize) -> KeyValue {
    number(key, i64::try_from(value).unwrap_or(i64::MAX))
}

fn number(key: &str, value: i64) -> KeyValue {
    attribute(key, Value::IntValue(value))
}

fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}
