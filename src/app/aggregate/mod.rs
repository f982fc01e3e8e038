//! The aggregator's loop: it reads the queue of closed ledgers every 20 ms, or sooner, takes spans as they arrive, and records merged
//! exchanges. The request path never wakes it.

mod diagnosis_feed;
mod kept;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use arrayvec::ArrayVec;
use crossbeam_queue::ArrayQueue;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

pub(crate) use self::diagnosis_feed::DiagnosisFeed;
use self::kept::Destinations;
pub(crate) use self::kept::LeverFeeds;
use super::access_log::AccessLog;
use lapwing_attribution::{Aggregator, Config, IncomingSpan, Statistics};
use lapwing_diagnosis::cost::DebtAssessor;
use lapwing_dispatch::WorkSeries;
use lapwing_ledger::merge;
use lapwing_ledger::{Exchange, LabelId, Ledger, Stamp, TracedSpan, WallClock};
use lapwing_metrics::{Counter, Counters, Labels, Registry, RegistryUpkeep};
use lapwing_outbound::{Downstreams, WaitJoiner};
use lapwing_protocol::Tokenizers;
use lapwing_protocol::trace_context::LearntContexts;
use lapwing_settings::ConfigHandle;
use lapwing_shadow::ShadowParts;
use lapwing_shadow::recording::RecordAccounts;
use lapwing_telemetry::TailSampler;

/// How often the queue is read where little is in it.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How often it is read at most.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(1);
/// The queue is read so often that about so many ledgers are in it: what the request path has just written is in the processor's caches then, and
/// its memory free for the next requests.
const TARGET_QUEUE_DEPTH: u32 = 64;
/// How many ledgers' series are looked up together.
const BATCH: usize = 16;

/// How long prompts may be tokenized in one round, because the queue fills meanwhile.
const TOKENIZE_NS: u64 = 100_000_000;
/// While more than one in so many places of the queue is taken, nothing is tokenized.
const TOKENIZE_FILL_DIVISOR: usize = 4;

/// For how many intervals a poll's batches count as the latest.
const POLLS_KEPT: u64 = 3;

/// The merge, with the server that the poller recognised.
type Merge = Box<dyn Fn(Box<Ledger>, Vec<TracedSpan>) -> Exchange + Send>;

fn valid_ns(config: &Config) -> u64 {
    config.poll_interval.as_nanos().saturating_mul(POLLS_KEPT)
}

/// The aggregator and what it reads and writes.
pub(crate) struct Aggregation {
    aggregator: Aggregator<Merge>,
    /// What each upstream reports of itself, by its label.
    statistics: Vec<(LabelId, Arc<Statistics>)>,
    queue: Arc<ArrayQueue<Box<Ledger>>>,
    destinations: Destinations,
    counters: Arc<Counters>,
    tokenizers: Option<Tokenizers>,
    /// Which of the server's own calls belong to which request, if it makes any through Lapwing.
    joiner: Option<WaitJoiner>,
    upkeep: RegistryUpkeep,
    labels: Arc<Labels>,
    config: ConfigHandle<Config>,
    /// The configuration by which the aggregator joins.
    applied: Arc<Config>,
}

impl Aggregation {
    /// Joins by `config`, which is read at each look, and compares what is merged with the optima of `assessor`.
    pub(crate) fn new(
        config: ConfigHandle<Config>,
        assessor: DebtAssessor,
        queue: Arc<ArrayQueue<Box<Ledger>>>,
        registry: Arc<Mutex<Registry>>,
        counters: Arc<Counters>,
        statistics: Vec<(LabelId, Arc<Statistics>)>,
    ) -> Self {
        let (polled, applied) = (statistics.clone(), config.load());
        let merge = move |mut ledger: Box<Ledger>, traced| {
            if !ledger.is_copy
                && let Some((_, polled)) = polled.iter().find(|(label, _)| *label == ledger.series.upstream)
            {
                polled.evidence.note(&ledger);
                ledger.server = ledger.server.or_else(|| polled.server());
            }
            merge(ledger, traced)
        };
        let aggregator = Aggregator::with_merge(applied.join(), counters.clone(), Box::new(merge) as Merge);
        let labels = registry.lock().labels().clone();
        Self {
            aggregator,
            statistics,
            queue,
            destinations: Destinations {
                registry,
                shadow: None,
                records: None,
                access_log: None,
                sampler: None,
                diagnosis: None,
                levers: LeverFeeds::default(),
                assessor,
            },
            counters,
            tokenizers: None,
            joiner: None,
            upkeep: RegistryUpkeep::new(Stamp::now()),
            labels,
            config,
            applied,
        }
    }

    /// Applies the configuration in force if it has changed.
    fn apply_config(&mut self) {
        let config = self.config.load();
        if !Arc::ptr_eq(&config, &self.applied) {
            self.aggregator.set_join(config.join());
            self.applied = config;
        }
    }

    /// Notes there which trace contexts the upstream is found to continue.
    pub(crate) fn learning_contexts(mut self, contexts: Arc<LearntContexts>) -> Self {
        self.aggregator.learn_contexts(contexts);
        self
    }

    /// Counts the tokens of prompts with these tokenizers.
    pub(crate) fn tokenizing(self, tokenizers: Tokenizers) -> Self {
        Self { tokenizers: Some(tokenizers), ..self }
    }

    /// Gives requests the time of the calls that the server makes for them.
    pub(crate) fn joining(self, downstreams: Option<Downstreams>) -> Self {
        Self { joiner: downstreams.map(WaitJoiner::new), ..self }
    }

    /// Takes the accounts of copies too.
    pub(crate) fn shadowing(self, shadow: Option<ShadowParts>) -> Self {
        Self { destinations: Destinations { shadow, ..self.destinations }, ..self }
    }

    /// Shows clients' requests to what judges and moves levers.
    pub(crate) fn moving(self, levers: LeverFeeds) -> Self {
        Self { destinations: Destinations { levers, ..self.destinations }, ..self }
    }

    /// Sends the accounts of recorded requests there.
    pub(crate) fn recording(self, records: Arc<RecordAccounts>) -> Self {
        Self { destinations: Destinations { records: Some(records), ..self.destinations }, ..self }
    }

    /// Writes each exchange to the access log.
    pub(crate) fn logging(self, access_log: Option<AccessLog>) -> Self {
        Self { destinations: Destinations { access_log, ..self.destinations }, ..self }
    }

    /// Sends what `sampler` chooses as traces.
    pub(crate) fn sampling(self, sampler: Option<TailSampler>) -> Self {
        let sampler = sampler.map(Mutex::new);
        Self { destinations: Destinations { sampler, ..self.destinations }, ..self }
    }

    /// Hands clients' exchanges to the diagnosis too.
    pub(crate) fn diagnosing(self, feed: Option<DiagnosisFeed>) -> Self {
        let diagnosis = feed.map(Mutex::new);
        Self { destinations: Destinations { diagnosis, ..self.destinations }, ..self }
    }

    /// Runs until `stop`, then merges and records everything that waits.
    pub(crate) async fn run(mut self, mut spans: mpsc::Receiver<Vec<IncomingSpan>>, stop: CancellationToken) {
        let mut pause = pin!(tokio::time::sleep(Duration::ZERO));
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = &mut pause => {}
                Some(received) = spans.recv() => self.spans(received),
            }
            let depth = self.queue.len();
            if depth > 0
                && let Some(joiner) = &self.joiner
            {
                joiner.settle().await;
            }
            self.drain_queue(depth);
            pause.set(tokio::time::sleep(pause_after(depth)));
        }
        while let Ok(received) = spans.try_recv() {
            self.spans(received);
        }
        self.drain_queue(self.queue.len());
        let now = Stamp::now();
        let mut kept = self.destinations.lock(now);
        self.aggregator.flush(now, &mut |exchange| kept.accept_exchange(exchange, 0));
        kept.flush_sampler();
    }

    fn spans(&mut self, received: Vec<IncomingSpan>) {
        let now = Stamp::now();
        let mut kept = self.destinations.lock(now);
        self.aggregator.spans(received, now, &mut |exchange| kept.accept_exchange(exchange, 0));
        self.aggregator.mend(&mut |exchange| kept.mend(exchange));
    }

    /// Counts the tokens of a prompt that waits for it, if there is time; else the estimate stays. `since` is when this look
    /// began.
    fn tokenize(&self, ledger: &mut Ledger, since: Stamp) {
        let Some(prompt) = ledger.prompt.take() else { return };
        let Some(tokenizers) = &self.tokenizers else { return };
        if self.queue.len() > self.queue.capacity() / TOKENIZE_FILL_DIVISOR || Stamp::now().since(since) > TOKENIZE_NS {
            self.counters.bump(Counter::PromptsSkipped);
        } else if !tokenizers.complete(&prompt, &mut ledger.work) {
            self.counters.bump(Counter::PromptsFailed);
        }
    }

    /// Gives a closed ledger what the request path has no time for: the wall clock at its start, and the ids of its new names.
    fn anchor_and_resolve(&self, ledger: &mut Ledger, wall: WallClock, now: Stamp) {
        ledger.anchor_unix_ns = wall.unix_ns(ledger.started);
        self.labels.resolve_names(ledger, now);
    }

    /// Takes the `depth` ledgers that waited, but none that arrive meanwhile, so that spans get their turn.
    fn drain_queue(&mut self, depth: usize) {
        self.apply_config();
        if let Some(joiner) = &mut self.joiner {
            joiner.take();
        }
        self.counters.set(Counter::QueueDepth, depth as u64);
        let (now, wall) = (Stamp::now(), WallClock::read());
        let mut kept = self.destinations.lock(now);
        if depth > 0 {
            self.statistics.iter().for_each(|(_, statistics)| statistics.note_request());
        }
        let mut behind = depth;
        while behind > 0 {
            let mut batch: ArrayVec<Box<Ledger>, BATCH> =
                std::iter::from_fn(|| self.queue.pop()).take(behind.min(BATCH)).collect();
            if batch.is_empty() {
                break; // the last one is still being pushed: next time
            }
            batch.iter_mut().for_each(|ledger| self.anchor_and_resolve(ledger, wall, now));
            if let Some(joiner) = &mut self.joiner {
                batch.iter_mut().for_each(|ledger| joiner.attach(ledger));
            }
            batch.iter().for_each(|ledger| kept.registry.warm(ledger.series));
            kept.registry.warm_oldest(batch.len());
            for mut ledger in batch {
                behind -= 1;
                kept.foresee(&ledger);
                self.tokenize(&mut ledger, now);
                kept.try_out(&ledger);
                self.aggregator.ledger(ledger, now, &mut |exchange| kept.accept_exchange(exchange, behind));
            }
        }
        if let Some(shadow) = &self.destinations.shadow {
            for _ in 0..shadow.ledgers.len() {
                let Some(mut ledger) = shadow.ledgers.pop() else { break };
                self.anchor_and_resolve(&mut ledger, wall, now);
                self.aggregator.ledger(ledger, now, &mut |exchange| kept.accept_exchange(exchange, 0));
            }
        }
        if self.upkeep.names_gave_way(&self.labels) {
            kept.forget_unnamed();
            self.aggregator.retain_routes(|route| self.labels.routes.holds(route));
        }
        for (key, interval) in self.statistics.iter().flat_map(|(_, statistics)| statistics.take()) {
            kept.registry.record_polled(key, &interval, now.plus(valid_ns(&self.applied)));
        }
        self.aggregator.tick(now, &mut |exchange| kept.accept_exchange(exchange, 0));
        kept.tick_pairs();
        kept.tick_sampler();
        kept.tick_diagnosis();
        kept.tick_split_and_trial();
        let (pending, orphans) = self.aggregator.fill();
        self.counters.set(Counter::Pending, pending as u64);
        self.counters.set(Counter::OrphanSpans, orphans as u64);
        if self.upkeep.is_rotation_due(now) {
            kept.rotate();
            kept.registry.load().into_iter().for_each(|load| self.counters.load().set(load));
        }
        // to learn takes milliseconds, in which nobody waits for the tables
        drop(kept);
        let shadow = self.destinations.shadow.as_ref();
        let agrees = |target: &str, series: WorkSeries| shadow.is_some_and(|shadow| shadow.answers_alike(target, &series.into()));
        self.destinations.levers.dispatch.iter().for_each(|dispatch| dispatch.lock().tick(now, agrees));
    }
}

/// How long to wait before the queue is read again, after one reading that found so many ledgers.
fn pause_after(depth: usize) -> Duration {
    let depth = u32::try_from(depth).unwrap_or(u32::MAX);
    (POLL_INTERVAL * TARGET_QUEUE_DEPTH / depth.max(TARGET_QUEUE_DEPTH)).max(MIN_POLL_INTERVAL)
}

#[cfg(test)]
#[cfg(feature = "tokenizers")]
mod tests;
