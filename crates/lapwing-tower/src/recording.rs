//! Closed ledgers on their way to the histograms: a bounded queue, which a thread empties every 20 ms.
//!
//! A thread, not a lock around the registry: recording takes as long as the rest of the layer together, finds its cells outside the
//! processor's caches, and waits while a page copies a series. The request's thread only pushes; it never waits, and never wakes
//! anyone. A full queue costs the record, which is counted as `lapwing_exchanges_dropped_total`.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use parking_lot::Mutex;

use lapwing_ledger::{Exchange, LabelId, Ledger, NewNames, Stamp, WallClock, clock, merge};
use lapwing_metrics::views::ProfilerLimits;
use lapwing_metrics::{Config, Counter, Counters, Labels, Registry, RegistryUpkeep};

/// Closed ledgers that wait to be recorded.
const QUEUE: usize = 4096;

/// Takes closed ledgers: what the request path ends in. It must be quick, must not wait, and drops and counts what it has no room for.
pub trait RecordLedger {
    /// Takes a closed ledger.
    fn record(&self, ledger: Box<Ledger>);
}

impl<R: RecordLedger + ?Sized> RecordLedger for Arc<R> {
    fn record(&self, ledger: Box<Ledger>) {
        (**self).record(ledger);
    }
}

/// Is called with each exchange before it is recorded.
pub(crate) type Hook = Box<dyn FnMut(&Exchange, &Labels) + Send>;

/// What layers, pages and the recorder's thread share.
pub(crate) struct Recording {
    queue: SyncSender<Box<Ledger>>,
    records: Mutex<Records>,
    upstream: LabelId,
    pub(crate) labels: Arc<Labels>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) registry: Mutex<Registry>,
    pub(crate) started: Stamp,
    pub(crate) started_unix_ns: u64,
}

struct Records {
    queue: Receiver<Box<Ledger>>,
    hooks: Vec<Hook>,
    upkeep: RegistryUpkeep,
}

impl fmt::Debug for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recording").field("started", &self.started).finish_non_exhaustive()
    }
}

impl Recording {
    /// Nothing recorded yet, of the server `name`.
    pub(crate) fn new(name: &str, config: Config, hooks: Vec<Hook>) -> Arc<Self> {
        let (labels, counters) = (Arc::new(Labels::bounded_by(&config, 1)), Arc::new(Counters::default()));
        let (sender, receiver) = sync_channel(QUEUE);
        let started = Stamp::now();
        Arc::new(Self {
            queue: sender,
            records: Mutex::new(Records { queue: receiver, hooks, upkeep: RegistryUpkeep::new(started) }),
            upstream: labels.upstreams.intern(name),
            registry: Mutex::new(Registry::new(config, labels.clone(), counters.clone())),
            labels,
            counters,
            started,
            started_unix_ns: clock::unix_ns(),
        })
    }

    /// The bounds that the registry does not know.
    pub(crate) const fn limits() -> ProfilerLimits {
        ProfilerLimits { queue: QUEUE, pending: 0, orphan_spans: 0 }
    }

    /// Names the series of a new ledger. Names that are in no table are learnt once the answer proves them.
    pub(crate) fn name_series(&self, ledger: &mut Ledger, route: &str, model: Option<&str>) {
        ledger.series.upstream = self.upstream;
        self.name_route(ledger, route);
        let known = model.map_or(Some(self.labels.no_model()), |model| self.labels.models.find(model));
        ledger.series.model = known.unwrap_or_default();
        if let (None, Some(model)) = (known, model) {
            ledger.name_new_model(model);
        }
    }

    /// Names the route.
    pub(crate) fn name_route(&self, ledger: &mut Ledger, route: &str) {
        let known = self.labels.routes.find(route);
        ledger.series.route = known.unwrap_or_default();
        match known {
            Some(_) => ledger.new_names.iter_mut().for_each(|names| names.route = None),
            None => {
                let names: &mut Box<NewNames> = ledger.new_names.get_or_insert_default();
                names.route = Some(route.into());
            }
        }
    }

    /// Records what waits, but nothing that arrives meanwhile beyond a full queue.
    pub(crate) fn flush(&self) {
        let records = &mut *self.records.lock();
        let (now, wall, mut depth) = (Stamp::now(), WallClock::read(), 0);
        for mut ledger in records.queue.try_iter().take(QUEUE) {
            depth += 1;
            ledger.anchor_unix_ns = wall.unix_ns(ledger.started);
            self.counters.add(Counter::LedgerOverflowed, u64::from(ledger.overflowed));
            self.labels.resolve_names(&mut ledger, now);
            let hooks = &mut records.hooks;
            let recorded = catch_unwind(AssertUnwindSafe(|| {
                let mut exchange = merge(ledger, Vec::new());
                self.registry.lock().note_deadline(&mut exchange);
                hooks.iter_mut().for_each(|hook| hook(&exchange, &self.labels));
                self.registry.lock().record_recent(exchange, now, 0);
            }));
            if recorded.is_err() {
                self.counters.bump(Counter::DroppedPanic);
            }
        }
        self.counters.set(Counter::QueueDepth, depth);
        if records.upkeep.names_gave_way(&self.labels) {
            self.registry.lock().retire_unnamed();
        }
        if records.upkeep.is_rotation_due(now) {
            self.registry.lock().rotate(now);
        }
    }
}

impl RecordLedger for Recording {
    fn record(&self, ledger: Box<Ledger>) {
        if self.queue.try_send(ledger).is_err() {
            self.counters.bump(Counter::DroppedChannelFull);
        }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.flush(); // hooks see what waits
    }
}
