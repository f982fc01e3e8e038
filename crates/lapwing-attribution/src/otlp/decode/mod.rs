//! Decodes an OTLP trace request into spans for the join, one at a time: checks ids, maps names to stages, keeps times. What
//! belongs to a resource is read once, however many spans it has.
//!
//! Messages are read field by field, in place, and their elements are counted before anything is built: an empty message takes two
//! bytes on the wire, and up to several hundred in memory.
//!
//! Times are nanoseconds since the Unix epoch by the sender's clock. A span that ends before it starts is kept with length zero;
//! one without valid ids is skipped and counted; one that exceeds the bounds is not built, and counted.

use std::borrow::Cow;
use std::sync::Arc;

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::Link;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, encode_key, encode_varint, skip_field};
use prost::{DecodeError, Message};

use crate::adapters::spans::{self, MappedSpan, Sender};
use crate::{CacheLookups, IncomingSpan, ProcessId, Rules, SharedSpan, SpanKind};
use lapwing_ledger::{SpanId, TraceId};

/// Spans that are decoded in one request; and resources, and scopes, that it may have. An exporter's default is 512 spans, a
/// collector's 8192.
pub(crate) const MAX_SPANS: usize = 16_384;
/// Links of one span that are followed to the requests that it was for: more than a batch has.
pub(crate) const MAX_LINKS: usize = 256;
/// Elements of one span, or of one resource or scope. Each takes about 100 bytes in memory.
pub(crate) const MAX_ELEMENTS: usize = 32_768;
/// Nesting of values in attributes.
const MAX_DEPTH: usize = 32;
/// Longer names are cut, because they stay in memory.
const NAME_BYTES: usize = 256;

/// The least that a span with its ids, times and name takes on the wire: room is reserved for this many at once.
const SPAN_BYTES: usize = 64;

/// `ResourceSpans.instrumentation_library_spans`, which senders of 2021 write for `scope_spans`; its fields are the same.
const LIBRARY_SPANS: u32 = 1000;

/// A message that cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Undecodable {
    /// It is not protobuf, or not of this signal.
    #[error("is not protobuf of this signal: {0}")]
    Protobuf(#[from] DecodeError),
    /// It is not JSON, or has a value of the wrong type.
    #[error("is not JSON of this signal: {0}")]
    Json(#[from] serde_json::Error),
    /// A part of it exceeds the bounds.
    #[error("has too many elements in {0}")]
    TooMany(&'static str),
}

/// The spans of a request.
#[derive(Debug, Default)]
pub(crate) struct Decoded {
    pub(crate) spans: Vec<IncomingSpan>,
    /// Spans without a valid trace or span id.
    pub(crate) invalid: u64,
    /// Spans that were skipped because the span above them has their time.
    pub(crate) skipped: u64,
    /// Spans that exceed the bounds.
    pub(crate) rejected: u64,
    /// Links to further requests, which are not followed.
    pub(crate) links_shed: u64,
    seen: usize,
    containers: usize,
}

/// Decodes the spans of a request in protobuf, each with the stage that `rules` map it to.
pub(crate) fn spans(request: &[u8], rules: &Rules) -> Result<Decoded, Undecodable> {
    let mut out = Decoded::default();
    for resource_spans in messages(request, 1) {
        let resource_spans = resource_spans?;
        out.count_container()?;
        let resource: Resource = outer(Element::Resource, resource_spans, "a resource")?;
        let attributes = &resource.attributes[..];
        let (service, process) = (service(attributes), process(attributes));
        let name = text(attributes, "service.name").unwrap_or_default();
        let is_vllm = Sender::is_vllm(attributes);
        for scope_spans in messages(resource_spans, 2).chain(messages(resource_spans, LIBRARY_SPANS)) {
            let scope_spans = scope_spans?;
            out.count_container()?;
            let scope: InstrumentationScope = outer(Element::Scope, scope_spans, "a scope")?;
            let sender = Sender { service: &name, scope: &scope.name, is_vllm };
            out.spans.reserve((scope_spans.len() / SPAN_BYTES).min(MAX_SPANS));
            for span in messages(scope_spans, 2) {
                out.take(span?, sender, (&service, process), rules)?;
            }
        }
    }
    Ok(out)
}

/// Field 1 of `message`: the resource or the scope. Writers write it once; of several, the last counts.
fn outer<M: Message + Default>(element: Element, message: &[u8], name: &'static str) -> Result<M, Undecodable> {
    let mut last = None;
    for found in messages(message, 1) {
        last = Some(found?);
    }
    match last {
        Some(bytes) if !element.fits(bytes)? => Err(Undecodable::TooMany(name)),
        Some(bytes) => Ok(M::decode(bytes)?),
        None => Ok(M::default()),
    }
}

impl Decoded {
    fn count_container(&mut self) -> Result<(), Undecodable> {
        self.containers += 1;
        if self.containers > 2 * MAX_SPANS { Err(Undecodable::TooMany("its resources and scopes")) } else { Ok(()) }
    }

    /// Decodes one span, if it is within the bounds.
    fn take(&mut self, span: &[u8], sender: Sender<'_>, of: (&Arc<str>, ProcessId), rules: &Rules) -> Result<(), DecodeError> {
        self.seen += 1;
        if self.seen > MAX_SPANS || !Element::Span.fits(span)? {
            self.rejected += 1;
            return Ok(());
        }
        let span = Span::decode(span)?;
        if spans::is_one_per_token(&span, sender) {
            self.skipped += 1;
            return Ok(());
        }
        let Some(found) = incoming(&span, sender, of, rules) else {
            self.invalid += 1;
            return Ok(());
        };
        if found.stage.is_none() || span.links.is_empty() {
            self.spans.push(found);
        } else {
            self.push_linked(found, &span.links);
        }
        Ok(())
    }

    /// Keeps a span that did a stage of several requests, and links to the span of each, for each of them; the span itself only if it is
    /// below one.
    fn push_linked(&mut self, mut span: IncomingSpan, links: &[Link]) {
        let ids = |link: &Link| Some((TraceId::from_slice(&link.trace_id)?, SpanId::from_slice(&link.span_id)?));
        let own = span.parent.map(|parent| (span.trace, parent));
        let mut linked: Vec<(TraceId, SpanId)> =
            links.iter().take(MAX_LINKS).filter_map(ids).filter(|at| Some(*at) != own).collect();
        linked.sort_unstable();
        linked.dedup();
        let room = MAX_SPANS.saturating_sub(self.spans.len());
        self.links_shed += (links.len().saturating_sub(MAX_LINKS) + linked.len().saturating_sub(room)) as u64;
        linked.truncate(room);
        let by = u32::try_from(links.len()).unwrap_or(u32::MAX);
        span.shared = Some(Box::new(SharedSpan { by, copy_of: None }));
        for (trace, parent) in &linked {
            // a separate id: two requests of one trace may both have a copy
            let id = u64::from_be_bytes(span.span.0) ^ u64::from_be_bytes(parent.0).rotate_left(17);
            let id = SpanId(id.max(1).to_be_bytes());
            let shared = Some(Box::new(SharedSpan { by, copy_of: Some(span.span) }));
            self.spans.push(IncomingSpan { trace: *trace, span: id, parent: Some(*parent), shared, ..span.clone() });
        }
        if span.parent.is_some() || linked.is_empty() {
            self.spans.push(span);
        }
    }
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
        cache: CacheLookups::of_span(&span.attributes, rules.cache_attribute()),
        server,
        shifted_ns: 0,
        shared: None,
    })
}

/// `service.name/service.instance.id`, or the part of it that is given.
fn service(attributes: &[KeyValue]) -> Arc<str> {
    let part = |key| text(attributes, key).unwrap_or_default();
    let (name, instance) = (part("service.name"), part("service.instance.id"));
    let name = cut(&name);
    if instance.is_empty() { name.into() } else { format!("{name}/{}", cut(&instance)).into() }
}

/// The process that the resource names; unknown if it has neither an instance nor a process id.
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

/// A message that may occur many times in a span or a resource, or that may contain many.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Element {
    Span,
    Resource,
    Scope,
    Attribute,
    Value,
    List,
    Map,
    Event,
    Link,
    Entity,
    /// Has nothing more in it.
    Text,
}

impl Element {
    /// The element in `field` of this one, by the numbers in OTLP's `trace.proto`, `common.proto` and `resource.proto`.
    const fn inner(self, field: u32) -> Option<Self> {
        match (self, field) {
            (Self::Span, 9) | (Self::Resource | Self::Map, 1) | (Self::Scope | Self::Event, 3) | (Self::Link, 4) => {
                Some(Self::Attribute)
            }
            (Self::Span, 11) => Some(Self::Event),
            (Self::Span, 13) => Some(Self::Link),
            (Self::Attribute, 2) | (Self::List, 1) => Some(Self::Value),
            (Self::Value, 5) => Some(Self::List),
            (Self::Value, 6) => Some(Self::Map),
            (Self::Resource, 3) => Some(Self::Entity),
            (Self::Entity, 3 | 4) => Some(Self::Text),
            _ => None,
        }
    }

    /// Whether `message`, which is one of these, has at most [`MAX_ELEMENTS`] in it, not nested too deeply.
    pub(crate) fn fits(self, message: &[u8]) -> Result<bool, DecodeError> {
        let mut left = MAX_ELEMENTS;
        self.count(message, &mut left, MAX_DEPTH)
    }

    fn count(self, message: &[u8], left: &mut usize, depth: usize) -> Result<bool, DecodeError> {
        if matches!(self, Self::Text) {
            return Ok(true);
        }
        for field in fields(message) {
            let (number, Some(bytes)) = field? else { continue };
            let Some(inner) = self.inner(number) else { continue };
            let (Some(fewer), Some(deeper)) = (left.checked_sub(1), depth.checked_sub(1)) else { return Ok(false) };
            *left = fewer;
            if !inner.count(bytes, left, deeper)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The fields of `message` in order: the number of each, and its bytes if it is a text, bytes or a message. Ends after an error.
pub(crate) fn fields(mut message: &[u8]) -> impl Iterator<Item = Result<(u32, Option<&[u8]>), DecodeError>> {
    std::iter::from_fn(move || {
        if message.is_empty() {
            return None;
        }
        let field = next(&mut message);
        if field.is_err() {
            message = &[];
        }
        Some(field)
    })
}

/// The bytes of every field `number` of `message`.
pub(crate) fn messages(message: &[u8], number: u32) -> impl Iterator<Item = Result<&[u8], DecodeError>> {
    fields(message).filter_map(move |field| match field {
        Ok((found, bytes)) => bytes.filter(|_| found == number).map(Ok),
        Err(error) => Some(Err(error)),
    })
}

fn next<'a>(message: &mut &'a [u8]) -> Result<(u32, Option<&'a [u8]>), DecodeError> {
    let (number, wire_type) = decode_key(message)?;
    let whole = *message;
    skip_field(wire_type, number, message, DecodeContext::default())?;
    if wire_type != WireType::LengthDelimited {
        return Ok((number, None));
    }
    let mut bytes = &whole[..whole.len() - message.len()];
    decode_varint(&mut bytes)?;
    Ok((number, Some(bytes)))
}

/// Appends a field with a length to `out`.
pub(crate) fn put_delimited(field: u32, bytes: &[u8], out: &mut Vec<u8>) {
    encode_key(field, WireType::LengthDelimited, out);
    encode_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests;
