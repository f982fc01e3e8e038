//! The aggregator's loop: it reads the queue of closed ledgers every 20 ms, takes spans as they arrive, and records merged
//! exchanges. The request path never wakes it.

use std::sync::Arc;
use std::time::Duration;

use arrayvec::ArrayVec;
use crossbeam_queue::ArrayQueue;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::attribution::{Aggregator, Config, IncomingSpan, Statistics, merge};
use crate::cost::DebtAssessor;
use crate::ledger::{Exchange, Ledger, Stamp, TracedSpan};
use crate::metrics::{Counter, Counters, Registry};
use crate::protocol::Tokenizers;
use crate::settings::ConfigHandle;

/// How often the queue is read.
const LOOK: Duration = Duration::from_millis(20);
/// How many ledgers' series are looked up together.
const BATCH: usize = 16;
/// How often the registry's windows advance.
const ROTATE_NS: u64 = 2_000_000_000;

/// How long prompts may be tokenized in one round, because the admin server and the receiver wait meanwhile.
const TOKENIZE_NS: u64 = 100_000_000;
/// While the queue is fuller than this share, nothing is tokenized.
const BUSY: usize = 4;

/// For how many intervals a poll's batches count as the latest.
const POLLS_KEPT: u64 = 3;

/// The merge, with the server that the poller recognised.
type Merge = Box<dyn Fn(Ledger, Vec<TracedSpan>) -> Exchange + Send>;

fn valid_ns(config: &Config) -> u64 {
    config.poll_interval.as_nanos().saturating_mul(POLLS_KEPT)
}

/// The aggregator and what it reads and writes.
pub(super) struct Aggregation {
    aggregator: Aggregator<Merge>,
    statistics: Arc<Statistics>,
    queue: Arc<ArrayQueue<Ledger>>,
    registry: Arc<Mutex<Registry>>,
    counters: Arc<Counters>,
    tokenizers: Option<Tokenizers>,
    assessor: DebtAssessor,
    rotated: Stamp,
    config: ConfigHandle<Config>,
    /// The configuration by which the aggregator joins.
    applied: Arc<Config>,
}

impl Aggregation {
    /// Joins by `config`, which is read every 20 ms, and compares what is merged with the optima of `assessor`.
    pub(super) fn new(
        config: ConfigHandle<Config>,
        assessor: DebtAssessor,
        queue: Arc<ArrayQueue<Ledger>>,
        registry: Arc<Mutex<Registry>>,
        counters: Arc<Counters>,
        statistics: Arc<Statistics>,
    ) -> Self {
        let (polled, applied) = (statistics.clone(), config.load());
        let merge = move |mut ledger: Ledger, traced| {
            polled.evidence.note(&ledger);
            ledger.server = ledger.server.or_else(|| polled.server());
            merge(ledger, traced)
        };
        let aggregator = Aggregator::with_merge(applied.join(), counters.clone(), Box::new(merge) as Merge);
        let (tokenizers, rotated) = (None, Stamp::now());
        Self { aggregator, statistics, queue, registry, counters, tokenizers, assessor, rotated, config, applied }
    }

    /// Applies the configuration in force if it has changed.
    fn apply_config(&mut self) {
        let config = self.config.load();
        if !Arc::ptr_eq(&config, &self.applied) {
            self.aggregator.set_join(config.join());
            self.applied = config;
        }
    }

    /// Counts the tokens of prompts with these tokenizers.
    pub(super) fn tokenizing(self, tokenizers: Tokenizers) -> Self {
        Self { tokenizers: Some(tokenizers), ..self }
    }

    /// Runs until `stop`, then merges and records everything that waits.
    pub(super) async fn run(mut self, mut spans: mpsc::Receiver<Vec<IncomingSpan>>, stop: CancellationToken) {
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                _ = look.tick() => {}
                Some(received) = spans.recv() => self.spans(received),
            }
            self.look();
        }
        while let Ok(received) = spans.try_recv() {
            self.spans(received);
        }
        self.look();
        let now = Stamp::now();
        let (mut registry, assessor) = (self.registry.lock(), &mut self.assessor);
        self.aggregator.flush(now, &mut |exchange| registry.keep(assessor.assessed(exchange), now, 0));
    }

    fn spans(&mut self, received: Vec<IncomingSpan>) {
        let now = Stamp::now();
        let (mut registry, assessor) = (self.registry.lock(), &mut self.assessor);
        self.aggregator.spans(received, now, &mut |exchange| registry.keep(assessor.assessed(exchange), now, 0));
        self.aggregator.mend(&mut |exchange| registry.mend(assessor.assessed(exchange)));
    }

    /// Counts the tokens of a prompt that waits for it, if there is time; else the estimate stays. `since` is when this look
    /// began.
    fn tokenize(&self, ledger: &mut Ledger, since: Stamp) {
        let Some(prompt) = ledger.prompt.take() else { return };
        let Some(tokenizers) = &self.tokenizers else { return };
        if self.queue.len() > self.queue.capacity() / BUSY || Stamp::now().since(since) > TOKENIZE_NS {
            self.counters.bump(Counter::PromptsSkipped);
        } else if !tokenizers.complete(&prompt, &mut ledger.work) {
            self.counters.bump(Counter::PromptsFailed);
        }
    }

    /// Takes the waiting ledgers, but none that arrive meanwhile, so that the admin server gets its turn.
    fn look(&mut self) {
        self.apply_config();
        let depth = self.queue.len();
        self.counters.set(Counter::QueueDepth, depth as u64);
        let now = Stamp::now();
        let mut registry = self.registry.lock();
        if depth > 0 {
            self.statistics.note_request();
        }
        let mut behind = depth;
        while behind > 0 {
            let batch: ArrayVec<Ledger, BATCH> = std::iter::from_fn(|| self.queue.pop()).take(behind.min(BATCH)).collect();
            if batch.is_empty() {
                break; // the last one is still being pushed: next time
            }
            batch.iter().for_each(|ledger| registry.warm(ledger.series));
            for mut ledger in batch {
                behind -= 1;
                self.tokenize(&mut ledger, now);
                let assessor = &mut self.assessor;
                self.aggregator.ledger(ledger, now, &mut |exchange| registry.keep(assessor.assessed(exchange), now, behind));
            }
        }
        for (key, interval) in self.statistics.take() {
            registry.record_polled(key, &interval, now.plus(valid_ns(&self.applied)));
        }
        let assessor = &mut self.assessor;
        self.aggregator.tick(now, &mut |exchange| registry.keep(assessor.assessed(exchange), now, 0));
        let (pending, orphans) = self.aggregator.fill();
        self.counters.set(Counter::Pending, pending as u64);
        self.counters.set(Counter::OrphanSpans, orphans as u64);
        if now.since(self.rotated) >= ROTATE_NS {
            registry.rotate(now);
            self.rotated = now;
        }
    }
}

#[cfg(test)]
#[cfg(feature = "tokenizers")]
mod tests;
