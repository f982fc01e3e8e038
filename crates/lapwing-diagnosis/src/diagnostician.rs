//! Keeps what is needed of each exchange and diagnoses from it.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::block::{BLOCK_NS, BLOCKS};
use super::bound::LatencyBound;
use super::gaps::{GapWatch, SeriesGaps, TelemetryGap, TelemetrySources};
use super::host::{HostReading, HostTimeline};
use super::inference::{MAX_INFERRED, PendingDiagnosis, UpstreamWindows};
use super::judgement::Judged;
use super::outcomes;
use super::report::{Diagnosis, RouteDiagnosis, Status};
use super::store::SeriesStore;
use super::text::percent;
use super::{MAX_RECORDS, MAX_SERIES, MAX_SERIES_RECORDS, MAX_WINDOW_NS};
use lapwing_ledger::{Exchange, SeriesKey, Stamp};
use lapwing_metrics::{Budget, Labels, RouteBudget};

/// The window of the diagnoses whose changes are logged, in nanoseconds.
const LOG_WINDOW_NS: u64 = 60_000_000_000;
/// The least time between two lines of one series, in nanoseconds.
const LOG_EVERY_NS: u64 = 60_000_000_000;
/// How often a series is examined for the log, in nanoseconds.
const EXAMINE_EVERY_NS: u64 = 15_000_000_000;

/// Time above the budget of a series since the start, by what is to blame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BoundTotals {
    /// The series.
    pub series: SeriesKey,
    /// Seconds above the budget that each bound explains, in the order of [`LatencyBound::ALL`]. Their sum is less than `excess_seconds` by
    /// the time that lies in servers which report nothing of it.
    pub bound_seconds: [f64; LatencyBound::ALL.len()],
    /// Seconds above the budget, of all requests that took longer.
    pub excess_seconds: f64,
}

/// Records exchanges and diagnoses. The aggregator's thread records; a thread that asks for a diagnosis holds the lock meanwhile.
///
/// The totals are counted against the route's budget of the 99th percentile, else p999, p90 or p50. They only grow, and add up over
/// processes.
#[derive(Debug)]
pub struct Diagnostician {
    labels: Arc<Labels>,
    budgets: BTreeMap<String, Budget>,
    series: FxHashMap<SeriesKey, SeriesStore>,
    /// How many of the slowest and how many others a block may hold.
    each: [usize; 2],
    /// The series in the order in which they are examined for the log.
    order: Vec<SeriesKey>,
    next: usize,
    evicted: u64,
    host: HostTimeline,
    /// What is missing, where its sources are known.
    gaps: Option<GapWatch>,
    gaps_examined_at: Stamp,
}

impl Diagnostician {
    /// Judges by `budgets`, by route.
    #[must_use]
    pub fn new(budgets: BTreeMap<String, Budget>, labels: Arc<Labels>) -> Self {
        let evicted = labels.evicted();
        Self {
            labels,
            budgets,
            series: FxHashMap::default(),
            each: each_of(1),
            order: Vec::new(),
            next: 0,
            evicted,
            host: HostTimeline::default(),
            gaps: None,
            gaps_examined_at: Stamp::default(),
        }
    }

    /// Finds what is missing there.
    #[must_use]
    pub fn watching(self, sources: TelemetrySources) -> Self {
        Self { gaps: Some(GapWatch::new(sources)), ..self }
    }

    /// Takes a merged exchange of a client: how it ended, and its time if it was answered in full and is no long-lived stream. Copies for
    /// shadow targets are left out.
    pub fn record(&mut self, exchange: &Exchange, now: Stamp) {
        let ledger = &exchange.ledger;
        if ledger.is_copy {
            return;
        }
        let mut key = ledger.series;
        if !self.series.contains_key(&key) {
            key = self.opened(key, ledger.started.min(now), now);
        }
        if let Some(series) = self.series.get_mut(&key) {
            series.record(exchange, self.each, now);
        }
    }

    /// Opens the series of `key`, or the one of all that there is no room for. Returns its key.
    #[cold]
    fn opened(&mut self, key: SeriesKey, first: Stamp, now: Stamp) -> SeriesKey {
        let key = if self.series.len() < MAX_SERIES { key } else { SeriesKey::default() };
        if !self.series.contains_key(&key) {
            self.add_series(key, first, now);
        }
        key
    }

    fn add_series(&mut self, key: SeriesKey, first: Stamp, now: Stamp) {
        let budget = RouteBudget::of(&self.budgets, &self.labels.routes.text(key.route));
        self.series.insert(key, SeriesStore::new(budget, first, now));
        self.order.push(key);
        self.fit();
    }

    /// Gives each series its share of the records.
    fn fit(&mut self) {
        let each = each_of(self.series.len());
        let is_less = each < self.each;
        self.each = each;
        if is_less {
            self.series.values_mut().for_each(|series| series.shrink(each));
        }
    }

    /// Whether the machine's load is to be read.
    #[must_use]
    pub fn wants_host(&self, now: Stamp) -> bool {
        self.host.is_due(now)
    }

    /// Takes what the kernel says about the machine's processors.
    pub fn take_host(&mut self, reading: HostReading, now: Stamp) {
        self.host.take(reading, now);
    }

    /// Finds what is missing, and returns lines for the log: one for each cause, once.
    pub fn tick_gaps(&mut self, now: Stamp) -> Vec<String> {
        let Some(gaps) = &mut self.gaps else { return Vec::new() };
        gaps.tick(now);
        if now.since(self.gaps_examined_at) < EXAMINE_EVERY_NS {
            return Vec::new();
        }
        self.gaps_examined_at = now;
        let found = self.missing(LOG_WINDOW_NS, now);
        self.gaps.as_mut().map_or_else(Vec::new, |gaps| gaps.take_for_log(&found))
    }

    /// What is missing in the last `window_ns` nanoseconds.
    fn missing(&self, window_ns: u64, now: Stamp) -> Vec<TelemetryGap> {
        let Some(gaps) = &self.gaps else { return Vec::new() };
        let mut all = SeriesGaps::default();
        for series in self.series.values() {
            let sums = series.outcomes(window_ns, now);
            all.well += sums.well;
            all.ended += sums.ended;
            all.unread.iter_mut().zip(sums.unread).for_each(|(sum, count)| *sum += count);
            all.server = all.server.or(series.server().filter(|_| sums.ended > 0));
        }
        gaps.find(&all, Stamp::default().plus(now.as_ns().saturating_sub(window_ns)))
    }

    /// Lets time pass: drops what is too old, measures anew what requests usually take, and returns lines for the log where a first
    /// verdict has changed. It examines one series, so that a call takes at most a few milliseconds; a series is examined every 15 s
    /// at most, and has at most one line a minute.
    pub fn tick(&mut self, now: Stamp) -> Vec<String> {
        if self.labels.evicted() != self.evicted {
            self.retain_named();
        }
        if self.order.is_empty() {
            return Vec::new();
        }
        self.next = (self.next + 1) % self.order.len();
        let key = self.order[self.next];
        let Some(series) = self.series.get_mut(&key) else { return Vec::new() };
        series.expire(now);
        series.expire_windows(now);
        series.refresh(now);
        if now.since(series.examined_at) < EXAMINE_EVERY_NS || series.is_empty() {
            return Vec::new();
        }
        series.examined_at = now;
        let judged = self.judge_series(key, LOG_WINDOW_NS, now);
        let (Some(Judged { said, bounds }), Some(series)) = (judged, self.series.get_mut(&key)) else { return Vec::new() };
        series.set_bounds(bounds);
        if series.takes_for_log(&said, now, LOG_EVERY_NS) { vec![line(&said)] } else { Vec::new() }
    }

    /// Diagnoses every series of the last `window_ns` nanoseconds, at most [`MAX_WINDOW_NS`]: those that fail first, then the one that lost
    /// most time.
    /// Nothing is inferred; [`Self::examine`] leads to that.
    #[must_use]
    pub fn diagnose(&self, window_ns: u64, now: Stamp) -> Diagnosis {
        self.examine(window_ns, now).diagnosis
    }

    /// The same, with what is to be inferred from, so that it can be inferred after this was given up.
    #[must_use]
    pub fn examine(&self, window_ns: u64, now: Stamp) -> PendingDiagnosis {
        let window_ns = window_ns.min(MAX_WINDOW_NS);
        let said = self.series.keys().filter_map(|key| Some((*key, self.judge_series(*key, window_ns, now)?.said)));
        let mut routes: Vec<(SeriesKey, RouteDiagnosis)> = said.collect();
        let lost = |route: &RouteDiagnosis| route.budget.as_ref().map_or(0, |budget| budget.excess_ns);
        let rank = |status| match status {
            Status::Failing | Status::OverBudget => 0,
            Status::SlowTail => 1,
            Status::NotEnoughEvidence => 2,
            Status::Healthy => 3,
        };
        // requests that a series fails, if enough do that it counts as failing
        let failed = |route: &RouteDiagnosis| {
            let is_failing = route.status == Status::Failing;
            if is_failing { route.outcomes.ended - route.outcomes.well } else { 0 }
        };
        routes.sort_by(|(_, a), (_, b)| {
            let by_loss = failed(b)
                .cmp(&failed(a))
                .then(lost(b).cmp(&lost(a)))
                .then(rank(a.status).cmp(&rank(b.status)))
                .then(b.requests.cmp(&a.requests));
            by_loss.then_with(|| (&a.route, &a.model, &a.upstream).cmp(&(&b.route, &b.model, &b.upstream)))
        });
        let windows = routes.iter().enumerate().filter_map(|(place, (key, said))| {
            let windows = self.series.get(key)?.windows()?;
            windows.says_something(said).then(|| (place, windows.clone()))
        });
        let windows = windows.take(MAX_INFERRED).collect();
        let routes = routes.into_iter().map(|(_, said)| said).collect();
        let diagnosis = Diagnosis {
            window_seconds: window_ns as f64 / 1e9,
            missing: self.missing(window_ns, now),
            levers: Vec::new(),
            routes,
            host: self.host.mean(now.as_ns().saturating_sub(window_ns) / BLOCK_NS),
            connections: None,
        };
        PendingDiagnosis { diagnosis, windows }
    }

    /// The series of which something is inferred, because their upstream reports nothing or they have a budget: at most
    /// [`MAX_INFERRED`], those with most requests.
    #[must_use]
    pub fn inferable(&self) -> Vec<SeriesKey> {
        let named = self.series.iter().filter(|(key, _)| **key != SeriesKey::default());
        let of = |(key, series): (&SeriesKey, &SeriesStore)| {
            let windows = series.windows()?;
            (windows.is_unreported() || series.has_budget()).then(|| (std::cmp::Reverse(windows.samples()), *key))
        };
        let mut by_requests: Vec<_> = named.filter_map(of).collect();
        by_requests.sort_unstable();
        by_requests.into_iter().take(MAX_INFERRED).map(|(_, key)| key).collect()
    }

    /// A copy of a series' upstream windows, and its budget, so that something can be inferred of it after this was given up.
    #[must_use]
    pub fn windows_of(&self, key: SeriesKey) -> Option<(UpstreamWindows, RouteBudget)> {
        let series = self.series.get(&key)?;
        Some((series.windows()?.clone(), series.budget()))
    }

    /// `None` for a series without requests in the window.
    fn judge_series(&self, key: SeriesKey, window_ns: u64, now: Stamp) -> Option<Judged> {
        let series = self.series.get(&key)?;
        let figures = series.figures(window_ns, now, Some(&self.host), key == SeriesKey::default());
        if figures.requests == 0 && figures.outcomes.ended == 0 {
            return None;
        }
        let route = self.labels.routes.text(key.route);
        let Judged { mut said, bounds } = figures.diagnose(&route);
        said.route = route.to_string();
        said.model = self.labels.models.text(key.model).to_string();
        said.upstream = self.labels.upstreams.text(key.upstream).to_string();
        Some(Judged { said, bounds })
    }

    /// Time above the budgets since the start, by what is to blame; of series that have a budget, in the order of their keys.
    #[must_use]
    pub fn totals(&mut self) -> Vec<BoundTotals> {
        self.series.values_mut().for_each(SeriesStore::bind);
        let judged = self.series.iter().filter(|(_, series)| series.has_budget() || series.excess_seconds > 0.0);
        let mut totals: Vec<_> = judged
            .map(|(key, series)| BoundTotals {
                series: *key,
                bound_seconds: series.bound_seconds,
                excess_seconds: series.excess_seconds,
            })
            .collect();
        totals.sort_by_key(|of_series| of_series.series);
        totals
    }

    /// Forgets series whose names gave way; their totals go on under `other`, so that nothing that was counted vanishes.
    pub fn retain_named(&mut self) {
        self.evicted = self.labels.evicted();
        let gone: Vec<SeriesKey> = self.series.keys().copied().filter(|key| self.labels.live(*key) != *key).collect();
        for key in gone {
            let Some(series) = self.series.remove(&key) else { continue };
            let heir = SeriesKey::default();
            if !self.series.contains_key(&heir) {
                self.add_series(heir, series.last_record, series.last_record);
            }
            if let Some(other) = self.series.get_mut(&heir) {
                other.inherit(&series);
            }
        }
        let series = &self.series;
        self.order.retain(|key| series.contains_key(key));
        self.fit();
    }

    /// How many records all series have room for.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.series.values().map(SeriesStore::capacity).sum()
    }
}

/// How many of the slowest and how many others a block of each of `series` series may hold: two thirds and one third.
fn each_of(series: usize) -> [usize; 2] {
    let records = (MAX_RECORDS / series.max(1)).min(MAX_SERIES_RECORDS) / BLOCKS;
    let others = (records / 3).max(1);
    [(records - others.min(records)).max(2), others]
}

fn line(said: &RouteDiagnosis) -> String {
    let names = if said.model.is_empty() { said.route.clone() } else { format!("{}, model {}", said.route, said.model) };
    let over = match said.status {
        Status::Failing => return format!("{names}: failing: {}", outcomes::summary(&said.outcomes)),
        Status::OverBudget => "over budget",
        Status::SlowTail => "a slow tail, without a budget",
        Status::NotEnoughEvidence => return format!("{names}: requests end well again"),
        _ if said.budget.is_none() => return format!("{names}: nothing wrong any more"),
        _ => return format!("{names}: within budget again"),
    };
    said.verdicts.first().map_or_else(String::new, |first| {
        format!("{names}: {over}, {}, {} sure: {}", first.bound.words(first.cause), percent(first.confidence), first.sentence)
    })
}
