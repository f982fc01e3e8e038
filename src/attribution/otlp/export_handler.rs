//! What both receivers do with a request: spans go to the join, and everything goes to the forwarder. Nothing here waits.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Semaphore, SemaphorePermit, mpsc};

use super::decode::{self, Malformed};
use super::forward::ForwardQueue;
use super::signal::{Encoding, Signal};
use crate::attribution::{IncomingSpan, ProcessId, Rules};
use crate::metrics::{Counter, Counters};
use crate::net::Peer;
use crate::settings::ConfigHandle;

/// Most spans in one message to the join. Together with the channel's bound it bounds the memory that a flood of spans takes.
const SPANS: usize = 512;
/// Requests whose bodies are held at once. Further requests wait, which slows their senders down.
const AT_ONCE: usize = 8;
/// For one request, from its head to its response.
pub(super) const TIME_LIMIT: Duration = Duration::from_secs(30);

/// Takes the requests that the receivers read. Clones share everything.
#[derive(Clone, Debug)]
pub struct ExportHandler {
    rules: ConfigHandle<Rules>,
    counters: Arc<Counters>,
    spans: mpsc::Sender<Vec<IncomingSpan>>,
    forward: Option<ForwardQueue>,
    room: Arc<Semaphore>,
    /// The connection that requests come by.
    peer: Option<Peer>,
}

impl ExportHandler {
    /// Maps spans by `rules` and sends them to `spans`, at most 512 in one message. Spans that find the channel full or closed are
    /// dropped and counted, and the exporter still gets a success. Everything received goes to `forward`.
    #[must_use]
    pub fn new(
        rules: impl Into<ConfigHandle<Rules>>,
        counters: Arc<Counters>,
        spans: mpsc::Sender<Vec<IncomingSpan>>,
        forward: Option<ForwardQueue>,
    ) -> Self {
        Self { rules: rules.into(), counters, spans, forward, room: Arc::new(Semaphore::new(AT_ONCE)), peer: None }
    }

    /// The same for the requests of one connection. It tells a sender's process from others where nothing else does.
    pub(super) fn of_connection(&self, peer: Option<Peer>) -> Self {
        Self { peer, ..self.clone() }
    }

    /// Waits until one more request's body may be held.
    pub(super) async fn admit(&self) -> Option<SemaphorePermit<'_>> {
        self.room.acquire().await.ok()
    }

    /// Takes one request. Metrics and logs are decoded only when the collector needs them in another encoding.
    pub(super) fn take(&self, signal: Signal, encoding: Encoding, body: Bytes) -> Result<(), Malformed> {
        match signal {
            Signal::Traces => {
                let request = decode::traces(encoding, &body)?;
                self.join(decode::spans(&request, &self.rules.load()));
                if let Some(forward) = &self.forward {
                    forward.traces(&request, encoding, body);
                }
            }
            Signal::Metrics | Signal::Logs => {
                if let Some(forward) = &self.forward {
                    forward.pass(signal, encoding, body)?;
                }
            }
        }
        Ok(())
    }

    /// Counts a request that was refused.
    pub(super) fn refused(&self) {
        self.counters.bump(Counter::OtlpMalformed);
    }

    fn join(&self, decoded: decode::Decoded) {
        self.counters.add(Counter::SpansInvalid, decoded.invalid);
        self.counters.add(Counter::SpansSkipped, decoded.skipped);
        self.counters.add(Counter::SpansReceived, decoded.spans.len() as u64);
        let mut spans = decoded.spans;
        let connection = ProcessId::of(&self.peer);
        spans.iter_mut().for_each(|span| span.process = span.process.or(connection));
        while !spans.is_empty() {
            let rest = spans.split_off(spans.len().min(SPANS));
            if let Err(TrySendError::Full(shed) | TrySendError::Closed(shed)) = self.spans.try_send(spans) {
                self.counters.add(Counter::SpansShed, shed.len() as u64);
            }
            spans = rest;
        }
    }
}
