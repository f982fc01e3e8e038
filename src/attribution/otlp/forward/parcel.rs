//! One message on its way to the collector. Whatever becomes of it, it is counted once: forwarded, or else lost.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::OwnedSemaphorePermit;

use crate::attribution::otlp::signal::{Encoding, Signal};
use crate::metrics::{Counter, Counters};

/// A message, its share of the queue's bytes, and its fate.
#[derive(Debug)]
pub(super) struct Parcel {
    pub(super) signal: Signal,
    pub(super) encoding: Encoding,
    pub(super) body: Bytes,
    /// Given back when the parcel is gone.
    pub(super) _room: OwnedSemaphorePermit,
    pub(super) fate: Fate,
}

/// Counts a loss when dropped, unless it was told of success: so no way out is forgotten, not even a dropped queue.
#[derive(Debug)]
pub(super) struct Fate {
    counters: Arc<Counters>,
    is_forwarded: bool,
}

impl Fate {
    /// Lost until it is forwarded.
    pub(super) const fn new(counters: Arc<Counters>) -> Self {
        Self { counters, is_forwarded: false }
    }

    /// The collector took it.
    pub(super) const fn forwarded(&mut self) {
        self.is_forwarded = true;
    }
}

impl Drop for Fate {
    fn drop(&mut self) {
        self.counters.bump(if self.is_forwarded { Counter::OtlpForwarded } else { Counter::OtlpForwardLost });
    }
}
