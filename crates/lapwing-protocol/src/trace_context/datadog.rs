//! Datadog's `x-datadog-trace-id` and its like, by
//! <https://docs.datadoghq.com/tracing/trace_collection/trace_context_propagation/>: decimal numbers of 64 bits. The left half of a
//! trace id of 128 bits is the tag `_dd.p.tid`, in hexadecimal.

use http::{HeaderMap, HeaderName};

use super::fields::{WrittenContext, hex, one, put};
use lapwing_ledger::{SpanId, TraceId};

pub(crate) const TRACE: HeaderName = HeaderName::from_static("x-datadog-trace-id");
pub(crate) const PARENT: HeaderName = HeaderName::from_static("x-datadog-parent-id");
pub(crate) const PRIORITY: HeaderName = HeaderName::from_static("x-datadog-sampling-priority");
pub(crate) const ORIGIN: HeaderName = HeaderName::from_static("x-datadog-origin");
pub(crate) const TAGS: HeaderName = HeaderName::from_static("x-datadog-tags");

const LEFT_HALF: &str = "_dd.p.tid=";

pub(crate) fn read(headers: &HeaderMap) -> Option<(TraceId, SpanId, Option<bool>)> {
    let left = tags(headers).find_map(|tag| tag.trim().strip_prefix(LEFT_HALF)).and_then(|half| hex::<8>(half.as_bytes()));
    let mut trace = [0; 16];
    trace[..8].copy_from_slice(&left.unwrap_or_default());
    trace[8..].copy_from_slice(&number(headers, &TRACE)?.to_be_bytes());
    let span = SpanId::from_slice(&number(headers, &PARENT)?.to_be_bytes())?;
    let priority = one(headers, &PRIORITY).and_then(|value| std::str::from_utf8(value).ok()?.parse::<i8>().ok());
    Some((TraceId::from_slice(&trace)?, span, priority.map(|priority| priority > 0)))
}

pub(crate) fn write(headers: &mut HeaderMap, context: &WrittenContext) {
    let id = u128::from_be_bytes(context.trace.0);
    let (left, right) = ((id >> 64) as u64, id & u128::from(u64::MAX));
    let mut texts: Vec<String> = tags(headers).filter(|tag| !tag.trim().starts_with(LEFT_HALF)).map(str::to_owned).collect();
    if left != 0 {
        texts.push(format!("{LEFT_HALF}{left:016x}"));
    }
    // a priority says more than whether: 2 is the user's own wish
    let priority = one(headers, &PRIORITY).and_then(|value| std::str::from_utf8(value).ok()?.parse::<i8>().ok());
    if priority.is_none_or(|priority| (priority > 0) != context.sampled) {
        put(headers, PRIORITY, u8::from(context.sampled).to_string());
    }
    put(headers, TRACE, right.to_string());
    put(headers, PARENT, u64::from_be_bytes(context.span.0).to_string());
    if !texts.is_empty() {
        put(headers, TAGS, texts.join(","));
    }
}

fn tags(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let text = one(headers, &TAGS).and_then(|value| std::str::from_utf8(value).ok()).unwrap_or_default();
    text.split(',').filter(|tag| !tag.trim().is_empty())
}

fn number(headers: &HeaderMap, name: &HeaderName) -> Option<u64> {
    std::str::from_utf8(one(headers, name)?).ok()?.parse().ok()
}
