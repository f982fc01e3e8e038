//! Sends the metrics at an interval, one request at a time: a collector that does not answer delays the next one, and nothing queues.
//!
//! A cumulative request that is lost costs resolution only. With delta temporality the next request contains what the lost one had.

use std::sync::Arc;

use opentelemetry_proto::tonic::collector::metrics::v1::{ExportMetricsServiceRequest, ExportMetricsServiceResponse};
use opentelemetry_proto::tonic::metrics::v1::{Metric, ResourceMetrics, ScopeMetrics};
use prost::Message;
use tokio::time::{MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;

use super::delta::CumulativePoints;
use super::{Config, ServiceResource, Temporality, note_rejected, retry_policy};
use lapwing_attribution::collector::{self, CollectorClient, Encoding, Error, ExportMessage, Signal};
use lapwing_metrics::{Counter, Counters};
use lapwing_net::ClientIdentity;

/// Makes all metrics, with cumulative temporality.
pub type CollectMetrics = Box<dyn Fn() -> Vec<Metric> + Send>;

/// The exporter of metrics.
pub struct MetricsExporter {
    collect: CollectMetrics,
    client: CollectorClient,
    config: Config,
    resource: ServiceResource,
    counters: Arc<Counters>,
    /// What the collector took last, with delta temporality.
    taken: CumulativePoints,
}

impl MetricsExporter {
    /// Sends what `collect` makes, as `config` says; `None` if metrics are off.
    ///
    /// # Errors
    ///
    /// When a header's name or value, or the collector's address, cannot be put on the wire.
    pub fn new(
        (config, identity): (&Config, &Arc<ClientIdentity>),
        resource: &ServiceResource,
        counters: Arc<Counters>,
        collect: CollectMetrics,
    ) -> Result<Option<Self>, Error> {
        let Some(to) = config.endpoint(Signal::Metrics) else { return Ok(None) };
        let client = CollectorClient::of_endpoint(&to, config.options(identity))?;
        let taken = CumulativePoints::default();
        Ok(Some(Self { collect, client, config: config.clone(), resource: resource.clone(), counters, taken }))
    }

    /// Sends metrics at the interval until `closing` is cancelled, then once more.
    pub async fn run(mut self, closing: CancellationToken) {
        let period = self.config.metrics_interval.get();
        #[allow(clippy::disallowed_methods, reason = "a timer's own clock")]
        let mut ticks = interval_at(tokio::time::Instant::now() + period, period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = closing.cancelled() => break,
                _ = ticks.tick() => self.export(&closing).await,
            }
        }
        self.export(&closing).await;
    }

    pub(crate) async fn export(&mut self, closing: &CancellationToken) {
        let metrics = (self.collect)();
        let (metrics, cumulative) = match self.config.temporality {
            Temporality::Cumulative => (metrics, None),
            Temporality::Delta => {
                let cumulative = CumulativePoints::of(&metrics);
                (self.taken.until(metrics), Some(cumulative))
            }
        };
        let body = self.request(metrics).encode_to_vec().into();
        let message = ExportMessage { signal: Signal::Metrics, encoding: Encoding::Protobuf, body };
        match collector::send(&message, &self.client, &retry_policy(self.config.timeout), closing).await {
            Ok(answer) => {
                self.taken = cumulative.unwrap_or_default();
                self.counters.bump(Counter::TelemetryMetricsSent);
                self.note_rejected(&answer);
            }
            Err(reason) => {
                self.counters.bump(Counter::TelemetryMetricsFailed);
                tracing::warn!(
                    reason,
                    "telemetry: metrics cannot be sent to the collector; the next request has what came since"
                );
            }
        }
    }

    fn request(&self, metrics: Vec<Metric>) -> ExportMetricsServiceRequest {
        let scope_metrics = vec![ScopeMetrics { scope: ServiceResource::scope(), metrics, ..ScopeMetrics::default() }];
        let resource = self.resource.resource();
        ExportMetricsServiceRequest {
            resource_metrics: vec![ResourceMetrics { resource, scope_metrics, ..ResourceMetrics::default() }],
        }
    }

    /// Counts data points that a collector refused although it took the request. An answer that cannot be read has refused none.
    fn note_rejected(&self, answer: &[u8]) {
        let partial = ExportMetricsServiceResponse::decode(answer).ok().and_then(|answer| answer.partial_success);
        let Some(partial) = partial else { return };
        note_rejected(
            &self.counters,
            (Counter::TelemetryPointsRejected, "data points"),
            partial.rejected_data_points,
            &partial.error_message,
        );
    }
}
