//! A sampled exchange as OTLP spans: one of kind SERVER for the request, and below it one for each piece of its waterfall.
//!
//! Attributes follow OpenTelemetry's semantic conventions for HTTP, RPC and generative AI as far as a ledger knows them: a path and a
//! gRPC status are not kept. What is Lapwing's own begins with `lapwing.`.

use std::sync::Arc;

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::span::{Event, SpanKind};
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{Span, Status};

use super::SampledExchange;
use super::conventions::{gen_ai_operation, http_route, rpc_method};
use super::resource::{attribute, text};
use lapwing_ledger::{Basis, ExchangeKind, Ledger, Outcome, SpanId, Stage, Unit};
use lapwing_ledger::{WaterfallBar, waterfall_bars};
use lapwing_metrics::Labels;

/// The most spans of one exchange; further pieces of its waterfall are left out.
const SPANS: usize = 128;
/// `SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK` and `SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK`: whether the parent is from another process.
const KNOWS_REMOTE: u32 = 0x100;
const IS_REMOTE: u32 = 0x200;
const SAMPLED: u32 = 1;

/// The spans of an exchange, the request's own first.
pub(crate) fn spans(sampled: &SampledExchange, labels: &Labels) -> Vec<Span> {
    let exchange = &sampled.exchange;
    let ledger = &exchange.ledger;
    let mut bars = waterfall_bars(exchange);
    let left_out = bars.len().saturating_sub(SPANS - 1);
    bars.truncate(SPANS - 1);
    let mut server = server(sampled, labels);
    if left_out > 0 {
        server.attributes.push(whole("lapwing.spans.left_out", left_out as u64));
    }
    let trace_state = server.trace_state.clone();
    let child = |bar: WaterfallBar| stage(bar, ledger, &trace_state);
    std::iter::once(server).chain(bars.into_iter().map(child)).collect()
}

fn server(sampled: &SampledExchange, labels: &Labels) -> Span {
    let ledger = &sampled.exchange.ledger;
    let (route, model) = labels.names_of(ledger);
    let has_parent = ledger.parent != SpanId::default();
    let mut attributes = request(ledger, &route, &model, labels);
    attributes.extend(measured(sampled));
    attributes.extend(weight(sampled));
    let first_token = sampled.exchange.first_token_ns().map(|ns| Event {
        time_unix_nano: ledger.anchor_unix_ns.saturating_add(ns),
        name: "lapwing.first_token".to_owned(),
        ..Event::default()
    });
    Span {
        trace_id: ledger.trace.0.to_vec(),
        span_id: ledger.span.0.to_vec(),
        trace_state: sampled.threshold.map_or_else(String::new, |threshold| format!("ot=th:{threshold}")),
        parent_span_id: if has_parent { ledger.parent.0.to_vec() } else { Vec::new() },
        flags: SAMPLED | KNOWS_REMOTE | if has_parent { IS_REMOTE } else { 0 },
        name: rpc_method(&route).map_or_else(|| route.to_string(), str::to_owned),
        kind: SpanKind::Server.into(),
        start_time_unix_nano: ledger.anchor_unix_ns,
        end_time_unix_nano: ledger.anchor_unix_ns.saturating_add(ledger.total_ns),
        attributes,
        events: first_token.into_iter().collect(),
        status: status(ledger),
        ..Span::default()
    }
}

/// What the semantic conventions say about the request.
fn request(ledger: &Ledger, route: &str, model: &str, labels: &Labels) -> Vec<KeyValue> {
    let (method, path) = http_route(route);
    let mut attributes = vec![text("url.scheme", "http"), text("http.request.method", method), text("http.route", path)];
    if ledger.status != 0 {
        attributes.push(whole("http.response.status_code", ledger.status.into()));
    }
    attributes.push(whole("http.request.body.size", ledger.request_bytes));
    attributes.push(whole("http.response.body.size", ledger.response_bytes));
    attributes.extend(error_type(ledger).map(|kind| text("error.type", &kind)));
    if let Some(method) = rpc_method(route) {
        attributes.extend([text("rpc.system.name", "grpc"), text("rpc.method", method)]);
        if ledger.outcome == Outcome::Ok {
            attributes.push(text("rpc.response.status_code", "OK"));
        }
    }
    if let Some(operation) = gen_ai_operation(path, ledger) {
        attributes.push(text("gen_ai.operation.name", operation));
        attributes.extend(ledger.server.map(|server| text("gen_ai.provider.name", server.name())));
        attributes.extend((!model.is_empty()).then(|| text("gen_ai.request.model", model)));
        for (unit, key) in [(Unit::InputToken, "gen_ai.usage.input_tokens"), (Unit::OutputToken, "gen_ai.usage.output_tokens")] {
            let counted = ledger.work.get(unit).filter(|(_, basis)| *basis != Basis::Estimated);
            attributes.extend(counted.map(|(amount, _)| whole(key, amount)));
        }
    }
    if !model.is_empty() {
        attributes.push(text("lapwing.model", model));
    }
    let upstream: Arc<str> = labels.upstreams.text(ledger.series.upstream);
    attributes.extend([text("lapwing.upstream", &upstream), text("lapwing.outcome", ledger.outcome.name())]);
    attributes
}

/// What Lapwing measured: the seconds that each stage owns, which add up to the span's duration, and units of work.
fn measured(sampled: &SampledExchange) -> Vec<KeyValue> {
    let exchange = &sampled.exchange;
    let stages = Stage::ALL.into_iter().filter_map(|stage| {
        let (ns, _) = exchange.stage(stage)?;
        Some(float(format!("lapwing.stage.{}.seconds", stage.name()), ns as f64 / 1e9))
    });
    let mut attributes: Vec<KeyValue> = stages.collect();
    for unit in Unit::ALL {
        let amount = exchange.ledger.work.get(unit).map(|(amount, _)| amount);
        attributes.extend(amount.map(|amount| whole(format!("lapwing.work.{}", unit.name()), amount)));
    }
    attributes.extend(exchange.coverage().map(|share| float("lapwing.coverage", share)));
    if exchange.is_incomplete {
        attributes.push(attribute("lapwing.incomplete", Value::BoolValue(true)));
    }
    if exchange.ledger.kind == ExchangeKind::Stream {
        attributes.push(attribute("lapwing.stream", Value::BoolValue(true)));
    }
    attributes
}

/// Why it was sampled, and how many requests it represents.
fn weight(sampled: &SampledExchange) -> Vec<KeyValue> {
    let count = sampled.threshold.map_or(0.0, lapwing_ledger::SamplingThreshold::adjusted_count);
    let mut attributes =
        vec![text("lapwing.sampling.reason", sampled.reason.name()), float("lapwing.sampling.adjusted_count", count)];
    if !sampled.over_budget.is_empty() {
        let value = |name: &&str| AnyValue { value: Some(Value::StringValue((*name).to_owned())) };
        let values = sampled.over_budget.iter().map(value).collect();
        attributes.push(attribute("lapwing.over_budget", Value::ArrayValue(ArrayValue { values })));
    }
    attributes
}

fn stage(bar: WaterfallBar, ledger: &Ledger, trace_state: &str) -> Span {
    let WaterfallBar { name, stage, phase, start_ns, end_ns, source, note } = bar;
    let mut attributes = vec![text("lapwing.stage", stage.name()), text("lapwing.source", source.name())];
    attributes.extend(phase.map(|phase| text("lapwing.phase", phase.name())));
    if note.shifted_ns != 0 {
        attributes.push(attribute("lapwing.shifted_ns", Value::IntValue(note.shifted_ns)));
    }
    if note.shared_by > 0 {
        attributes.push(attribute("lapwing.shared_by", Value::IntValue(i64::from(note.shared_by))));
    }
    Span {
        trace_id: ledger.trace.0.to_vec(),
        span_id: SpanId::random().0.to_vec(),
        trace_state: trace_state.to_owned(),
        parent_span_id: ledger.span.0.to_vec(),
        flags: SAMPLED | KNOWS_REMOTE,
        name,
        kind: SpanKind::Internal.into(),
        start_time_unix_nano: ledger.anchor_unix_ns.saturating_add(start_ns),
        end_time_unix_nano: ledger.anchor_unix_ns.saturating_add(end_ns),
        attributes,
        ..Span::default()
    }
}

/// A server's span has an error where the server failed; a fault of the caller leaves the status unset, as the conventions for HTTP
/// say.
fn status(ledger: &Ledger) -> Option<Status> {
    let failed = match ledger.outcome {
        Outcome::Ok | Outcome::ClientError | Outcome::Rejected | Outcome::Cancelled => return None,
        failed => failed,
    };
    Some(Status { code: StatusCode::Error.into(), message: failed.name().to_owned() })
}

/// The status where it says that the server failed, else how the request ended.
fn error_type(ledger: &Ledger) -> Option<String> {
    match ledger.outcome {
        Outcome::Ok | Outcome::ClientError => None,
        Outcome::ServerError if ledger.status >= 500 => Some(ledger.status.to_string()),
        other => Some(other.name().to_owned()),
    }
}

fn whole(key: impl AsRef<str>, value: u64) -> KeyValue {
    attribute(key.as_ref(), Value::IntValue(i64::try_from(value).unwrap_or(i64::MAX)))
}

fn float(key: impl AsRef<str>, value: f64) -> KeyValue {
    attribute(key.as_ref(), Value::DoubleValue(value))
}
