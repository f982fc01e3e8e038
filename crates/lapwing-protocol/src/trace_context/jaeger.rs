//! Jaeger's `uber-trace-id: TRACE:SPAN:PARENT:FLAGS`, by
//! <https://www.jaegertracing.io/docs/1.76/sdk-migration/#propagation-format>. Colons may be written `%3A`, ids without their zeros.

use http::{HeaderMap, HeaderName};

use super::fields::{WrittenContext, one, put, span_id, trace_id};
use lapwing_ledger::{SpanId, TraceId};

pub(crate) const FIELD: HeaderName = HeaderName::from_static("uber-trace-id");

const SAMPLED: u8 = 1;

pub(crate) fn read(headers: &HeaderMap) -> Option<(TraceId, SpanId, Option<bool>)> {
    let text = std::str::from_utf8(one(headers, &FIELD)?).ok()?.replace("%3A", ":").replace("%3a", ":");
    let mut parts = text.split(':');
    let (trace, span) = (trace_id(parts.next()?.as_bytes())?, span_id(parts.next()?.as_bytes())?);
    let _parent = parts.next()?;
    let flags = u8::from_str_radix(parts.next()?, 16).ok()?;
    parts.next().is_none().then_some((trace, span, Some(flags & SAMPLED != 0)))
}

pub(crate) fn write(headers: &mut HeaderMap, context: &WrittenContext) {
    // the parent's field is deprecated: zero means that it is not given
    put(headers, FIELD, format!("{}:{}:0:{}", context.trace, context.span, u8::from(context.sampled)));
}
