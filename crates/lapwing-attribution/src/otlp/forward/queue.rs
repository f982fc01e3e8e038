//! The queue to the collector, bounded in messages and in bytes; no sender waits for room. Spans that the user's own sampler would
//! not have taken are removed first, and Lapwing's span is replaced by its parent, unless it is sent to a collector too.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use prost::{DecodeError, Message as _};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::message::{DeliveryCount, QueuedMessage};
use super::rewrite::{SpanFate, rewritten};
use super::sampler::{Sdk, would_sample};
use crate::Config;
use crate::collector::{Encoding, ExportMessage, Signal};
use crate::otlp::decode::{Undecodable, fields, messages};
use crate::otlp::json;
use crate::otlp::own_traces::{OwnTraces, SampledBy};
use lapwing_ledger::{SpanId, TraceId};
use lapwing_metrics::{Counter, Counters};
use lapwing_settings::TraceSampler;

/// Fields of `ResourceSpans`, `Resource`, `KeyValue` and `Span`.
const RESOURCE: u32 = 1;
const ATTRIBUTE: u32 = 1;
const KEY: u32 = 1;
const TRACE: u32 = 1;
const PARENT: u32 = 4;

/// Bytes of the messages in the queue and under way; more only if a single message may be larger.
const BYTES: u64 = 32 << 20;

/// The sending end. When its last clone is dropped, the forwarder sends what is queued and ends.
#[derive(Clone, Debug)]
pub struct ForwardQueue {
    sender: mpsc::Sender<QueuedMessage>,
    room: Arc<Semaphore>,
    is_protobuf_only: bool,
    own_traces: Arc<OwnTraces>,
    sampler: TraceSampler,
    /// The SDK of the service whose spans are children of Lapwing's: without Lapwing it would decide about new traces.
    upstream_sdk: Arc<OnceLock<Sdk>>,
    counters: Arc<Counters>,
    /// Cancels the forwarder's `closing` with the last clone; declared after `sender`, so dropped after it.
    _open: Arc<DropGuard>,
}

impl ForwardQueue {
    /// Returns a queue, and the token that is cancelled when its last clone is dropped.
    pub(crate) fn new(
        sender: mpsc::Sender<QueuedMessage>,
        config: &Config,
        is_protobuf_only: bool,
        own_traces: Arc<OwnTraces>,
        sampler: TraceSampler,
        counters: Arc<Counters>,
    ) -> (Self, CancellationToken) {
        let bytes = usize::try_from(BYTES.max(config.otlp_max_body.get())).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        let closing = CancellationToken::new();
        let room = Arc::new(Semaphore::new(bytes));
        let open = Arc::new(closing.clone().drop_guard());
        let upstream_sdk = Arc::default();
        (Self { sender, room, is_protobuf_only, own_traces, sampler, upstream_sdk, counters, _open: open }, closing)
    }

    /// Queues the spans that would have reached the collector without Lapwing, in the trees in which they would have: the bytes as
    /// they came if nothing is to be changed, and nothing if no span is left. `protobuf` is the request in protobuf.
    pub(crate) fn traces(&self, protobuf: &Bytes, encoding: Encoding, body: Bytes) -> Result<(), DecodeError> {
        let fates = self.fates(protobuf)?;
        let is_changed = fates.iter().any(|fate| *fate != SpanFate::Keep);
        let withheld = fates.iter().filter(|fate| **fate == SpanFate::Withhold).count();
        self.counters.add(Counter::SpansWithheld, withheld as u64);
        if is_changed || (encoding == Encoding::Json && self.is_protobuf_only) {
            if let Some(body) = rewritten(protobuf, &fates) {
                self.put(Signal::Traces, Encoding::Protobuf, body.into());
            }
        } else {
            self.put(Signal::Traces, encoding, body);
        }
        Ok(())
    }

    /// What is to become of each span, in order. No span is built for it.
    fn fates(&self, request: &[u8]) -> Result<Vec<SpanFate>, DecodeError> {
        let mut fates = Vec::new();
        for resource in messages(request, 1) {
            let resource = resource?;
            let sdk = Sdk::of_language(language(resource)?.as_deref());
            for scope in messages(resource, 2) {
                for span in messages(scope?, 2) {
                    fates.push(self.fate(span?, sdk)?);
                }
            }
        }
        Ok(fates)
    }

    fn fate(&self, span: &[u8], sdk: Sdk) -> Result<SpanFate, DecodeError> {
        let (mut trace, mut parent): (&[u8], &[u8]) = (&[], &[]);
        for field in fields(span) {
            match field? {
                (TRACE, Some(id)) => trace = id,
                (PARENT, Some(id)) => parent = id,
                _ => {}
            }
        }
        let Some(trace) = TraceId::from_slice(trace) else { return Ok(SpanFate::Keep) };
        let sent_parent = SpanId::from_slice(parent);
        let own = sent_parent.map(|parent| self.own_traces.own_of(parent));
        let parent = own.and_then(|parent| self.own_traces.replaced_parent(trace, parent));
        if parent.is_some() {
            let _ = self.upstream_sdk.set(sdk);
        }
        let decision = match self.own_traces.sampled_by(trace) {
            SampledBy::Lapwing => Some(None),
            SampledBy::LapwingByForce => Some(Some(false)),
            SampledBy::Client => None,
        };
        // the service that would have begun the trace decides for all
        let sdk = self.upstream_sdk.get().copied().unwrap_or(sdk);
        if decision.is_some_and(|client| !would_sample(self.sampler, trace, client, sdk)) {
            return Ok(SpanFate::Withhold);
        }
        // where Lapwing's span reaches a collector too, the upstream's hang below it
        let is_sent = own.is_some_and(|own| self.own_traces.is_sent(trace, own));
        Ok(match parent.filter(|_| !is_sent) {
            Some(Some(parent)) => SpanFate::Reparent(parent),
            Some(None) => SpanFate::MakeRoot,
            None => match own.filter(|_| is_sent && own != sent_parent) {
                Some(own) => SpanFate::Reparent(own),
                None => SpanFate::Keep,
            },
        })
    }

    /// Queues metrics or logs, converted to protobuf only when the collector takes nothing else.
    pub(crate) fn pass(&self, signal: Signal, encoding: Encoding, body: Bytes) -> Result<(), Undecodable> {
        if encoding == Encoding::Json && self.is_protobuf_only {
            self.put(signal, Encoding::Protobuf, json::to_protobuf(signal, &body)?.bytes);
        } else {
            self.put(signal, encoding, body);
        }
        Ok(())
    }

    fn put(&self, signal: Signal, encoding: Encoding, body: Bytes) {
        let outcome = DeliveryCount::new(Arc::clone(&self.counters));
        let bytes = u32::try_from(body.len()).unwrap_or(u32::MAX);
        let Ok(room) = Arc::clone(&self.room).try_acquire_many_owned(bytes) else { return }; // dropping `outcome` counts it as lost
        let message = ExportMessage { signal, encoding, body };
        let _ = self.sender.try_send(QueuedMessage { message, _room: room, outcome });
    }
}

/// The resource attribute `telemetry.sdk.language` of a `ResourceSpans`, read one attribute at a time.
fn language(resource_spans: &[u8]) -> Result<Option<String>, DecodeError> {
    for resource in messages(resource_spans, RESOURCE) {
        for attribute in messages(resource?, ATTRIBUTE) {
            let attribute = attribute?;
            let is_it = messages(attribute, KEY).any(|key| key.is_ok_and(|key| key == b"telemetry.sdk.language"));
            if is_it && let Some(Value::StringValue(language)) = KeyValue::decode(attribute)?.value.and_then(|value| value.value)
            {
                return Ok(Some(language));
            }
        }
    }
    Ok(None)
}
