//! The variables of OpenTelemetry's SDKs that set settings too. The file and Lapwing's own variables override them.
//!
//! Names and forms are the specification's (<https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/>,
//! <https://opentelemetry.io/docs/specs/otel/protocol/exporter/>). None of them turns anything on: a pod may have them for its
//! model server. For the same reason a value that Lapwing cannot use is no fault but a warning.

use std::ops::RangeInclusive;
use std::str::FromStr;

use figment::value::{Dict, Value};
use percent_encoding::percent_decode_str;

use super::schema::Schema;
use super::sources::{Layer, Sources};
use lapwing_settings::{Collector, CollectorEndpoint, Invalid, TraceSampler};

const PROTOCOL: &str = "OTEL_EXPORTER_OTLP_PROTOCOL";
const SERVICE_NAME: &str = "OTEL_SERVICE_NAME";
const ATTRIBUTES: &str = "OTEL_RESOURCE_ATTRIBUTES";

/// What the standard variables say.
pub(crate) struct StandardVariables {
    /// A layer for each setting.
    pub(crate) layers: Vec<Layer>,
    /// Settings for which a variable has a value that cannot be used, each with a warning.
    pub(crate) ignored: Vec<(&'static str, String)>,
}

/// Makes a setting's value, or says why the variable's text is none.
type Read<'a> = &'a dyn Fn(&str) -> Result<Value, Invalid>;

impl StandardVariables {
    /// Reads them for the settings that `schema` has.
    pub(crate) fn of(sources: &Sources, schema: &Schema) -> Self {
        let given = |name: &str| {
            let value = sources.env.iter().find(|(key, value)| key == name && !value.trim().is_empty());
            value.map(|(_, text)| text.trim())
        };
        let protocol_of = |signal: &str| {
            let own = format!("OTEL_EXPORTER_OTLP_{signal}_PROTOCOL");
            given(&own).or_else(|| given(PROTOCOL)).unwrap_or("http/protobuf").to_owned()
        };
        let sampler = |text: &str| {
            let read = TraceSampler::from_variables(text, given("OTEL_TRACES_SAMPLER_ARG"))?;
            Ok(Value::from(read.to_string()))
        };
        let collector = |text: &str| address::<Collector>(text, given(PROTOCOL).unwrap_or("http/protobuf"));
        let of_traces = |text: &str| address::<CollectorEndpoint>(text, &protocol_of("TRACES"));
        let of_metrics = |text: &str| address::<CollectorEndpoint>(text, &protocol_of("METRICS"));
        let pairs = |text: &str| Ok(Value::from(pairs(text)?));
        let attributes = |text: &str| {
            let mut attributes = self::pairs(text)?;
            attributes.remove("service.name"); // has a setting of its own
            Ok(Value::from(attributes))
        };
        let named = |text: &str| Ok(Value::from(text));
        let name_in_attributes = |text: &str| self::pairs(text)?.remove("service.name").ok_or_else(|| Invalid::new(text, ""));
        let variables: [(&str, &'static str, Read<'_>); 12] = [
            ("OTEL_TRACES_SAMPLER", "otlp_forward_sampler", &sampler),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "telemetry.endpoint", &collector),
            ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "telemetry.metrics_endpoint", &of_metrics),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "telemetry.traces_endpoint", &of_traces),
            ("OTEL_EXPORTER_OTLP_HEADERS", "telemetry.headers", &pairs),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "telemetry.compression", &|text| one_of(text, &["none", "gzip"])),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "telemetry.timeout", &|text| millis(text, 100..=300_000)),
            ("OTEL_METRIC_EXPORT_INTERVAL", "telemetry.metrics_interval", &|text| millis(text, 1_000..=3_600_000)),
            ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "telemetry.temporality", &temporality),
            (ATTRIBUTES, "telemetry.service_name", &name_in_attributes),
            (SERVICE_NAME, "telemetry.service_name", &named),
            (ATTRIBUTES, "telemetry.resource_attributes", &attributes),
        ];
        let mut found = Self { layers: Vec::new(), ignored: Vec::new() };
        for (name, key, read) in variables {
            let path = schema.path(key);
            let (Some(text), Some(_)) = (given(name), schema.at(&path.0)) else { continue };
            match read(text) {
                Ok(value) => found.layers.push(Layer::value(path, value, format!("env {name}"))),
                // attributes without a service's name
                Err(Invalid { reason, .. }) if reason.is_empty() => {}
                Err(Invalid { reason, .. }) if key == "telemetry.headers" => {
                    found.ignored.push((key, format!("{name}: {reason}; it is ignored"))); // the value is secret
                }
                Err(Invalid { value, reason }) => found.ignored.push((key, format!("{name}: {value} {reason}; it is ignored"))),
            }
        }
        found
    }
}

/// A collector's address by `protocol`: over gRPC with or without a scheme, as the specification allows.
fn address<T: FromStr<Err = Invalid> + ToString>(text: &str, protocol: &str) -> Result<Value, Invalid> {
    let text = match protocol {
        "grpc" => {
            let (scheme, rest) = text.split_once("://").map_or(("http", text), |(scheme, rest)| (scheme, rest));
            let scheme = if scheme.eq_ignore_ascii_case("https") { "grpcs" } else { "grpc" };
            format!("{scheme}://{}", rest.trim_end_matches('/'))
        }
        "http/protobuf" => text.to_owned(),
        _ => return Err(Invalid::new(text, format!("is for {PROTOCOL}={protocol}; Lapwing speaks grpc and http/protobuf"))),
    };
    Ok(Value::from(text.parse::<T>()?.to_string()))
}

/// `key=value,key=value` with percent-encoded values, as in W3C Baggage.
fn pairs(text: &str) -> Result<Dict, Invalid> {
    let mut pairs = Dict::new();
    for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
        let decode = |part: &str| percent_decode_str(part.trim()).decode_utf8().ok().map(|part| part.into_owned());
        let (key, value) = pair.split_once('=').unwrap_or_default();
        let (Some(key), Some(value)) = (decode(key).filter(|key| !key.is_empty()), decode(value)) else {
            return Err(Invalid::new(text, "is no list of key=value with commas between"));
        };
        pairs.insert(key, Value::from(value));
    }
    Ok(pairs)
}

fn one_of(text: &str, known: &[&str]) -> Result<Value, Invalid> {
    let text = text.to_ascii_lowercase();
    if known.contains(&&*text) {
        Ok(Value::from(text))
    } else {
        Err(Invalid::new(&text, format!("is not {}", known.join(" or "))))
    }
}

/// Whole milliseconds within `range`.
fn millis(text: &str, range: RangeInclusive<u64>) -> Result<Value, Invalid> {
    match text.parse::<u64>() {
        Ok(millis) if range.contains(&millis) => Ok(Value::from(format!("{millis}ms"))),
        _ => Err(Invalid::new(text, format!("is no number of milliseconds from {} to {}", range.start(), range.end()))),
    }
}

/// `lowmemory` is delta for what Lapwing has: counters and histograms.
fn temporality(text: &str) -> Result<Value, Invalid> {
    let chosen = one_of(text, &["cumulative", "delta", "lowmemory"])?;
    Ok(if chosen.as_str() == Some("lowmemory") { Value::from("delta") } else { chosen })
}
