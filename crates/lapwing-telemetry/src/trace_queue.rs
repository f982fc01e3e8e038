//! The sampled exchanges, and their queue from the aggregator's thread to the exporter, bounded in number and in bytes. What finds no
//! room is counted; nothing waits.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use lapwing_ledger::{Exchange, Ledger, SamplingThreshold, TracedSpan};
use lapwing_metrics::{Counter, Counters};

/// Exchanges that may wait.
const EXCHANGES: usize = 2048;
/// About this many bytes of them may wait.
const BYTES: usize = 8 << 20;

/// Why an exchange is sent as a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SamplingReason {
    /// It ended in an error.
    Error,
    /// It took longer than a budget of its route.
    OverBudget,
    /// The share drew it.
    Share,
    /// It was the slowest of its route in a minute.
    Slowest,
    /// Its outputs differ from those of a shadow target.
    ShadowMismatch,
}

impl SamplingReason {
    /// The value of the attribute `lapwing.sampling.reason`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::OverBudget => "over_budget",
            Self::Share => "share",
            Self::Slowest => "slowest",
            Self::ShadowMismatch => "shadow_mismatch",
        }
    }
}

/// An exchange that is sent as a trace.
#[derive(Clone, Debug)]
pub struct SampledExchange {
    /// The exchange, without the gaps between its tokens.
    pub exchange: Exchange,
    /// Why.
    pub reason: SamplingReason,
    /// By which share; `None` if its weight is 0, because no probability applies.
    pub threshold: Option<SamplingThreshold>,
    /// The budgets that it took longer than, by name.
    pub over_budget: Vec<&'static str>,
}

/// The sending end. When it is dropped, the exporter sends what waits and ends.
#[derive(Debug)]
pub struct TraceQueue {
    sender: mpsc::Sender<QueuedExchange>,
    room: Arc<Semaphore>,
    counters: Arc<Counters>,
}

/// An exchange in the queue.
#[derive(Debug)]
pub struct QueuedExchange {
    pub(crate) sampled: SampledExchange,
    /// Its share of the queue's bytes, given back when it is dropped.
    pub(crate) room: OwnedSemaphorePermit,
}

impl TraceQueue {
    /// An empty queue, and its receiving end.
    #[must_use]
    pub fn new(counters: Arc<Counters>) -> (Self, mpsc::Receiver<QueuedExchange>) {
        let (sender, receiver) = mpsc::channel(EXCHANGES);
        (Self { sender, room: Arc::new(Semaphore::new(BYTES)), counters }, receiver)
    }

    /// Queues an exchange, or counts it as dropped.
    pub(crate) fn put(&self, sampled: SampledExchange) {
        let room = Arc::clone(&self.room).try_acquire_many_owned(bytes(&sampled.exchange));
        let is_taken = room.is_ok_and(|room| self.sender.try_send(QueuedExchange { sampled, room }).is_ok());
        if !is_taken {
            self.counters.bump(Counter::TracesDropped);
        }
    }
}

/// About the bytes that an exchange takes.
fn bytes(exchange: &Exchange) -> u32 {
    let traced = exchange.traced.iter().map(|span| size_of::<TracedSpan>() + span.name.len());
    u32::try_from(size_of::<Exchange>() + size_of::<Ledger>() + traced.sum::<usize>()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lapwing_ledger::{SpanNote, Stamp};

    #[test]
    fn an_exchange_is_charged_with_its_ledger_and_its_spans() {
        let mut exchange = Exchange::of(Ledger::open(Stamp::default(), 0));
        let alone = bytes(&exchange) as usize;
        assert!(alone > size_of::<Ledger>() && alone < 2048, "{alone}");
        let span = TracedSpan {
            name: "n".repeat(1000).into(),
            stage: None,
            phase: None,
            start_ns: 0,
            end_ns: 0,
            depth: 1,
            note: SpanNote::default(),
        };
        exchange.traced.push(span);
        assert!(bytes(&exchange) as usize >= alone + 1000);
    }
}
