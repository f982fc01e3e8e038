//! One message to the collector. However it ends, it is counted once: as forwarded or as lost.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

use crate::collector::ExportMessage;
use lapwing_metrics::{Counter, Counters};

/// A message in the queue or on its way.
#[derive(Debug)]
pub(crate) struct QueuedMessage {
    pub(crate) message: ExportMessage,
    /// The message's share of the queue's bytes, given back when it is dropped.
    pub(crate) _room: OwnedSemaphorePermit,
    pub(crate) outcome: DeliveryCount,
}

/// Counts the message when it is dropped: as lost, unless it was marked as forwarded. A message in a queue that is dropped is
/// counted too.
#[derive(Debug)]
pub(crate) struct DeliveryCount {
    counters: Arc<Counters>,
    is_forwarded: bool,
}

impl DeliveryCount {
    /// Of a message that is not forwarded yet.
    pub(crate) const fn new(counters: Arc<Counters>) -> Self {
        Self { counters, is_forwarded: false }
    }

    /// The collector took the message.
    pub(crate) const fn mark_forwarded(&mut self) {
        self.is_forwarded = true;
    }
}

impl Drop for DeliveryCount {
    fn drop(&mut self) {
        self.counters.bump(if self.is_forwarded { Counter::OtlpForwarded } else { Counter::OtlpForwardLost });
    }
}
