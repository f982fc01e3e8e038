//! What both receivers do with a request: its body is read within the bytes that all bodies together may hold; then spans go to the join, and
//! everything goes to the forwarder. Nothing but a body is waited for.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::decode::{self, Undecodable};
use super::forward::ForwardQueue;
use super::json::{self, ProtobufBody};
use super::refusals::{OtlpRefusals, RefusalCause};
use crate::collector::{Encoding, Signal};
use crate::{IncomingSpan, ProcessId, Rules};
use lapwing_metrics::{Counter, Counters};
use lapwing_net::Peer;
use lapwing_settings::ConfigHandle;

/// Most spans in one message to the join. Together with the channel's bound it bounds the memory that a flood of spans takes.
const SPANS: usize = 512;
/// Bytes of the bodies that are held at once, as they came; more only if a single one may be larger. What finds no room is refused
/// with an answer by which exporters send it again. Bytes are counted as they come, so a sender that stalls delays no other.
const BODIES: usize = 32 << 20;
/// For one request, from its head to its response.
pub(crate) const TIME_LIMIT: Duration = Duration::from_secs(30);

/// What became of a request that was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Spans that exceed the bounds of [`decode`] and were not joined.
    pub(crate) rejected: u64,
    /// Whether the user's collector gets the request all the same.
    pub(crate) is_forwarded: bool,
}

/// Takes the requests that the receivers read. Clones share everything.
#[derive(Clone, Debug)]
pub struct ExportHandler {
    rules: ConfigHandle<Rules>,
    counters: Arc<Counters>,
    spans: mpsc::Sender<Vec<IncomingSpan>>,
    forward: Option<ForwardQueue>,
    room: Arc<Semaphore>,
    refusals: Arc<OtlpRefusals>,
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
        let (room, refusals) = (Arc::new(Semaphore::new(BODIES)), Arc::default());
        Self { rules: rules.into(), counters, spans, forward, room, refusals, peer: None }
    }

    /// Notes there what is refused.
    #[must_use]
    pub fn with_refusals(self, refusals: Arc<OtlpRefusals>) -> Self {
        Self { refusals, ..self }
    }

    /// Lets single bodies be as large as `bytes`.
    #[must_use]
    pub fn with_max_body(self, bytes: u64) -> Self {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).clamp(BODIES, Semaphore::MAX_PERMITS);
        Self { room: Arc::new(Semaphore::new(bytes)), ..self }
    }

    /// Where the receivers count connections that they close.
    pub(crate) const fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// The same for the requests of one connection, which identifies the sender's process where nothing else does.
    pub(crate) fn of_connection(&self, peer: Option<Peer>) -> Self {
        Self { peer, ..self.clone() }
    }

    /// The bytes of bodies that may be held at once.
    pub(crate) const fn room(&self) -> &Arc<Semaphore> {
        &self.room
    }

    /// Takes one request. Metrics and logs are decoded only when the collector needs them in another encoding.
    pub(crate) fn take(&self, signal: Signal, encoding: Encoding, body: Bytes) -> Result<Taken, Undecodable> {
        let mut taken = Taken { rejected: 0, is_forwarded: self.forward.is_some() };
        match signal {
            Signal::Traces => {
                let protobuf = match encoding {
                    Encoding::Protobuf => ProtobufBody { bytes: body.clone(), left_out: 0 },
                    Encoding::Json => json::to_protobuf(signal, &body)?,
                };
                let decoded = decode::spans(&protobuf.bytes, &self.rules.load())?;
                taken.rejected = decoded.rejected + protobuf.left_out;
                self.counters.add(Counter::SpansRejected, taken.rejected);
                if let Some(forward) = &self.forward {
                    forward.traces(&protobuf.bytes, encoding, body)?;
                }
                self.join(decoded);
            }
            Signal::Metrics | Signal::Logs => {
                if let Some(forward) = &self.forward {
                    forward.pass(signal, encoding, body)?;
                }
            }
        }
        self.counters.bump(Counter::OtlpTaken);
        Ok(taken)
    }

    /// Counts a request that was refused for good; `detail` says what it had.
    pub(crate) fn refused(&self, cause: RefusalCause, detail: &str) {
        self.refusals.note(cause, detail, &self.counters);
    }

    /// Counts a request that was refused for now.
    pub(crate) fn busy(&self) {
        self.counters.bump(Counter::OtlpBusy);
    }

    fn join(&self, decoded: decode::Decoded) {
        self.counters.add(Counter::SpansInvalid, decoded.invalid);
        self.counters.add(Counter::SpansSkipped, decoded.skipped);
        self.counters.add(Counter::SpanLinksShed, decoded.links_shed);
        self.counters.add(Counter::SpansReceived, decoded.spans.len() as u64);
        let mut spans = decoded.spans;
        let connection = ProcessId::of_connection(&self.peer);
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

/// A body, and its share of the room until it is dropped.
#[derive(Debug)]
pub(crate) struct HeldBody {
    pub(crate) bytes: Bytes,
    _room: Option<OwnedSemaphorePermit>,
}

/// Why a body was not read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError {
    /// It is larger than this many bytes.
    #[error("the body is larger than {0} bytes")]
    TooLarge(usize),
    /// Other bodies fill the room.
    #[error("too many bytes are being received; try again")]
    Busy,
    /// The connection failed.
    #[error("the body cannot be read: {0}")]
    Unreadable(axum::Error),
}

/// Reads `body`, at most `limit` bytes of it. Pieces are copied: a piece by reference would keep the whole buffer that it was read
/// into, however small it is.
pub(crate) async fn read_body(mut body: Body, limit: usize, room: &Arc<Semaphore>) -> Result<HeldBody, BodyError> {
    let (mut bytes, mut held) = (BytesMut::new(), None::<OwnedSemaphorePermit>);
    while let Some(frame) = body.frame().await {
        let Ok(piece) = frame.map_err(BodyError::Unreadable)?.into_data() else { continue };
        if piece.len() > limit - bytes.len() {
            return Err(BodyError::TooLarge(limit));
        }
        let size = u32::try_from(piece.len()).unwrap_or(u32::MAX);
        let more = Arc::clone(room).try_acquire_many_owned(size).map_err(|_| BodyError::Busy)?;
        match &mut held {
            Some(held) => held.merge(more),
            None => held = Some(more),
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(HeldBody { bytes: bytes.freeze(), _room: held })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn bodies_share_the_room_and_give_it_back() {
        let room = Arc::new(Semaphore::new(10));
        let body = |length: usize| Body::from(vec![1; length]);
        let first = read_body(body(6), 8, &room).await.unwrap();
        assert!(matches!(read_body(body(9), 8, &room).await, Err(BodyError::TooLarge(8))));
        assert!(matches!(read_body(body(5), 8, &room).await, Err(BodyError::Busy)));
        let second = read_body(body(4), 8, &room).await.unwrap();
        assert_eq!((first.bytes.len(), second.bytes.len(), room.available_permits()), (6, 4, 0));
        drop((first, second));
        assert_eq!(room.available_permits(), 10);
    }
}
