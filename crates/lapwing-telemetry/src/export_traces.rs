//! Sends sampled exchanges as spans, in batches, one request at a time: while a collector does not answer, the queue fills and what
//! finds no room is counted as dropped.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans};
use prost::Message;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::spans::spans;
use super::trace_queue::QueuedExchange;
use super::{Config, ServiceResource, note_rejected, retry_policy};
use lapwing_attribution::collector::{self, CollectorClient, Encoding, Error, ExportMessage, Signal};
use lapwing_metrics::{Counter, Counters, Labels};
use lapwing_net::ClientIdentity;

/// Exchanges in one request.
const BATCH: usize = 128;
/// How long the first of a batch waits for others, as in OpenTelemetry's SDKs.
const DELAY: Duration = Duration::from_secs(5);

/// The exporter of traces.
#[derive(Debug)]
pub struct TracesExporter {
    queue: mpsc::Receiver<QueuedExchange>,
    client: CollectorClient,
    config: Config,
    resource: ServiceResource,
    labels: Arc<Labels>,
    counters: Arc<Counters>,
}

impl TracesExporter {
    /// Sends what comes by `queue`, as `config` says; `None` if traces are off.
    ///
    /// # Errors
    ///
    /// When a header's name or value, or the collector's address, cannot be put on the wire.
    pub fn new(
        (config, identity): (&Config, &Arc<ClientIdentity>),
        resource: &ServiceResource,
        labels: Arc<Labels>,
        counters: Arc<Counters>,
        queue: mpsc::Receiver<QueuedExchange>,
    ) -> Result<Option<Self>, Error> {
        let Some(to) = config.endpoint(Signal::Traces) else { return Ok(None) };
        let client = CollectorClient::of_endpoint(&to, config.options(identity))?;
        Ok(Some(Self { queue, client, config: config.clone(), resource: resource.clone(), labels, counters }))
    }

    /// Sends batches until the queue's sending end is dropped and the queue is empty. Once `closing` is cancelled, no batch waits to be
    /// filled, and each is tried only once more.
    pub async fn run(mut self, closing: CancellationToken) {
        let mut batch = Vec::with_capacity(BATCH);
        while let Some(first) = self.queue.recv().await {
            batch.push(first);
            let filling = async {
                while batch.len() < BATCH {
                    let Some(next) = self.queue.recv().await else { break };
                    batch.push(next);
                }
            };
            tokio::select! {
                biased;
                _ = timeout(DELAY, filling) => {}
                () = closing.cancelled() => {}
            }
            while batch.len() < BATCH
                && let Ok(next) = self.queue.try_recv()
            {
                batch.push(next);
            }
            self.export(std::mem::take(&mut batch), &closing).await;
        }
    }

    async fn export(&self, batch: Vec<QueuedExchange>, closing: &CancellationToken) {
        let outcome = BatchOutcome { exchanges: batch.len() as u64, is_sent: false, counters: Arc::clone(&self.counters) };
        let spans = batch.iter().flat_map(|queued| spans(&queued.sampled, &self.labels)).collect();
        // the request takes the place of its exchanges in the queue's bytes until it is sent
        let _room: Vec<_> = batch.into_iter().map(|queued| queued.room).collect();
        self.send(spans, outcome, closing).await;
    }

    async fn send(
        &self,
        spans: Vec<opentelemetry_proto::tonic::trace::v1::Span>,
        mut outcome: BatchOutcome,
        closing: &CancellationToken,
    ) {
        let scope_spans = vec![ScopeSpans { scope: ServiceResource::scope(), spans, ..ScopeSpans::default() }];
        let resource = self.resource.resource();
        let resource_spans = vec![ResourceSpans { resource, scope_spans, ..ResourceSpans::default() }];
        let body = ExportTraceServiceRequest { resource_spans }.encode_to_vec().into();
        let message = ExportMessage { signal: Signal::Traces, encoding: Encoding::Protobuf, body };
        match collector::send(&message, &self.client, &retry_policy(self.config.timeout), closing).await {
            Ok(answer) => {
                outcome.is_sent = true;
                self.note_rejected(&answer);
            }
            Err(reason) => {
                let exchanges = outcome.exchanges;
                tracing::warn!(reason, exchanges, "telemetry: traces cannot be sent to the collector; they are lost");
            }
        }
    }

    /// Counts spans that a collector refused although it took the request. An answer that cannot be read has refused none.
    fn note_rejected(&self, answer: &[u8]) {
        let partial = ExportTraceServiceResponse::decode(answer).ok().and_then(|answer| answer.partial_success);
        let Some(partial) = partial else { return };
        note_rejected(&self.counters, (Counter::TelemetrySpansRejected, "spans"), partial.rejected_spans, &partial.error_message);
    }
}

impl Drop for TracesExporter {
    /// Counts what still waits when it is dropped.
    fn drop(&mut self) {
        self.queue.close();
        while self.queue.try_recv().is_ok() {
            self.counters.bump(Counter::TracesLost);
        }
    }
}

/// Counts a batch when it is dropped: as lost, unless it was sent.
#[derive(Debug)]
struct BatchOutcome {
    exchanges: u64,
    is_sent: bool,
    counters: Arc<Counters>,
}

impl Drop for BatchOutcome {
    fn drop(&mut self) {
        self.counters.add(if self.is_sent { Counter::TracesSent } else { Counter::TracesLost }, self.exchanges);
    }
}
