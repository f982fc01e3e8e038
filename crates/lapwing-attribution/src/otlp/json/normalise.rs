//! Makes JSON as exporters write it into JSON as the messages have it: camelCase keys, numbers for enums, no unset fields.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;
use opentelemetry_proto::tonic::logs::v1::SeverityNumber;
use opentelemetry_proto::tonic::metrics::v1::AggregationTemporality;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use serde_json::{Map, Number, Value};

/// Makes every key camelCase and every value of the type that the messages have.
pub(crate) fn normalise(value: &mut Value) {
    match value {
        Value::Array(items) => {
            items.retain(|item| !item.is_null());
            items.iter_mut().for_each(normalise);
        }
        Value::Object(fields) => {
            if fields.iter().any(|(key, value)| key.contains('_') || value.is_null()) {
                let named = std::mem::take(fields).into_iter().filter(|(_, value)| !value.is_null());
                *fields = named.map(|(key, value)| (camel(key), value)).collect::<Map<_, _>>();
            }
            for (key, value) in fields {
                match value {
                    Value::String(text) => {
                        if let Some(better) = typed(key, text) {
                            *value = better;
                        }
                    }
                    other => normalise(other),
                }
            }
        }
        _ => {}
    }
}

pub(crate) fn camel(key: String) -> String {
    if !key.contains('_') {
        return key;
    }
    let mut out = String::with_capacity(key.len());
    let mut raise = false;
    for c in key.chars() {
        match c {
            '_' => raise = !out.is_empty(),
            c if raise => {
                out.push(c.to_ascii_uppercase());
                raise = false;
            }
            c => out.push(c),
        }
    }
    out
}

/// An id in base64, as protobuf's own JSON has bytes, in hexadecimal.
fn hex_of_base64(key: &str, text: &str) -> Option<String> {
    let bytes = if key == "traceId" { 16 } else { 8 };
    let id = BASE64.decode(text.trim_end_matches('=')).ok().filter(|id| id.len() == bytes)?;
    Some(id.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Converts a text for which the message has an enum, a 32-bit number, a float or an id; `None` leaves it unchanged.
fn typed(key: &str, text: &str) -> Option<Value> {
    let number = |n: i32| Some(Value::from(n));
    let by_name = |named: Option<i32>| number(named.or_else(|| text.parse().ok()).unwrap_or(0));
    match key {
        "kind" => by_name(SpanKind::from_str_name(text).map(i32::from)),
        "code" => by_name(StatusCode::from_str_name(text).map(i32::from)),
        "severityNumber" => by_name(SeverityNumber::from_str_name(text).map(i32::from)),
        "aggregationTemporality" => by_name(AggregationTemporality::from_str_name(text).map(i32::from)),
        "flags" | "droppedAttributesCount" | "droppedEventsCount" | "droppedLinksCount" => {
            Some(Value::from(text.parse::<u32>().unwrap_or(0)))
        }
        // JSON has no number for NaN and the infinities; zero would be a lie, so the value goes
        "doubleValue" => Some(text.parse().ok().and_then(Number::from_f64).map_or(Value::Null, Value::Number)),
        "traceId" | "spanId" | "parentSpanId" => {
            let is_hex = text.len().is_multiple_of(2) && text.bytes().all(|b| b.is_ascii_hexdigit());
            (!is_hex).then(|| Value::from(hex_of_base64(key, text).unwrap_or_default()))
        }
        _ => None,
    }
}
