//! All series, the recent exchanges and the slowest. Only the aggregator records; queries copy out under the same lock.
//!
//! Bounded: `max_series` series, of which idle ones give way, plus one called `other` for everything beyond; `recent` exchanges; `slowest` for each of ten
//! minutes. It does no I/O, and reads the clock only to stamp its own opening.

use std::collections::VecDeque;
use std::hint::black_box;
use std::ops::Range;
use std::sync::Arc;

use arrayvec::ArrayVec;
use rustc_hash::FxHashMap;

use super::budget::{RequestLimits, RouteBudget};
use super::config::Config;
use super::counters::{Counter, Counters};
use super::figures::Retired;
use super::labels::Labels;
use super::load::{EndpointLoad, LoadWindow, SlotLoad};
use super::polled::{BatchStatistics, PolledInterval, PolledKey, PolledTable, PolledTotals};
use super::series::{Recorded, Series};
use super::slowest::Slowest;
use super::snapshot::SeriesSnapshot;
use super::window::{Calendar, Selection, Window};
use lapwing_ledger::{Exchange, ExchangeKind, SeriesKey, Stamp};

/// The order of [`Registry::exchanges`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The latest exchange first.
    #[default]
    Recent,
    /// The slowest exchange of the last ten minutes first, without long-lived streams.
    Slowest,
}

impl Order {
    /// Both orders.
    pub const ALL: [Self; 2] = [Self::Recent, Self::Slowest];

    /// The name in queries.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Recent => "recent",
            Self::Slowest => "slowest",
        }
    }
}

/// What polls counted for one model in a window.
#[derive(Clone, Debug)]
pub struct PolledSnapshot {
    /// The model's text; empty where the server's statistics name none.
    pub model: Arc<str>,
    /// The upstream's text.
    pub upstream: Arc<str>,
    /// The routes of the series that it is shown with.
    pub routes: Vec<Arc<str>>,
    /// The sums.
    pub totals: PolledTotals,
    /// The latest batches.
    pub batch: Option<BatchStatistics>,
}

/// Everything that is measured per series.
///
/// ```
/// use std::sync::Arc;
///
/// use lapwing_ledger::{Exchange, Ledger, Outcome, Stamp};
/// use lapwing_metrics::{Config, Counters, HistogramScratch, Labels, Measure, Registry, Window};
///
/// let labels = Arc::new(Labels::new(10, 10, 10));
/// let mut registry = Registry::new(Config::default(), labels, Arc::new(Counters::default()));
/// for ms in 1..=100 {
///     let mut ledger = Ledger::open(Stamp::now(), 0);
///     (ledger.outcome, ledger.total_ns) = (Outcome::Ok, ms * 1_000_000);
///     registry.record(&Exchange::of(ledger));
/// }
/// let series = registry.series(Window::OneMinute, 0..registry.places());
/// let total = series[0].distribution(Measure::Total, &mut HistogramScratch::default());
/// assert_eq!((total.count, total.max_ns), (100, 100_000_000));
/// // at most 0.1 % above the exact quantile
/// assert!((99_000_000..=99_099_000).contains(&total.p99_ns));
/// ```
#[derive(Debug)]
pub struct Registry {
    config: Config,
    labels: Arc<Labels>,
    counters: Arc<Counters>,
    places: FxHashMap<SeriesKey, u32>,
    /// The first one is `other`.
    series: Vec<Series>,
    /// Places of series that gave way.
    free: Vec<u32>,
    retired: Retired,
    /// Before this no series can have been idle for long enough, so no search is needed.
    crowded_until: Stamp,
    overflowed: u64,
    polled: PolledTable,
    touched: Vec<u32>,
    calendar: Calendar,
    recent: VecDeque<Arc<Exchange>>,
    slowest: Slowest,
    load: LoadWindow,
}

impl Registry {
    /// An empty registry; `labels` are the tables that the keys were interned in.
    #[must_use]
    pub fn new(config: Config, labels: Arc<Labels>, counters: Arc<Counters>) -> Self {
        let (other, opened) = (SeriesKey::default(), Stamp::now());
        let budgets = budgets_of(&config, &labels, other);
        Self {
            recent: VecDeque::with_capacity(config.recent_exchanges),
            slowest: Slowest::new(config.slowest_exchanges),
            config,
            labels,
            counters,
            places: FxHashMap::from_iter([(other, 0)]),
            series: vec![Series::new(other, budgets, opened)],
            free: Vec::new(),
            retired: Retired::default(),
            crowded_until: Stamp::default(),
            overflowed: 0,
            polled: PolledTable::default(),
            touched: Vec::new(),
            calendar: Calendar::new(opened),
            load: LoadWindow::new(opened),
        }
    }

    /// Loads a series into the processor's caches, if it exists. Called for a batch before its exchanges are recorded, so that
    /// the misses of the batch overlap instead of happening one by one; with thousands of series that is half of the cost.
    pub fn warm(&self, key: SeriesKey) {
        if let Some(place) = self.places.get(&key) {
            self.series[*place as usize].warm();
        }
    }

    /// Loads the exchanges that give way to the next `n` recent ones, which is another miss for each.
    pub fn warm_oldest(&self, n: usize) {
        if self.recent.len() >= self.config.recent_exchanges {
            let oldest = self.recent.iter().take(n);
            black_box(oldest.fold(0, |all, exchange| all ^ exchange.claimed_ns ^ exchange.ledger.total_ns));
        }
    }

    /// Adds an exchange to its series, once.
    pub fn record(&mut self, exchange: &Exchange) {
        let place = match self.places.get(&exchange.ledger.series) {
            Some(place) => *place,
            None => self.open(exchange.ledger.series),
        };
        let Recorded { clipped, first, mixed } = self.series[place as usize].record(exchange);
        if first {
            self.touched.push(place);
            let (series, now) = (&mut self.series[place as usize], self.calendar.last());
            series.used = now;
            self.labels.touch(series.key, now);
        }
        if mixed {
            self.counters.bump(Counter::WorkMixed);
        }
        if clipped > 0 {
            self.counters.add(Counter::ValuesClipped, clipped);
        }
    }

    #[cold]
    fn open(&mut self, key: SeriesKey) -> u32 {
        // the names of an exchange that took long may have given way meanwhile
        let key = self.labels.live(key);
        if let Some(place) = self.places.get(&key) {
            return *place;
        }
        let Some(place) = self.free_place() else {
            self.count_overflow();
            return 0;
        };
        let budgets = budgets_of(&self.config, &self.labels, key);
        self.series[place as usize] = Series::new(key, budgets, self.calendar.last());
        self.places.insert(key, place);
        place
    }

    /// Notes on an exchange how long it may take by the settings, unless it says so itself.
    pub fn note_deadline(&self, exchange: &mut Exchange) {
        let Config { budgets, model_budgets, .. } = &self.config;
        let ledger = &mut exchange.ledger;
        if ledger.deadline.is_none() && !(budgets.is_empty() && model_budgets.is_empty()) {
            ledger.deadline = match self.places.get(&ledger.series) {
                Some(place) => self.series[*place as usize].limits.deadline(),
                None => budgets_of(&self.config, &self.labels, ledger.series).1.deadline(),
            };
        }
    }

    /// Records an exchange, keeps it among the recent ones, and among the slowest if it is slow. `behind` is the number of
    /// exchanges known to follow at once: if they would push it out of the recent ones anyway, it is not put there.
    pub fn record_recent(&mut self, exchange: Exchange, now: Stamp, behind: usize) {
        self.record(&exchange);
        let is_slow = exchange.ledger.kind == ExchangeKind::Request && self.slowest.wants(exchange.ledger.total_ns, now);
        let is_recent = behind < self.config.recent_exchanges;
        if !is_slow && !is_recent {
            return;
        }
        let exchange = Arc::new(exchange);
        if is_slow {
            self.slowest.offer(&exchange, now);
        }
        if is_recent {
            if self.recent.len() >= self.config.recent_exchanges {
                self.recent.pop_front();
            }
            self.recent.push_back(exchange);
        }
    }

    /// Replaces an exchange that was kept before by what it is with spans that came late, among the recent ones and the slowest,
    /// and counts the time that moved. The histograms keep what was recorded, and so do the gaps between tokens. Does nothing once
    /// it is in neither.
    pub fn mend(&mut self, mut exchange: Exchange) {
        let (trace, span) = (exchange.ledger.trace, exchange.ledger.span);
        let is_same = |kept: &Exchange| kept.ledger.span == span && kept.ledger.trace == trace;
        let recent = self.recent.iter_mut().rev().find(|kept| is_same(kept));
        let places: ArrayVec<&mut Arc<Exchange>, 2> = recent.into_iter().chain(self.slowest.find(is_same)).collect();
        let Some(old) = places.first().map(|place| Arc::clone(place)) else { return };
        if let (Some(new), Some(old)) = (&mut exchange.ledger.generation, &old.ledger.generation) {
            new.gaps_us.clone_from(&old.gaps_us);
        }
        let new = Arc::new(exchange);
        places.into_iter().for_each(|place| *place = Arc::clone(&new));
        let moved_ns = old.account.moved_ns(&new.account);
        let place = self.places.get(&new.ledger.series).copied().unwrap_or(0);
        if moved_ns > 0 && self.series[place as usize].mend(moved_ns) {
            self.touched.push(place);
        }
    }

    /// Closes a slot of time. To be called every 2 s; costs some microseconds for each series with traffic since the last call.
    pub fn rotate(&mut self, now: Stamp) {
        let (number, roll) = self.calendar.rotate(now);
        let mut load = SlotLoad::default();
        for place in self.touched.drain(..) {
            self.series[place as usize].rotate(number, &mut load);
        }
        self.load.push(load, now);
        self.polled.rotate(number);
        if let Some(roll) = roll {
            self.polled.roll(&roll);
            self.series.iter_mut().for_each(|series| series.roll(&roll));
        }
    }

    /// The load of the last ten seconds, until the last [`Self::rotate`]; `None` before the first.
    #[must_use]
    pub fn load(&self) -> Option<EndpointLoad> {
        self.load.load()
    }

    /// Copies out the series at these places that have traffic in `window`; places beyond [`Self::places`] are ignored. A reader
    /// that takes a few places at a time and releases the lock between them delays the aggregator by microseconds only. A series
    /// is always copied whole.
    #[must_use]
    pub fn series(&self, window: Window, places: Range<usize>) -> Vec<SeriesSnapshot> {
        let selection = self.calendar.select(window);
        let places = places.start.min(self.series.len())..places.end.min(self.series.len());
        self.series[places].iter().filter_map(|series| self.copy(series, window, &selection)).collect()
    }

    fn copy(&self, series: &Series, window: Window, selection: &Selection) -> Option<SeriesSnapshot> {
        let (figures, counts) = series.read(window, selection);
        let (key, facts) = (series.key, series.facts);
        let Labels { routes, models, upstreams, optima, .. } = &*self.labels;
        let (route, model, upstream) = (routes.text(key.route), models.text(key.model), upstreams.text(key.upstream));
        if figures.count() == 0 {
            return None;
        }
        let of = self.polled_key(series);
        let polled = of.and_then(|of| self.polled.get(of, window, selection));
        let batch = of.and_then(|of| self.polled.batch(of, self.calendar.last()));
        let optimum = facts.optimum.map(|optimum| optima.text(optimum));
        let (exemplars, budget, opened) = (series.exemplars.list(self.calendar.last()), series.budget, series.opened);
        Some(SeriesSnapshot {
            key,
            route,
            model,
            upstream,
            optimum,
            facts,
            figures,
            polled,
            batch,
            exemplars,
            budget,
            opened,
            counts,
        })
    }

    /// Adds what a poll of an upstream's statistics found; its batches are the latest until `valid_until`.
    pub fn record_polled(&mut self, key: PolledKey, interval: &PolledInterval, valid_until: Stamp) {
        self.polled.record(key, interval, valid_until);
    }

    /// What polls counted in `window`, each model once, in the order of their names.
    #[must_use]
    pub fn polled(&self, window: Window) -> Vec<PolledSnapshot> {
        let Labels { routes, models, upstreams, .. } = &*self.labels;
        let found = self.polled.read(window, &self.calendar.select(window));
        if found.is_empty() {
            return Vec::new();
        }
        let mut beside: FxHashMap<PolledKey, Vec<Arc<str>>> = FxHashMap::default();
        for series in &self.series {
            if let Some(key) = self.polled_key(series) {
                beside.entry(key).or_default().push(routes.text(series.key.route));
            }
        }
        let snapshot = |(key, totals): (PolledKey, PolledTotals)| {
            let mut routes = beside.remove(&key).unwrap_or_default();
            routes.sort();
            let (model, upstream) = (models.text(key.model), upstreams.text(key.upstream));
            PolledSnapshot { model, upstream, routes, totals, batch: self.polled.batch(key, self.calendar.last()) }
        };
        let mut all: Vec<_> = found.into_iter().map(snapshot).collect();
        all.sort_by(|a, b| (&a.model, &a.upstream).cmp(&(&b.model, &b.upstream)));
        all
    }

    /// The statistics that are shown with a series: those of its model, else those of the server as a whole; `None` if its requests
    /// ask the model for nothing (health checks, metadata).
    fn polled_key(&self, series: &Series) -> Option<PolledKey> {
        series.facts.primary?;
        let upstream = series.key.upstream;
        let own = Some(PolledKey { model: series.key.model, upstream });
        let whole = PolledKey { model: self.labels.no_model(), upstream };
        own.into_iter().chain([whole]).find(|key| self.polled.holds(*key))
    }

    /// The number of places: the most series that were in use at once, and `other`.
    #[must_use]
    pub fn places(&self) -> usize {
        self.series.len()
    }

    /// The time from the start of the window's first slot until now, in nanoseconds.
    #[must_use]
    pub fn covered_ns(&self, window: Window) -> u64 {
        self.calendar.select(window).start.elapsed()
    }

    /// The number of series in use without `other`, and the number of exchanges counted under `other` because there was no room.
    #[must_use]
    pub fn fill(&self) -> (usize, u64) {
        (self.places.len() - 1, self.overflowed)
    }

    /// The tables that the keys were interned in.
    #[must_use]
    pub const fn labels(&self) -> &Arc<Labels> {
        &self.labels
    }

    /// The bounds.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// At most `limit` exchanges in this order, shared and not copied.
    #[must_use]
    pub fn exchanges(&self, order: Order, limit: usize) -> Vec<Arc<Exchange>> {
        match order {
            Order::Recent => self.recent.iter().rev().take(limit).cloned().collect(),
            Order::Slowest => self.slowest.list(limit, Stamp::now()),
        }
    }
}

/// The budgets of a series: of its route, and of each of its requests.
fn budgets_of(config: &Config, labels: &Labels, key: SeriesKey) -> (RouteBudget, RequestLimits) {
    let (route, model) = (labels.routes.text(key.route), labels.models.text(key.model));
    let limits = RequestLimits::of(&config.budgets, &config.model_budgets, &route, &model);
    (RouteBudget::of(&config.budgets, &route), limits)
}

mod retire;

#[cfg(test)]
mod tests;
