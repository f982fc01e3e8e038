//! The recording's player: feeds ledgers, exports and statistics in the order of their time, as the aggregator's loop does,
//! with stamps of its own.

use std::sync::Arc;

use lapwing_admin::Surfaces;
use lapwing_attribution::{Aggregator, IncomingSpan, JoinSettings};
use lapwing_ledger::{Ledger, Stamp};
use lapwing_metrics::views::ProfilerLimits;
use lapwing_metrics::{Config, Counter, Counters, Labels, PolledInterval, PolledKey, Registry};
use lapwing_settings::ConfigHandle;
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
/// How long a poll's batches count as the latest.
const VALID_NS: u64 = 15_000 * MS;

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
    /// A poll of this upstream found this of a model, or of the server as a whole.
    Polled(&'static str, Option<&'static str>, PolledInterval),
}

/// Events, each with its time in milliseconds.
pub(crate) type Events = Vec<(u64, Event)>;

pub(crate) struct Recording {
    registry: Arc<Mutex<Registry>>,
    counters: Arc<Counters>,
    labels: Arc<Labels>,
    aggregator: Aggregator,
    now_ms: u64,
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
                Event::Polled(upstream, model, interval) => recording.polled(upstream, model.unwrap_or_default(), &interval),
            }
        }
        recording.advance(end_ms);
        recording.surfaces()
    }

    fn new() -> Self {
        let (labels, counters) = (Arc::new(Labels::new(15, 12, 4)), Arc::new(Counters::default()));
        let config = Config { max_series: 18, recent_exchanges: 60, slowest_exchanges: 8, ..Config::default() };
        let registry = Arc::new(Mutex::new(Registry::new(config, labels.clone(), counters.clone())));
        let join = JoinSettings { max_pending: 40, max_spans_per_exchange: 24, max_orphan_spans: 30, ..JoinSettings::default() };
        let aggregator = Aggregator::new(join, counters.clone());
        Self { registry, counters, labels, aggregator, now_ms: 0 }
    }

    /// Lets the time pass until `ms`, tick by tick.
    fn advance(&mut self, ms: u64) {
        let registry = self.registry.clone();
        let mut registry = registry.lock();
        let mut now_ms = self.now_ms;
        while now_ms + TICK_MS <= ms {
            now_ms += TICK_MS;
            self.now_ms = now_ms;
            self.aggregator.tick(at(now_ms), &mut |exchange| registry.record_recent(exchange, at(now_ms), 0));
            if now_ms.is_multiple_of(ROTATE_MS) {
                registry.rotate(at(now_ms));
            }
        }
        let (pending, orphans) = self.aggregator.fill();
        self.counters.set(Counter::Pending, pending as u64);
        self.counters.set(Counter::OrphanSpans, orphans as u64);
    }

    fn close(&mut self, ledger: Ledger) {
        let (mut registry, now) = (self.registry.lock(), at(self.now_ms));
        self.aggregator.ledger(ledger, now, &mut |exchange| registry.record_recent(exchange, now, 0));
    }

    fn spans(&mut self, spans: Vec<IncomingSpan>) {
        let (mut registry, now) = (self.registry.lock(), at(self.now_ms));
        self.aggregator.spans(spans, now, &mut |exchange| registry.record_recent(exchange, now, 0));
        self.aggregator.mend(&mut |exchange| registry.mend(exchange));
    }

    fn polled(&self, upstream: &str, model: &str, interval: &PolledInterval) {
        let key = PolledKey { model: self.labels.models.intern(model), upstream: self.labels.upstreams.intern(upstream) };
        self.registry.lock().record_polled(key, interval, at(self.now_ms).plus(VALID_NS));
        self.counters.bump(Counter::PollsOk);
    }

    fn surfaces(self) -> Surfaces {
        Surfaces {
            registry: self.registry,
            counters: self.counters,
            optima: Arc::default(),
            config: ConfigHandle::fixed(serde_json::Value::Null),
            upstreams: Arc::new(Vec::new),
            engine: Arc::new(Vec::new),
            split: None,
            trials: None,
            dispatch: None,
            cache: None,
            downstreams: None,
            shadow: None,
            recording: Arc::default(),
            diagnosis: None,
            admin_token: None,
            admin_token_for: lapwing_settings::AdminTokenFor::default(),
            config_schema: Arc::default(),
            record: Arc::new(|_| Err("nothing is recorded here".to_owned())),
            ready: Arc::new(|| Box::pin(async { Ok(()) })),
            leaving: CancellationToken::new(),
            draining: CancellationToken::new(),
            limits: ConfigHandle::fixed(ProfilerLimits { queue: 4096, pending: 40, orphan_spans: 30 }),
            started_unix_ns: WALL_UNIX_NS,
            started: at(0),
        }
    }
}
