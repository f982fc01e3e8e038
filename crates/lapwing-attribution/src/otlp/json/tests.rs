//! Requests as exporters write them, loosely, and as none writes them.

use proptest::prelude::*;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;

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
    let read = ExportMetricsServiceRequest::decode(&*converted(Signal::Metrics, metrics).unwrap().protobuf).unwrap();
    let metric = &read.resource_metrics[0].scope_metrics[0].metrics[0];
    let Some(opentelemetry_proto::tonic::metrics::v1::metric::Data::Sum(sum)) = &metric.data else { panic!("{metric:?}") };
    assert_eq!((metric.name.as_str(), sum.aggregation_temporality, sum.data_points[0].time_unix_nano), ("m", 2, 9));
    let logs = br#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"severityNumber":"SEVERITY_NUMBER_WARN",
        "body":{"stringValue":"hot"},"attributes":null,"traceId":"0af7651916cd43dd8448eb211c80319c"}]}]}]}"#;
    let read = ExportLogsServiceRequest::decode(&*converted(Signal::Logs, logs).unwrap().protobuf).unwrap();
    let record = &read.resource_logs[0].scope_logs[0].log_records[0];
    assert_eq!((record.severity_number, record.trace_id.len()), (13, 16));
    assert!(to_protobuf(Signal::Logs, b"[]").is_err() && to_protobuf(Signal::Logs, b"{").is_err());
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = to_protobuf(Signal::Traces, &bytes);
    }

    #[test]
    fn no_text_near_the_grammar_makes_it_panic(text in r#"(\{|\}|\[|\]|:|,|"resource_spans"|"scopeSpans"|"spans"|"kind"|"traceId"|1|null|"x"){0,30}"#) {
        let _ = to_protobuf(Signal::Traces, text.as_bytes());
    }
}

fn spans(body: &str) -> (Converted, usize) {
    let converted = converted(Signal::Traces, body.as_bytes()).unwrap();
    let read = ExportTraceServiceRequest::decode(&*converted.protobuf).unwrap();
    let spans = read.resource_spans.iter().flat_map(|r| &r.scope_spans).map(|s| s.spans.len()).sum();
    (converted, spans)
}

#[test]
fn what_exceeds_the_bounds_is_left_out_or_makes_the_whole_too_large() {
    let many = format!(r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{}{{}}]}}]}}]}}"#, "{},".repeat(MAX_SPANS + 4));
    let (converted, spans_left) = spans(&many);
    assert_eq!((converted.left_out, converted.is_too_large, spans_left), (5, false, MAX_SPANS));
    let wide = "{},".repeat(MAX_MARKS);
    let (converted, spans_left) =
        spans(&format!(r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{{"events":[{wide}{{}}]}},{{}}]}}]}}]}}"#));
    assert_eq!((converted.left_out, converted.is_too_large, spans_left), (1, false, 1));
    assert!(spans(&format!(r#"{{"resourceSpans":[{{"resource":{{"attributes":[{wide}{{}}]}}}}]}}"#)).0.is_too_large);
    assert!(spans(&format!(r#"{{"resourceSpans":[{wide}{{}}]}}"#)).0.is_too_large);
    assert!(spans(&format!(r#"{{"resourceSpans":[{{"scopeSpans":[{wide}{{}}]}}]}}"#)).0.is_too_large);
}

#[test]
fn the_fields_of_a_container_may_come_in_any_order() {
    let body = r#"{"resourceSpans":[{"scope_spans":[{"spans":[{"name":"a"}],"scope":{"name":"s"},"schemaUrl":"u"}],
        "schema_url":"v","resource":{"attributes":[{"key":"k"}]}}]}"#;
    let read = ExportTraceServiceRequest::decode(&*spans(body).0.protobuf).unwrap();
    let resource = &read.resource_spans[0];
    let scope = &resource.scope_spans[0];
    assert_eq!((scope.spans[0].name.as_str(), scope.scope.as_ref().unwrap().name.as_str()), ("a", "s"));
    assert_eq!((scope.schema_url.as_str(), resource.schema_url.as_str()), ("u", "v"));
    assert_eq!(resource.resource.as_ref().unwrap().attributes[0].key, "k");
}

#[test]
fn marks_in_texts_do_not_count() {
    let text = format!("{{\"a\":\"{}\\\"{}\"}}", "[,".repeat(MAX_MARKS), "{:".repeat(MAX_MARKS));
    assert!(fits_json(&text));
    assert!(fits_json(&format!("[{}0]", "0,".repeat(MAX_MARKS - 1))));
    assert!(!fits_json(&format!("[{}0]", "0,".repeat(MAX_MARKS))));
}
