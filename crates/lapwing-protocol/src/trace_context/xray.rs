//! AWS X-Ray's `x-amzn-trace-id: Root=1-TIME-REST;Parent=SPAN;Sampled=1`, by
//! <https://docs.aws.amazon.com/xray/latest/devguide/xray-concepts.html#xray-concepts-tracingheader>. Load balancers send `Root`
//! alone: that is no context, because nothing continues it.

use http::{HeaderMap, HeaderName};

use super::fields::{WrittenContext, one, put, span_id, trace_id};
use lapwing_ledger::{SpanId, TraceId};

pub(crate) const FIELD: HeaderName = HeaderName::from_static("x-amzn-trace-id");

pub(crate) fn read(headers: &HeaderMap) -> Option<(TraceId, SpanId, Option<bool>)> {
    let text = std::str::from_utf8(one(headers, &FIELD)?).ok()?;
    let (mut trace, mut span, mut sampled) = (None, None, None);
    for (key, value) in pairs(text) {
        match key {
            "Root" => trace = Some(root(value)?),
            "Parent" => span = (value.len() == 16).then(|| span_id(value.as_bytes())).flatten(),
            // `?` asks the receiver to decide
            "Sampled" => sampled = [("1", true), ("0", false)].into_iter().find(|(word, _)| *word == value).map(|(_, is)| is),
            _ => {}
        }
    }
    Some((trace?, span?, sampled))
}

pub(crate) fn write(headers: &mut HeaderMap, context: &WrittenContext) {
    let id = context.trace.to_string();
    let (time, rest) = id.split_at(8);
    let mut text = format!("Root=1-{time}-{rest};Parent={};Sampled={}", context.span, u8::from(context.sampled));
    if let Some(came) = one(headers, &FIELD).and_then(|value| std::str::from_utf8(value).ok()) {
        // `Self`, `Lineage` and what users add
        for (key, value) in pairs(came).filter(|(key, _)| !matches!(*key, "Root" | "Parent" | "Sampled")) {
            text.extend([";", key, "=", value]);
        }
    }
    put(headers, FIELD, text);
}

fn pairs(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split(';').filter_map(|pair| pair.trim().split_once('='))
}

fn root(value: &str) -> Option<TraceId> {
    let (time, rest) = value.strip_prefix("1-")?.split_once('-')?;
    let is_wide = time.len() == 8 && rest.len() == 24;
    is_wide.then(|| trace_id([time, rest].concat().as_bytes())).flatten()
}
