//! Lapwing's own telemetry: from OpenTelemetry's variables, or from Lapwing's settings, and never by a variable alone.

use super::{case, faults};
use crate::config::Loaded;
use lapwing_attribution::collector::Signal;

fn load(yaml: &str, env: &[(&str, &str)]) -> Loaded {
    case(&format!("upstream: http://m:1\n{yaml}"), env, &[]).loaded()
}

fn sent_to(loaded: &Loaded) -> [Option<String>; 2] {
    [Signal::Metrics, Signal::Traces].map(|signal| loaded.config.telemetry.endpoint(signal).map(|to| to.to_string()))
}

const ON: &str = "telemetry: {metrics: on, traces: on}";

#[test]
fn a_variable_alone_turns_nothing_on_and_is_no_reason_for_a_warning() {
    // a model server's own, in the same pod: Lapwing's receiver, what Lapwing does not speak, what it does not know
    let env = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318"),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "ftp://collector:4318/v1/traces"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "5"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd"),
    ];
    let loaded = load("", &env);
    assert_eq!((sent_to(&loaded), &loaded.warnings[..]), ([None, None], &[][..]));
    let on = load("telemetry: {metrics: on, endpoint: 'http://collector:4318'}", &env);
    assert_eq!(on.warnings.len(), 3, "{:?}", on.warnings);
    assert!(
        on.warnings[0].starts_with("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: ftp://collector:4318/v1/traces has an unknown scheme"),
        "{:?}",
        on.warnings
    );
    assert_eq!(sent_to(&on), [Some("http://collector:4318/v1/metrics".to_owned()), None]);
}

#[test]
fn the_variables_say_where_and_how_once_a_signal_is_on() {
    let grpc = [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4317/"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")];
    let to = |text: &str| Some(text.to_owned());
    assert_eq!(sent_to(&load(ON, &grpc)), [to("grpc://collector:4317"), to("grpc://collector:4317")]);
    let tls = [("OTEL_EXPORTER_OTLP_ENDPOINT", "https://collector:4317/"), grpc[1]];
    assert_eq!(sent_to(&load(ON, &tls)), [to("grpcs://collector:4317"), to("grpcs://collector:4317")]);
    let mixed = [
        &grpc[..],
        &[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://t:1/x"), ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf")],
    ]
    .concat();
    assert_eq!(sent_to(&load(ON, &mixed)), [to("grpc://collector:4317"), to("http://t:1/x")]);
    let own = load("telemetry: {metrics: on, endpoint: 'http://mine:4318'}", &grpc);
    assert_eq!(sent_to(&own)[0], to("http://mine:4318/v1/metrics"), "the file wins");
    let more = [
        ("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Bearer%20x, x-tenant = blue"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "2500"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "15000"),
        ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "LowMemory"),
        ("OTEL_RESOURCE_ATTRIBUTES", "k8s.pod.name=web-0,service.name=edge,note=a%2Cb"),
    ];
    let loaded = load(ON, &[&grpc[..], &more[..]].concat());
    let config = &loaded.config.telemetry;
    assert_eq!(serde_json::to_value(config.compression).unwrap(), "gzip");
    assert_eq!((config.timeout.to_string(), config.metrics_interval.to_string()), ("2500ms".to_owned(), "15s".to_owned()));
    assert_eq!(serde_json::to_value(config.temporality).unwrap(), "delta");
    assert_eq!(config.headers["Authorization"].expose(), "Bearer x");
    assert_eq!(config.headers["x-tenant"].expose(), "blue");
    assert_eq!((&*config.service_name, &*config.resource_attributes["k8s.pod.name"]), ("edge", "web-0"));
    assert_eq!((config.resource_attributes["note"].as_str(), config.resource_attributes.len()), ("a,b", 2));
    assert!(!loaded.render().contains("Bearer"));
    let named = load(ON, &[&grpc[..], &more[..], &[("OTEL_SERVICE_NAME", "name")]].concat());
    assert_eq!(named.config.telemetry.service_name, "name");
}

#[test]
fn what_cannot_work_is_a_fault() {
    assert_eq!(
        faults("telemetry: {metrics: on}"),
        "telemetry.metrics: on: needs a collector: give telemetry.endpoint, or telemetry.metrics_endpoint (file l.yaml)"
    );
    assert_eq!(
        faults("telemetry: {traces: on, endpoint: 'grpc://localhost:4317'}"),
        "telemetry.endpoint: grpc://localhost:4317: is Lapwing itself: otlp_grpc listens there; give the collector's own address (file l.yaml)"
    );
    assert_eq!(
        faults("trace_sampling: off\ntelemetry: {traces: on, endpoint: 'grpc://c:4317'}"),
        "telemetry.traces: on: needs the ids of traces: trace_sampling is off (file l.yaml)"
    );
    assert_eq!(
        faults("telemetry: {metrics: on, endpoint: 'grpc://c:4317', resource_attributes: {service.name: x}}"),
        "telemetry.resource_attributes.service.name: x: is set by telemetry.service_name (file l.yaml)"
    );
}
