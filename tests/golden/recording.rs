//! The recording's player: feeds ledgers, exports and statistics in the order of their time, as the aggregator's loop does,
//! with stamps of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use lapwing::attribution::{Aggregator, IncomingSpan, JoinSettings, Polled, Statistics, merge_polled};
use lapwing::export::{ProfilerLimits, Surfaces};
use lapwing::ledger::{Exchange, Ledger, Stamp, TracedSpan};
use lapwing::metrics::{Config, Counter, Counters, Labels, Registry};
use lapwing::settings::ConfigHandle;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::spans::{Export, Receiver};

pub(crate) const MS: u64 = 1_000_000;
/// The wall clock when the recording begins.
pub(crate) const WALL_UNIX_NS: u64 = 1_795_225_347_000_000_000;
/// The monotonic clock when it begins: far in the future of the process, so that whoever asks for the time that has passed
/// since gets zero.
const BEGIN_NS: u64 = 1_000_000_000_000_000;
const TICK_MS: u64 = 50;
const ROTATE_MS: u64 = 2_000;
/// What comes after the last event: every grace period ends, the windows move on.
const AFTER_MS: u64 = 7_000;
/// Statistics older than this are not used.
const MAX_AGE_NS: u64 = 15_000 * MS;

/// The stamp of a time in the recording.
pub(crate) fn at(ms: u64) -> Stamp {
    Stamp::from_ns(BEGIN_NS + ms * MS).unwrap()
}

/// What happens at one time.
pub(crate) enum Event {
    /// A request ended.
    Closed(Box<Ledger>),
    /// An exporter sent spans.
    Exported(Export),
    /// A poll found this of a model, or of the server as a whole.
    Polled(Option<&'static str>, Polled),
}

/// Events, each with its time in milliseconds.
pub(crate) type Events = Vec<(u64, Event)>;

type Merge = Box<dyn Fn(Ledger, Vec<TracedSpan>) -> Exchange + Send>;

pub(crate) struct Recording {
    registry: Arc<Mutex<Registry>>,
    counters: Arc<Counters>,
    labels: Arc<Labels>,
    statistics: Arc<Statistics>,
    aggregator: Aggregator<Merge>,
    now_ms: Arc<AtomicU64>,
}

impl Recording {
    /// Plays all events, and gives what the admin server shows.
    pub(crate) async fn play(traffic: fn(&Labels) -> Events, spans: fn(&Labels) -> Events) -> Surfaces {
        let mut recording = Self::new();
        let receiver = Receiver::start(recording.counters.clone());
        // the spans' routes are named first: the others fill the tables
        let mut events = spans(&recording.labels);
        events.extend(traffic(&recording.labels));
        events.sort_by_key(|(ms, _)| *ms);
        let end_ms = events.last().map_or(0, |(ms, _)| *ms) + AFTER_MS;
        for (ms, event) in events {
            recording.advance(ms);
            match event {
                Event::Closed(ledger) => recording.close(*ledger),
                Event::Exported(export) => {
                    let spans = receiver.receive(&export).await;
                    recording.spans(spans);
                }
                Event::Polled(model, polled) => recording.polled(model, polled),
            }
        }
        recording.advance(end_ms);
        recording.surfaces()
    }

    fn new() -> Self {
        let (labels, counters) = (Arc::new(Labels::new(15, 12, 4)), Arc::new(Counters::default()));
        let config = Config { max_series: 18, recent_exchanges: 60, slowest_exchanges: 8, ..Config::default() };
        let registry = Arc::new(Mutex::new(Registry::new(config, labels.clone(), counters.clone())));
        let (statistics, now_ms) = (Arc::new(Statistics::default()), Arc::new(AtomicU64::new(0)));
        let (polled, clock) = (statistics.clone(), now_ms.clone());
        let merge: Merge = Box::new(move |mut ledger, traced| {
            ledger.server = ledger.server.or_else(|| polled.server());
            let polled = polled.of(&ledger, at(clock.load(Relaxed)), MAX_AGE_NS).unwrap_or_default();
            merge_polled(ledger, traced, polled)
        });
        let join = JoinSettings { max_pending: 40, max_spans_per_exchange: 24, max_orphan_spans: 30, ..JoinSettings::default() };
        let aggregator = Aggregator::with_merge(join, counters.clone(), merge);
        Self { registry, counters, labels, statistics, aggregator, now_ms }
    }

    /// Lets the time pass until `ms`, tick by tick.
    fn advance(&mut self, ms: u64) {
        let registry = self.registry.clone();
        let mut registry = registry.lock();
        let mut now_ms = self.now_ms.load(Relaxed);
        while now_ms + TICK_MS <= ms {
            now_ms += TICK_MS;
            self.now_ms.store(now_ms, Relaxed);
            self.aggregator.tick(at(now_ms), &mut |exchange| registry.keep(exchange, at(now_ms), 0));
            if now_ms.is_multiple_of(ROTATE_MS) {
                registry.rotate(at(now_ms));
            }
        }
        let (pending, orphans) = self.aggregator.fill();
        self.counters.set(Counter::Pending, pending as u64);
        self.counters.set(Counter::OrphanSpans, orphans as u64);
    }

    fn close(&mut self, ledger: Ledger) {
        let (mut registry, now) = (self.registry.lock(), at(self.now_ms.load(Relaxed)));
        self.statistics.note_request();
        self.aggregator.ledger(ledger, now, &mut |exchange| registry.keep(exchange, now, 0));
    }

    fn spans(&mut self, spans: Vec<IncomingSpan>) {
        let (mut registry, now) = (self.registry.lock(), at(self.now_ms.load(Relaxed)));
        self.aggregator.spans(spans, now, &mut |exchange| registry.keep(exchange, now, 0));
        self.aggregator.mend(&mut |exchange| registry.mend(exchange));
    }

    fn polled(&self, model: Option<&str>, polled: Polled) {
        let polled = Polled { at: at(self.now_ms.load(Relaxed)), ..polled };
        match model {
            Some(model) => self.statistics.put(self.labels.models.intern(model), polled),
            None => self.statistics.put_whole(polled),
        }
        self.counters.bump(Counter::PollsOk);
    }

    fn surfaces(self) -> Surfaces {
        Surfaces {
            registry: self.registry,
            counters: self.counters,
            config: ConfigHandle::fixed(serde_json::Value::Null),
            engine: Arc::new(Vec::new),
            ready: Arc::new(|| Box::pin(async { Ok(()) })),
            draining: CancellationToken::new(),
            limits: ConfigHandle::fixed(ProfilerLimits { queue: 4096, pending: 40, orphan_spans: 30 }),
            started_unix_ns: WALL_UNIX_NS,
            started: at(0),
        }
    }
}
