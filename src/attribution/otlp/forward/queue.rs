//! The queue to the collector, bounded in messages and in bytes; no sender waits for room. Lapwing's own spans are removed first.

use std::sync::Arc;

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::message::{DeliveryCount, Message};
use crate::attribution::Config;
use crate::attribution::otlp::OwnTraces;
use crate::attribution::otlp::decode::{self, Malformed};
use crate::attribution::otlp::signal::{Encoding, Signal};
use crate::ledger::TraceId;
use crate::metrics::Counters;

/// Bytes of the messages in the queue and under way; more only if a single message may be larger.
const BYTES: u64 = 32 << 20;

/// The sending end. When its last clone is dropped, the forwarder sends what is queued and ends.
#[derive(Clone, Debug)]
pub struct ForwardQueue {
    sender: mpsc::Sender<Message>,
    room: Arc<Semaphore>,
    is_protobuf_only: bool,
    own_traces: Arc<OwnTraces>,
    counters: Arc<Counters>,
    /// Cancels the forwarder's `closing` with the last clone; declared behind `sender`, so dropped after it.
    _open: Arc<DropGuard>,
}

impl ForwardQueue {
    /// Returns a queue, and the token that is cancelled when its last clone is dropped.
    pub(super) fn new(
        sender: mpsc::Sender<Message>,
        config: &Config,
        is_protobuf_only: bool,
        own_traces: Arc<OwnTraces>,
        counters: Arc<Counters>,
    ) -> (Self, CancellationToken) {
        let bytes = usize::try_from(BYTES.max(config.otlp_max_body.get())).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        let closing = CancellationToken::new();
        let room = Arc::new(Semaphore::new(bytes));
        let open = Arc::new(closing.clone().drop_guard());
        (Self { sender, room, is_protobuf_only, own_traces, counters, _open: open }, closing)
    }

    /// Queues spans: the bytes as they came if all belong to the user, nothing if none does, else a message of those that do.
    pub(in crate::attribution::otlp) fn traces(&self, mut request: ExportTraceServiceRequest, encoding: Encoding, body: Bytes) {
        let is_own = |span: &Span| TraceId::from_slice(&span.trace_id).is_some_and(|trace| self.own_traces.contains(&trace));
        let mut spans = request.resource_spans.iter().flat_map(|r| &r.scope_spans).flat_map(|s| &s.spans);
        if !spans.any(is_own) {
            if self.is_protobuf_only && encoding == Encoding::Json {
                self.put(Signal::Traces, Encoding::Protobuf, request.encode_to_vec().into());
            } else {
                self.put(Signal::Traces, encoding, body);
            }
            return;
        }
        for resource in &mut request.resource_spans {
            resource.scope_spans.iter_mut().for_each(|scope| scope.spans.retain(|span| !is_own(span)));
            resource.scope_spans.retain(|scope| !scope.spans.is_empty());
        }
        request.resource_spans.retain(|resource| !resource.scope_spans.is_empty());
        if !request.resource_spans.is_empty() {
            self.put(Signal::Traces, Encoding::Protobuf, request.encode_to_vec().into());
        }
    }

    /// Queues metrics or logs, converted to protobuf only when the collector takes nothing else.
    pub(in crate::attribution::otlp) fn pass(&self, signal: Signal, encoding: Encoding, body: Bytes) -> Result<(), Malformed> {
        if self.is_protobuf_only {
            self.put(signal, Encoding::Protobuf, decode::to_protobuf(signal, encoding, body)?);
        } else {
            self.put(signal, encoding, body);
        }
        Ok(())
    }

    fn put(&self, signal: Signal, encoding: Encoding, body: Bytes) {
        let outcome = DeliveryCount::new(Arc::clone(&self.counters));
        let bytes = u32::try_from(body.len()).unwrap_or(u32::MAX);
        let Ok(room) = Arc::clone(&self.room).try_acquire_many_owned(bytes) else { return }; // dropping `outcome` counts it as lost
        let _ = self.sender.try_send(Message { signal, encoding, body, _room: room, outcome });
    }
}
