//! Decodes an OTLP trace request into spans for the join: checks ids, maps names to stages, keeps times.
//!
//! Times are nanoseconds since the Unix epoch by the sender's clock. A span that ends before it starts is kept with length zero;
//! one without valid ids is skipped and counted.

use std::borrow::Cow;
use std::sync::Arc;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;

use super::json;
use super::signal::{Encoding, Signal};
use crate::attribution::adapters::spans::{self, MappedSpan, Sender};
use crate::attribution::{IncomingSpan, ProcessId, Rules, SpanKind};
use crate::ledger::{SpanId, TraceId};

/// Longer names are cut, because they stay in memory.
const NAME_BYTES: usize = 256;

/// A message that cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum Malformed {
    /// It is not protobuf, or not of this signal.
    #[error("is not protobuf of this signal: {0}")]
    Protobuf(#[from] prost::DecodeError),
    /// It is not JSON, or has a value of the wrong type.
    #[error("is not JSON of this signal: {0}")]
    Json(#[from] serde_json::Error),
}

/// Reads a trace request.
pub(super) fn traces(encoding: Encoding, body: &[u8]) -> Result<ExportTraceServiceRequest, Malformed> {
    Ok(match encoding {
        Encoding::Protobuf => ExportTraceServiceRequest::decode(body)?,
        Encoding::Json => json::traces(body)?,
    })
}

/// The request in protobuf. A body that is protobuf already is not decoded.
pub(super) fn to_protobuf(signal: Signal, encoding: Encoding, body: bytes::Bytes) -> Result<bytes::Bytes, Malformed> {
    Ok(match encoding {
        Encoding::Protobuf => body,
        Encoding::Json => json::to_protobuf(signal, &body)?.into(),
    })
}

/// The spans of a request.
#[derive(Debug, Default)]
pub(super) struct Decoded {
    pub(super) spans: Vec<IncomingSpan>,
    /// Spans without a valid trace or span id.
    pub(super) invalid: u64,
    /// Spans that were skipped because the span above them has their time.
    pub(super) skipped: u64,
}

/// Decodes the spans of `request`, each with the stage that `rules` map it to.
pub(super) fn spans(request: &ExportTraceServiceRequest, rules: &Rules) -> Decoded {
    let mut out = Decoded::default();
    for resource in &request.resource_spans {
        let attributes = resource.resource.as_ref().map_or(&[][..], |r| &r.attributes);
        let (service, process) = (service(attributes), process(attributes));
        let name = text(attributes, "service.name").unwrap_or_default();
        for scope in &resource.scope_spans {
            let scope_name = scope.scope.as_ref().map_or("", |scope| &scope.name);
            let sender = Sender { service: &name, scope: scope_name, resource: attributes };
            for span in &scope.spans {
                if spans::is_one_per_token(span, sender) {
                    out.skipped += 1;
                    continue;
                }
                match incoming(span, sender, (&service, process), rules) {
                    Some(span) => out.spans.push(span),
                    None => out.invalid += 1,
                }
            }
        }
    }
    out
}

fn incoming(span: &Span, sender: Sender<'_>, (service, process): (&Arc<str>, ProcessId), rules: &Rules) -> Option<IncomingSpan> {
    let (trace, id) = (TraceId::from_slice(&span.trace_id)?, SpanId::from_slice(&span.span_id)?);
    let attribute = |key: &str| text(&span.attributes, key);
    let MappedSpan { stage, phase, server } = spans::read(span, sender, rules, attribute);
    Some(IncomingSpan {
        trace,
        span: id,
        parent: SpanId::from_slice(&span.parent_span_id),
        name: cut(&span.name).into(),
        kind: kind(span.kind),
        stage,
        phase,
        is_store_call: span.attributes.iter().any(|a| matches!(a.key.as_str(), "db.system" | "db.system.name")),
        start_unix_ns: span.start_time_unix_nano,
        end_unix_ns: span.end_time_unix_nano.max(span.start_time_unix_nano),
        service: Arc::clone(service),
        process,
        server,
    })
}

/// `service.name/service.instance.id`, or the part of it that is given.
fn service(attributes: &[KeyValue]) -> Arc<str> {
    let part = |key| text(attributes, key).unwrap_or_default();
    let (name, instance) = (part("service.name"), part("service.instance.id"));
    let name = cut(&name);
    if instance.is_empty() { name.into() } else { format!("{name}/{}", cut(&instance)).into() }
}

/// The process by the resource's word; unknown if it tells neither an instance nor a process id.
fn process(attributes: &[KeyValue]) -> ProcessId {
    let part = |key| text(attributes, key).filter(|text| !text.is_empty());
    let (instance, pid) = (part("service.instance.id"), part("process.pid"));
    if instance.is_none() && pid.is_none() {
        return ProcessId::default();
    }
    ProcessId::of(&(instance, part("host.name"), pid))
}

const fn kind(number: i32) -> SpanKind {
    match number {
        1 => SpanKind::Internal,
        2 => SpanKind::Server,
        3 => SpanKind::Client,
        4 => SpanKind::Producer,
        5 => SpanKind::Consumer,
        _ => SpanKind::Unspecified,
    }
}

/// An attribute as text; `None` for lists, maps and bytes.
fn text<'a>(attributes: &'a [KeyValue], key: &str) -> Option<Cow<'a, str>> {
    let found = attributes.iter().find(|a| a.key == key)?;
    Some(match found.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Cow::Borrowed(text.as_str()),
        Value::BoolValue(value) => Cow::Borrowed(if *value { "true" } else { "false" }),
        Value::IntValue(value) => Cow::Owned(value.to_string()),
        Value::DoubleValue(value) => Cow::Owned(value.to_string()),
        _ => return None,
    })
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(NAME_BYTES)]
}

#[cfg(test)]
mod tests;
