//! Sends the demo server's spans by OTLP/gRPC, in batches every 200 ms, as SDK exporters do.
//!
//! Requests never wait for it: the queue is bounded, and spans that do not fit or cannot be sent are dropped and counted.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use opentelemetry_proto::tonic::trace::v1::Span;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tonic::body::Body;

use super::resource_spans;
use lapwing_net::{Client, ClientLimits, Target};

/// Requests whose spans may wait for the next batch: more than ten times those of the demo's default load in 200 ms.
const QUEUE: usize = 4096;
/// The interval between batches.
const EVERY: Duration = Duration::from_millis(200);
/// Requests per message, about five spans each: well below gRPC's limit of 4 MiB.
const PER_MESSAGE: usize = 1024;
/// The time limit of one message.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The handler's end of the queue.
#[derive(Clone, Debug)]
pub(crate) struct SpanQueue {
    sender: mpsc::Sender<Vec<Span>>,
    dropped: Arc<AtomicU64>,
}

impl SpanQueue {
    /// Queues one request's spans, or drops them if the queue is full.
    pub(crate) fn offer(&self, spans: Vec<Span>) {
        if let Err(mpsc::error::TrySendError::Full(spans) | mpsc::error::TrySendError::Closed(spans)) =
            self.sender.try_send(spans)
        {
            self.dropped.fetch_add(spans.len() as u64, Ordering::Relaxed);
        }
    }
}

/// The exporter's end.
#[derive(Debug)]
pub(crate) struct Exporter {
    receiver: mpsc::Receiver<Vec<Span>>,
    dropped: Arc<AtomicU64>,
    client: TraceServiceClient<Client<Body>>,
}

/// A queue and its exporter; `dropped` counts spans lost. Connects at the first batch.
pub(crate) fn pair(to: SocketAddr, dropped: Arc<AtomicU64>) -> (SpanQueue, Exporter) {
    let limits = ClientLimits { connect_timeout: TIMEOUT, timeout: TIMEOUT, ..ClientLimits::default() };
    let client = TraceServiceClient::new(Client::http2(Target::Tcp(to.to_string()), limits));
    let (sender, receiver) = mpsc::channel(QUEUE);
    (SpanQueue { sender, dropped: Arc::clone(&dropped) }, Exporter { receiver, dropped, client })
}

impl Exporter {
    /// Exports until `stop`, then once more for the remaining spans.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut ticks = tokio::time::interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !stop.is_cancelled() {
            tokio::select! {
                _ = ticks.tick() => {}
                () = stop.cancelled() => {}
            }
            while self.export_some().await {}
        }
    }

    /// Sends one message; `true` if another one is waiting already.
    async fn export_some(&mut self) -> bool {
        let mut spans = Vec::new();
        let mut requests = 0;
        while requests < PER_MESSAGE
            && let Ok(of_one) = self.receiver.try_recv()
        {
            spans.extend(of_one);
            requests += 1;
        }
        if spans.is_empty() {
            return false;
        }
        let count = spans.len() as u64;
        let message = ExportTraceServiceRequest { resource_spans: vec![resource_spans(spans)] };
        let rejected = match self.client.export(message).await {
            Ok(response) => {
                let partial = response.into_inner().partial_success;
                partial.map_or(0, |p| u64::try_from(p.rejected_spans).unwrap_or(0))
            }
            Err(status) => {
                tracing::debug!(%status, spans = count, "the demo's spans could not be exported");
                count
            }
        };
        self.dropped.fetch_add(rejected, Ordering::Relaxed);
        requests == PER_MESSAGE
    }
}
