//! Learns what requests take from those that were answered, and how many an upstream works on at once.
//!
//! A window at an upstream is waiting there and service. With `c` slots that are taken in order, a request begins when all but `c` − 1 of
//! those sent before it have ended, so each `c` says when each service began: the one is chosen by which times follow their work most
//! closely. It must do so much better than windows as they are, or the upstream does not work one by one, and nothing waits in front of it.
//! Requests that waited in Lapwing's own queue say the same: only the time after it counts.

use std::collections::{BTreeMap, VecDeque};

use lapwing_ledger::{Stamp, Work};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::ask::HedgeSettings;
use crate::service::{NoWindow, RatioQuantiles, ServiceLine, ServiceModels, SlotsOf, WorkSeries, class_of};

/// How many of an upstream's latest requests are kept.
const KEPT: usize = 2_048;
/// For how long, in nanoseconds.
const KEPT_NS: u64 = 600_000_000_000;
/// How many it takes.
const NEEDED: usize = 64;
/// How many of them must have met another, and which share.
const NEEDED_MET: usize = 24;
const NEEDED_MET_SHARE: f64 = 0.03;
/// The most slots that are looked for.
const MAX_SLOTS: usize = 16;
/// A server works one by one if times are no further from its line than this, and by this factor closer than windows as they are.
const MAX_UNEXPLAINED: f64 = 0.5;
const MUST_EXPLAIN: f64 = 0.8;
/// So much worse an explanation is as good as the best.
const AS_WELL: f64 = 1.2;
/// Who takes less than this part of its time ended together with another: it was in one batch with it. Few may, by the time that they should
/// take: on a busy machine ends are noted late, and then short requests seem to end together; in a batch long ones do too.
const TOGETHER: f64 = 0.1;
const MAX_TOGETHER: f64 = 0.015;
/// How many requests a class of work needs for quantiles of its own.
const NEEDED_IN_CLASS: usize = 40;

/// A request that an upstream answered.
#[derive(Clone, Copy, Debug)]
pub struct Departure {
    /// What it was.
    pub series: WorkSeries,
    /// Who answered it, by its place.
    pub upstream: usize,
    /// How much it asked for.
    pub units: u64,
    /// When it came.
    pub arrived: Stamp,
    /// When the upstream had all of it.
    pub sent: Stamp,
    /// When its answer had come.
    pub ended: Stamp,
    /// When its client wanted the answer at the latest.
    pub deadline: Option<Stamp>,
    /// What became of the answer.
    pub end: DepartureEnd,
}

/// What became of the answer to a request that an upstream worked on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DepartureEnd {
    /// Its client was given it.
    #[default]
    Given,
    /// Another upstream had answered before: it is no request of its own.
    Lost,
    /// The same, and the upstream was told to stop: it would have taken longer.
    Stopped,
}

/// Learns from requests as they end.
#[derive(Debug)]
pub struct ServiceLearner {
    kept: BTreeMap<usize, VecDeque<Departure>>,
    /// The slots that each upstream was last seen to have.
    seen: BTreeMap<usize, u32>,
    given_slots: Option<u32>,
    /// That of [`RatioQuantiles::hedge`].
    hedge_quantile: f64,
}

impl Default for ServiceLearner {
    fn default() -> Self {
        let hedge_quantile = HedgeSettings::default().quantile;
        Self { kept: BTreeMap::new(), seen: BTreeMap::new(), given_slots: None, hedge_quantile }
    }
}

impl ServiceLearner {
    /// The share of requests, in `0..1`, that take no longer than what has one sent a second time.
    pub const fn set_hedge_quantile(&mut self, quantile: f64) {
        self.hedge_quantile = quantile;
    }

    /// Takes the number of slots as given, or finds it out.
    pub fn set_slots(&mut self, given: Option<u32>) {
        self.given_slots = given;
    }

    /// Takes a request that was answered.
    pub fn take(&mut self, departure: Departure) {
        let kept = self.kept.entry(departure.upstream).or_default();
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back(departure);
    }

    /// Forgets what has no name any more.
    pub fn retain(&mut self, holds: impl Fn(WorkSeries) -> bool) {
        self.kept.values_mut().for_each(|kept| kept.retain(|one| holds(one.series)));
    }

    /// The latest requests of each upstream, in the order in which they were sent.
    pub(crate) fn by_upstream(&self, now: Stamp) -> impl Iterator<Item = (usize, Vec<Departure>)> {
        self.kept.iter().map(move |(upstream, kept)| {
            let mut latest: Vec<Departure> =
                kept.iter().filter(|one| now.since(one.ended) <= KEPT_NS && one.ended > one.sent).copied().collect();
            latest.sort_unstable_by_key(|one| one.sent);
            (*upstream, latest)
        })
    }

    /// What is known at `now`.
    pub fn learn(&mut self, now: Stamp) -> ServiceModels {
        let mut upstreams = Vec::new();
        let mut samples: FxHashMap<WorkSeries, Vec<Sample>> = FxHashMap::default();
        let all: Vec<_> = self.by_upstream(now).collect();
        for (upstream, latest) in all {
            let found = match self.given_slots {
                Some(given) if latest.len() >= NEEDED => Ok(given),
                _ => find_slots(&latest),
            };
            let slots = match found {
                Ok(slots) => {
                    self.seen.insert(upstream, slots);
                    Ok(slots)
                }
                // what it has shown holds while nothing contradicts it
                Err(NoWindow::NoWaitingSeen { .. } | NoWindow::TooFewRequests { .. }) if self.seen.contains_key(&upstream) => {
                    self.seen.get(&upstream).copied().ok_or(NoWindow::NoWaitingSeen { share: 0.0 })
                }
                Err(why) => {
                    self.seen.remove(&upstream);
                    Err(why)
                }
            };
            if let Ok(slots) = slots {
                let place = upstreams.len();
                let whole =
                    latest.iter().zip(services(&latest, slots as usize)).filter(|(one, _)| one.end != DepartureEnd::Stopped);
                for (one, ns) in whole {
                    samples.entry(one.series).or_default().push(Sample { units: units(one), ns, upstream: place });
                }
            }
            upstreams.push(SlotsOf { upstream, slots, speed: 1.0 });
        }
        let lines = pool(samples, &mut upstreams, self.hedge_quantile);
        ServiceModels { made: now, lines, upstreams, agreeing: FxHashSet::default() }
    }
}

/// A service time.
#[derive(Clone, Copy, Debug)]
struct Sample {
    units: f64,
    ns: f64,
    upstream: usize,
}

#[allow(clippy::cast_precision_loss, reason = "work is below 2^52")]
const fn units(one: &Departure) -> f64 {
    one.units as f64
}

/// What each request of an upstream took once it was worked on, in nanoseconds, if it has so many slots and takes requests in the order in which they
/// were sent.
#[allow(clippy::cast_precision_loss, reason = "times below years")]
pub(crate) fn services(sent_in_order: &[Departure], slots: usize) -> Vec<f64> {
    // the latest ends of those before, as many as there are slots, the earliest of these first
    let mut busy: VecDeque<Stamp> = VecDeque::new();
    let service = |one: &Departure| {
        // as many slots as requests: nobody waits
        if slots >= sent_in_order.len() {
            return one.ended.since(one.sent) as f64;
        }
        let began = if busy.len() < slots { one.sent } else { busy.front().map_or(one.sent, |free| one.sent.max(*free)) };
        let place = busy.partition_point(|end| *end < one.ended);
        busy.insert(place, one.ended);
        if busy.len() > slots {
            busy.pop_front();
        }
        one.ended.since(began) as f64
    };
    sent_in_order.iter().map(service).collect()
}

/// How many requests an upstream works on at once, by its requests in the order in which they were sent.
fn find_slots(latest: &[Departure]) -> Result<u32, NoWindow> {
    if latest.len() < NEEDED {
        return Err(NoWindow::TooFewRequests { seen: latest.len(), needed: NEEDED });
    }
    let (met, most) = meetings(latest);
    let count = met.iter().filter(|met| **met).count();
    #[allow(clippy::cast_precision_loss, reason = "at most KEPT")]
    let share = count as f64 / latest.len() as f64;
    if count < NEEDED_MET || share < NEEDED_MET_SHARE {
        return Err(NoWindow::NoWaitingSeen { share });
    }
    let unexplained = |slots: usize| {
        let times = services(latest, slots);
        let mut by_series: FxHashMap<WorkSeries, Vec<(f64, f64)>> = FxHashMap::default();
        for (one, ns) in latest.iter().zip(&times) {
            by_series.entry(one.series).or_default().push((units(one), *ns));
        }
        let lines: FxHashMap<_, _> = by_series.iter().map(|(series, samples)| (*series, fit_line(samples))).collect();
        let of_those_who_met = latest.iter().zip(&times).zip(&met).filter(|(_, met)| **met);
        let expected = of_those_who_met.filter_map(|((one, ns), _)| Some((lines.get(&one.series)?.at(units(one)), *ns)));
        let expected: Vec<(f64, f64)> = expected.collect();
        let all: f64 = expected.iter().map(|(line, _)| line).sum();
        let together: f64 = expected.iter().filter(|(line, ns)| ns / line < TOGETHER).map(|(line, _)| line).sum();
        let off = trimmed_mean(expected.iter().map(|(line, ns)| (ns / line - 1.0).abs()).collect());
        (off, together / all.max(f64::MIN_POSITIVE))
    };
    let as_they_are = unexplained(latest.len()).0;
    let candidates: Vec<_> = (1..=MAX_SLOTS.min(most.saturating_sub(1))).map(|slots| (slots, unexplained(slots))).collect();
    let least = candidates.iter().map(|(_, (off, _))| *off).fold(f64::INFINITY, f64::min);
    // with more slots than there are, times include waiting, which is smoother than service: the fewest that explain as much
    let best = candidates.iter().find(|(_, (off, _))| *off <= AS_WELL * least);
    match best {
        Some((slots, (off, together)))
            if *off <= MAX_UNEXPLAINED && *off <= MUST_EXPLAIN * as_they_are && *together <= MAX_TOGETHER =>
        {
            Ok(u32::try_from(*slots).unwrap_or(u32::MAX))
        }
        _ => Err(NoWindow::NotOneByOne { unexplained: least }),
    }
}

/// Which requests were sent while another was there, and how many were there at most.
fn meetings(latest: &[Departure]) -> (Vec<bool>, usize) {
    let mut there: Vec<Stamp> = Vec::new();
    let mut most = 0;
    let meets = |one: &Departure| {
        there.retain(|end| *end > one.sent);
        let meets = !there.is_empty();
        there.push(one.ended);
        most = most.max(there.len());
        meets
    };
    (latest.iter().map(meets).collect(), most)
}

/// A line through service times.
#[derive(Clone, Copy, Debug)]
struct Line {
    fixed: f64,
    per_unit: f64,
}

impl Line {
    fn at(self, units: f64) -> f64 {
        (self.fixed + self.per_unit * units).max(1e3)
    }

    fn off(self, units: f64, ns: f64) -> f64 {
        (ns / self.at(units) - 1.0).abs()
    }
}

/// The line of which times differ least in proportion, by least squares that are weighted anew some times: outliers count less and less.
fn fit_line(samples: &[(f64, f64)]) -> Line {
    let mean = samples.iter().map(|(_, ns)| ns).sum::<f64>() / (samples.len().max(1) as f64);
    let mut line = Line { fixed: mean, per_unit: 0.0 };
    for round in 0..6 {
        let mut sums = [0.0; 5];
        for (units, ns) in samples {
            let expected = line.at(*units);
            let weight = if round == 0 { 1.0 } else { (0.5 / line.off(*units, *ns).max(1e-9)).min(1.0) / (expected * expected) };
            for (sum, term) in sums.iter_mut().zip([1.0, *units, *ns, units * units, units * ns]) {
                *sum += weight * term;
            }
        }
        let [n, x, y, xx, xy] = sums;
        let spread = n * xx - x * x;
        // with one amount of work, all of it is fixed
        let per_unit = if spread > 1e-9 * n * xx { ((n * xy - x * y) / spread).max(0.0) } else { 0.0 };
        let fixed = (y - per_unit * x) / n.max(f64::MIN_POSITIVE);
        line = if fixed < 0.0 && xx > 0.0 { Line { fixed: 0.0, per_unit: xy / xx } } else { Line { fixed, per_unit } };
    }
    line
}

/// The mean without the greatest twentieth.
#[allow(clippy::cast_precision_loss, reason = "at most KEPT")]
fn trimmed_mean(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.truncate(values.len() - values.len() / 20);
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn quantile(sorted: &[f64], q: f64) -> f64 {
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most KEPT")]
    let at = (q * sorted.len() as f64) as usize;
    sorted.get(at.min(sorted.len().saturating_sub(1))).copied().unwrap_or(1.0)
}

/// A line for each series over the times of all upstreams, whose speeds are fitted too.
fn pool(
    samples: FxHashMap<WorkSeries, Vec<Sample>>,
    upstreams: &mut [SlotsOf],
    hedge_quantile: f64,
) -> FxHashMap<WorkSeries, ServiceLine> {
    let lines: FxHashMap<_, _> = samples.iter().map(|(series, all)| (*series, line_of(all, upstreams))).collect();
    let mut ratios = vec![Vec::new(); upstreams.len()];
    for (series, all) in &samples {
        all.iter().for_each(|one| ratios[one.upstream].push(one.ns / lines[series].at(one.units)));
    }
    for (upstream, mut ratios) in upstreams.iter_mut().zip(ratios) {
        ratios.sort_unstable_by(f64::total_cmp);
        upstream.speed = 1.0 / quantile(&ratios, 0.5).clamp(1e-3, 1e3);
    }
    // 1 is the mean of those who say anything
    let known: Vec<f64> = upstreams.iter().filter(|one| one.slots.is_ok()).map(|one| one.speed).collect();
    #[allow(clippy::cast_precision_loss, reason = "at most 16")]
    let mean = known.iter().sum::<f64>() / known.len().max(1) as f64;
    upstreams.iter_mut().filter(|one| one.slots.is_ok()).for_each(|one| one.speed /= mean);
    samples
        .into_iter()
        .filter(|(_, all)| all.len() >= NEEDED)
        .map(|(series, all)| (series, described(&all, upstreams, hedge_quantile)))
        .collect()
}

fn line_of(all: &[Sample], upstreams: &[SlotsOf]) -> Line {
    let times: Vec<_> = all.iter().map(|one| (one.units, one.ns * upstreams[one.upstream].speed)).collect();
    fit_line(&times)
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "amounts of work")]
fn described(all: &[Sample], upstreams: &[SlotsOf], hedge_quantile: f64) -> ServiceLine {
    let line = line_of(all, upstreams);
    let mut by_class = vec![Vec::new(); Work::CLASSES];
    for one in all {
        by_class[class_of(one.units as u64)].push(one.ns * upstreams[one.upstream].speed / line.at(one.units));
    }
    let quantiles = |mut ratios: Vec<f64>| {
        ratios.sort_unstable_by(f64::total_cmp);
        RatioQuantiles { hedge: quantile(&ratios, hedge_quantile), q99: quantile(&ratios, 0.99) }
    };
    let whole = quantiles(by_class.iter().flatten().copied().collect());
    let unexplained = trimmed_mean(by_class.iter().flatten().map(|ratio| (ratio - 1.0).abs()).collect());
    let of_class = |ratios: Vec<f64>| if ratios.len() < NEEDED_IN_CLASS { whole } else { quantiles(ratios) };
    let ratios = by_class.into_iter().map(of_class).collect();
    ServiceLine { fixed_ns: line.fixed, per_unit_ns: line.per_unit, samples: all.len(), unexplained, ratios }
}
