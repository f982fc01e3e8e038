//! Writes families, counters and gauges with the encoder of `prometheus-client`.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use crate::metrics::defs::{MetricFamily, MetricKind};

/// The names and values of a sample's labels.
pub(super) type Labels<'a> = Vec<(&'static str, &'a str)>;

/// The encoder's type for a kind.
pub(super) const fn metric_type(kind: MetricKind) -> MetricType {
    match kind {
        MetricKind::Counter => MetricType::Counter,
        MetricKind::Gauge => MetricType::Gauge,
        MetricKind::Histogram => MetricType::Histogram,
    }
}

/// Writes the head of a family, then calls `samples` to write its samples. The encoder appends the unit to the name itself.
pub(super) fn family(
    encoder: &mut DescriptorEncoder<'_>,
    definition: &MetricFamily,
    samples: impl FnOnce(&mut MetricEncoder<'_>) -> fmt::Result,
) -> fmt::Result {
    let base = definition.unit.and_then(|unit| definition.name.strip_suffix(unit)?.strip_suffix('_'));
    let unit = definition.unit.map(|unit| Unit::Other(unit.to_owned()));
    let kind = metric_type(definition.kind);
    samples(&mut encoder.encode_descriptor(base.unwrap_or(definition.name), definition.help, unit.as_ref(), kind)?)
}

/// Writes a sample of a counter.
pub(super) fn count(metric: &mut MetricEncoder<'_>, labels: &Labels<'_>, value: &impl EncodeCounterValue) -> fmt::Result {
    if labels.is_empty() {
        return metric.encode_counter::<NoLabelSet, _, u64>(value, None);
    }
    metric.encode_family(labels)?.encode_counter::<NoLabelSet, _, u64>(value, None)
}

/// Writes a sample of a gauge.
pub(super) fn gauge(metric: &mut MetricEncoder<'_>, labels: &Labels<'_>, value: &impl EncodeGaugeValue) -> fmt::Result {
    if labels.is_empty() {
        return metric.encode_gauge(value);
    }
    metric.encode_family(labels)?.encode_gauge(value)
}
