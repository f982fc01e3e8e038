//! All series, the recent exchanges and the slowest. The aggregator alone records; queries copy out under the same lock.
//!
//! Bounded: `max_series` series and one called `other`, to which everything beyond goes; `recent` exchanges; `slowest`
//! for each of ten minutes. Never does I/O and reads no clock but to stamp its own opening.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::config::Config;
use super::counters::{Counter, Counters};
use super::labels::Labels;
use super::series::{Recorded, Series};
use super::slowest::Slowest;
use super::snapshot::{SeriesSnapshot, Snapshot};
use super::window::{Calendar, Selection, Window};
use crate::ledger::{Exchange, ExchangeKind, SeriesKey, Stamp};

/// How [`Registry::exchanges`] orders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The latest first.
    #[default]
    Recent,
    /// The slowest of the last ten minutes first; long-lived streams are not among them.
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

/// Everything that is measured per series.
#[derive(Debug)]
pub struct Registry {
    config: Config,
    labels: Arc<Labels>,
    counters: Arc<Counters>,
    places: FxHashMap<SeriesKey, u32>,
    /// The first is `other`.
    series: Vec<Series>,
    overflowed: u64,
    touched: Vec<u32>,
    calendar: Calendar,
    recent: VecDeque<Arc<Exchange>>,
    slowest: Slowest,
}

impl Registry {
    /// An empty registry; `labels` are the tables in which the keys were interned.
    #[must_use]
    pub fn new(config: Config, labels: Arc<Labels>, counters: Arc<Counters>) -> Self {
        let other = SeriesKey::default();
        Self {
            config,
            labels,
            counters,
            places: FxHashMap::from_iter([(other, 0)]),
            series: vec![Series::new(other)],
            overflowed: 0,
            touched: Vec::new(),
            calendar: Calendar::new(Stamp::now()),
            recent: VecDeque::with_capacity(config.recent_exchanges),
            slowest: Slowest::new(config.slowest_exchanges),
        }
    }

    /// Brings a series into the processor's caches, if it is there. Called for a batch before its exchanges are recorded,
    /// so that the misses of the batch overlap instead of following one another; with thousands of series that is half of
    /// the cost.
    pub fn warm(&self, key: SeriesKey) {
        if let Some(place) = self.places.get(&key) {
            self.series[*place as usize].warm();
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
        match u32::try_from(self.series.len()) {
            Ok(place) if self.series.len() <= self.config.max_series => {
                self.series.push(Series::new(key));
                self.places.insert(key, place);
                place
            }
            _ => {
                self.overflowed += 1;
                0
            }
        }
    }

    /// Records an exchange and keeps it among the recent, and if it is slow among the slowest. `behind` is how many
    /// exchanges are known to follow at once: where they would push it out of the recent anyway, it is not put there.
    pub fn keep(&mut self, exchange: Exchange, now: Stamp, behind: usize) {
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

    /// Closes a slot of time. To be called every 2 s; costs some microseconds for each series with traffic since the last.
    pub fn rotate(&mut self, now: Stamp) {
        let (number, roll) = self.calendar.rotate(now);
        for place in self.touched.drain(..) {
            self.series[place as usize].rotate(number);
        }
        if let Some(roll) = roll {
            self.series.iter_mut().for_each(|series| series.roll(&roll));
        }
    }

    /// Copies out every series with traffic in `window`. See [`Self::part`] for doing so in small pieces.
    #[must_use]
    pub fn snapshot(&self, window: Window) -> Snapshot {
        let mut series = self.part(window, 0..self.places());
        series.sort_by(|a, b| (&a.route, &a.model, &a.upstream).cmp(&(&b.route, &b.model, &b.upstream)));
        Snapshot { window, covered_ns: self.covered_ns(window), series }
    }

    /// Copies out the series at these places that have traffic in `window`. A reader that takes a few places at a time and
    /// lets go of the lock between them keeps the aggregator waiting for microseconds only; a series is never torn.
    #[must_use]
    pub fn part(&self, window: Window, places: Range<usize>) -> Vec<SeriesSnapshot> {
        let selection = self.calendar.select(window);
        let places = places.start.min(self.series.len())..places.end.min(self.series.len());
        self.series[places].iter().filter_map(|series| self.copy(series, window, &selection)).collect()
    }

    fn copy(&self, series: &Series, window: Window, selection: &Selection) -> Option<SeriesSnapshot> {
        let (figures, counts) = series.read(window, selection);
        let (key, facts) = (series.key, series.facts);
        let Labels { routes, models, upstreams } = &*self.labels;
        let (route, model, upstream) = (routes.text(key.route), models.text(key.model), upstreams.text(key.upstream));
        (figures.count() > 0).then_some(SeriesSnapshot { key, route, model, upstream, facts, figures, counts })
    }

    /// How many places [`Self::part`] has: the series in use and `other`.
    #[must_use]
    pub fn places(&self) -> usize {
        self.series.len()
    }

    /// From the begin of the window's first slot until now.
    #[must_use]
    pub fn covered_ns(&self, window: Window) -> u64 {
        self.calendar.select(window).start.elapsed()
    }

    /// How many series are in use besides `other`, and how many exchanges went to `other` for want of room.
    #[must_use]
    pub fn fill(&self) -> (usize, u64) {
        (self.series.len() - 1, self.overflowed)
    }

    /// The tables in which the keys were interned.
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

#[cfg(test)]
mod tests;
