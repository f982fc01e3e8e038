//! B3, by <https://github.com/openzipkin/b3-propagation>: `b3: TRACE-SPAN-SAMPLED-PARENT`, or one field for each. A trace id has 16
//! or 32 digits and is written as wide as it came.

use http::{HeaderMap, HeaderName};

use super::fields::{WrittenContext, one, put, span_id, trace_id};
use lapwing_ledger::{SpanId, TraceId};

pub(crate) const SINGLE: HeaderName = HeaderName::from_static("b3");
pub(crate) const TRACE: HeaderName = HeaderName::from_static("x-b3-traceid");
pub(crate) const SPAN: HeaderName = HeaderName::from_static("x-b3-spanid");
pub(crate) const PARENT: HeaderName = HeaderName::from_static("x-b3-parentspanid");
pub(crate) const SAMPLED: HeaderName = HeaderName::from_static("x-b3-sampled");
pub(crate) const FLAGS: HeaderName = HeaderName::from_static("x-b3-flags");

/// Reads `b3`.
pub(crate) fn read_single(headers: &HeaderMap) -> Option<(TraceId, SpanId, Option<bool>)> {
    let mut parts = one(headers, &SINGLE)?.split(|byte| *byte == b'-');
    let (trace, span) = ids(parts.next()?, parts.next()?)?;
    let sampled = match parts.next() {
        Some(word) => Some(decision(word)?),
        None => None,
    };
    // the client's parent
    if parts.next().is_some_and(|parent| span_id(parent).is_none()) || parts.next().is_some() {
        return None;
    }
    Some((trace, span, sampled))
}

/// Reads `x-b3-traceid` and its like.
pub(crate) fn read_multi(headers: &HeaderMap) -> Option<(TraceId, SpanId, Option<bool>)> {
    let (trace, span) = ids(one(headers, &TRACE)?, one(headers, &SPAN)?)?;
    let is_debug = one(headers, &FLAGS) == Some(b"1");
    let sampled = if is_debug { Some(true) } else { one(headers, &SAMPLED).and_then(decision) };
    Some((trace, span, sampled))
}

/// Whether the client decides against sampling and names no trace.
pub(crate) fn is_denied(headers: &HeaderMap) -> bool {
    let alone = one(headers, &SINGLE).or_else(|| one(headers, &SAMPLED));
    alone.and_then(decision) == Some(false)
}

pub(crate) fn write_single(headers: &mut HeaderMap, context: &WrittenContext) {
    let came = one(headers, &SINGLE);
    let is_short = came.and_then(|value| value.split(|byte| *byte == b'-').next()).is_some_and(|trace| trace.len() == 16);
    let is_debug = came.is_some_and(|value| value.split(|byte| *byte == b'-').nth(2) == Some(b"d"));
    let sampled = if is_debug { "d" } else { digit(context.sampled) };
    let parent = context.parent.map(|parent| format!("-{parent}")).unwrap_or_default();
    put(headers, SINGLE, format!("{}-{}-{sampled}{parent}", wide(context.trace, is_short), context.span));
}

pub(crate) fn write_multi(headers: &mut HeaderMap, context: &WrittenContext) {
    let is_short = one(headers, &TRACE).is_some_and(|trace| trace.len() == 16);
    // debug says that it is sampled, and a second word for it is not sent
    let is_debug = one(headers, &FLAGS) == Some(b"1");
    put(headers, TRACE, wide(context.trace, is_short));
    put(headers, SPAN, context.span.to_string());
    match context.parent {
        Some(parent) => put(headers, PARENT, parent.to_string()),
        None => drop(headers.remove(&PARENT)),
    }
    if !is_debug {
        put(headers, SAMPLED, digit(context.sampled).to_owned());
    }
}

fn ids(trace: &[u8], span: &[u8]) -> Option<(TraceId, SpanId)> {
    let is_wide = matches!(trace.len(), 16 | 32) && span.len() == 16;
    is_wide.then(|| Some((trace_id(trace)?, span_id(span)?))).flatten()
}

/// `true` and `false` are of an older version.
fn decision(word: &[u8]) -> Option<bool> {
    match word {
        b"1" | b"d" => Some(true),
        b"0" => Some(false),
        word if word.eq_ignore_ascii_case(b"true") => Some(true),
        word if word.eq_ignore_ascii_case(b"false") => Some(false),
        _ => None,
    }
}

const fn digit(sampled: bool) -> &'static str {
    if sampled { "1" } else { "0" }
}

fn wide(trace: TraceId, is_short: bool) -> String {
    let text = trace.to_string();
    match text.strip_prefix("0000000000000000") {
        Some(short) if is_short => short.to_owned(),
        _ => text,
    }
}
