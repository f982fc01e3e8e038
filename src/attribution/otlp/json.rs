//! Converts OTLP/JSON, as exporters really write it, into the protobuf messages.
//!
//! By the specification: camelCase keys, hexadecimal ids, enums as numbers, 64-bit numbers as text. In practice also: snake_case
//! keys, enums by name, bare numbers, `null` for unset fields. All are read; an id that is not hexadecimal becomes
//! empty, so that it costs its span and not the whole message.

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::logs::v1::SeverityNumber;
use opentelemetry_proto::tonic::metrics::v1::AggregationTemporality;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use prost::Message;
use serde::de::{DeserializeOwned, Error};
use serde_json::{Map, Number, Value};

use super::signal::Signal;

/// Reads a request.
pub(super) fn traces(body: &[u8]) -> Result<ExportTraceServiceRequest, serde_json::Error> {
    read(body)
}

/// The same request in protobuf.
pub(super) fn to_protobuf(signal: Signal, body: &[u8]) -> Result<Vec<u8>, serde_json::Error> {
    Ok(match signal {
        Signal::Traces => read::<ExportTraceServiceRequest>(body)?.encode_to_vec(),
        Signal::Metrics => read::<ExportMetricsServiceRequest>(body)?.encode_to_vec(),
        Signal::Logs => read::<ExportLogsServiceRequest>(body)?.encode_to_vec(),
    })
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, serde_json::Error> {
    // the text is bounded by the receiver, its depth by serde_json
    let mut value: Value = serde_json::from_slice(body)?;
    if !value.is_object() {
        return Err(serde_json::Error::custom("must be an object"));
    }
    normalise(&mut value);
    T::deserialize(value)
}

/// Makes every key camelCase and every value of the type that the messages have.
fn normalise(value: &mut Value) {
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

fn camel(key: String) -> String {
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
            (!is_hex).then(|| Value::from(""))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn keys_become_camel_case() {
        for (key, camel_key) in
            [("resource_spans", "resourceSpans"), ("traceId", "traceId"), ("start_time_unix_nano", "startTimeUnixNano")]
        {
            assert_eq!(camel(key.to_owned()), camel_key);
        }
        assert_eq!(camel("__a__b_".to_owned()), "aB");
    }

    #[test]
    fn metrics_and_logs_are_made_into_protobuf() {
        let metrics = br#"{"resource_metrics":[{"scope_metrics":[{"metrics":[{"name":"m","sum":{"is_monotonic":true,
            "aggregation_temporality":"AGGREGATION_TEMPORALITY_CUMULATIVE","data_points":[{"as_int":"7","time_unix_nano":9}]}}]}]}]}"#;
        let read = ExportMetricsServiceRequest::decode(&*to_protobuf(Signal::Metrics, metrics).unwrap()).unwrap();
        let metric = &read.resource_metrics[0].scope_metrics[0].metrics[0];
        let Some(opentelemetry_proto::tonic::metrics::v1::metric::Data::Sum(sum)) = &metric.data else { panic!("{metric:?}") };
        assert_eq!((metric.name.as_str(), sum.aggregation_temporality, sum.data_points[0].time_unix_nano), ("m", 2, 9));
        let logs = br#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"severityNumber":"SEVERITY_NUMBER_WARN",
            "body":{"stringValue":"hot"},"attributes":null,"traceId":"0af7651916cd43dd8448eb211c80319c"}]}]}]}"#;
        let read = ExportLogsServiceRequest::decode(&*to_protobuf(Signal::Logs, logs).unwrap()).unwrap();
        let record = &read.resource_logs[0].scope_logs[0].log_records[0];
        assert_eq!((record.severity_number, record.trace_id.len()), (13, 16));
        assert!(to_protobuf(Signal::Logs, b"[]").is_err() && to_protobuf(Signal::Logs, b"{").is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = traces(&bytes);
        }

        #[test]
        fn no_text_near_the_grammar_makes_it_panic(text in r#"(\{|\}|\[|\]|:|,|"resource_spans"|"scopeSpans"|"spans"|"kind"|"traceId"|1|null|"x"){0,30}"#) {
            let _ = traces(text.as_bytes());
        }
    }
}
