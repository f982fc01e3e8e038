//! The metrics of `/metrics` for the exporter of Lapwing's own telemetry.

use opentelemetry_proto::tonic::metrics::v1::Metric;

use super::prometheus;
use super::surfaces::Surfaces;
use lapwing_ledger::clock;

/// Every family of `/metrics` as OTLP metrics with cumulative temporality, histograms as exponential ones. It reads the same counts.
#[must_use]
pub fn otlp_metrics(surfaces: &Surfaces) -> Vec<Metric> {
    prometheus::otlp_metrics(surfaces, clock::unix_ns()).unwrap_or_else(|error| {
        tracing::error!(%error, "telemetry: the metrics cannot be made");
        Vec::new()
    })
}
