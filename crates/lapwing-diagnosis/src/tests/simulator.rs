//! A model server in simulated time: arrivals, threads, stages and troubles from a seed. It knows which stage it slowed for which
//! request.

use std::sync::Arc;

use crate::random::SeededRandom;
use crate::{Diagnosis, Diagnostician};
use lapwing_ledger::{
    Annotation, Basis, Exchange, Ledger, ObservedEvent, Outcome, SeriesKey, Source, SpanNote, Stage, Stamp, TraceId, TracedSpan,
    Unit, UpstreamWindow,
};
use lapwing_metrics::Labels;

pub(crate) const MS: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1_000 * MS;
/// When a simulation starts.
const EPOCH: u64 = 1_000 * SECOND;

/// What is wrong, and how much is asked. Times are in nanoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Simulation {
    pub(crate) seed: u64,
    pub(crate) rate: f64,
    pub(crate) seconds: u64,
    pub(crate) threads: usize,
    /// How many come at once, and how often.
    pub(crate) bursts: Option<(u64, u64)>,
    /// For how long requests come, and for how long none do.
    pub(crate) idle: Option<(u64, u64)>,
    /// Everything in the server stands still for so long, so often.
    pub(crate) pauses: Option<(u64, u64)>,
    /// Everything in the server stands still for so long after idle time.
    pub(crate) cold_ns: u64,
    pub(crate) miss_rate: f64,
    /// So often the cache has lost nine tenths, for so long.
    pub(crate) emptied: Option<(u64, u64)>,
    pub(crate) per_miss_ns: u64,
    pub(crate) per_fetch_ns: u64,
    /// The share of long requests, and their rows.
    pub(crate) long: (f64, u64),
    /// The share of requests that a stage takes longer for, the stage, and how much longer.
    pub(crate) slowed: (f64, Stage, u64),
    /// The share of slow clients, and how much longer they read.
    pub(crate) slow_client: (f64, u64),
    pub(crate) round_trip_ns: u64,
    pub(crate) request_bytes: u64,
    pub(crate) bytes_per_second: f64,
    /// Whether head and body are written apart; one in this many is left without help.
    pub(crate) split: Option<u64>,
    /// Whether the server reports nothing.
    pub(crate) is_silent: bool,
    /// What this share of the requests has in addition to its time.
    pub(crate) habit: Option<(Annotation, f64)>,
    /// The budget, if there is one.
    pub(crate) p99: Option<&'static str>,
}

impl Simulation {
    /// A server with nothing wrong.
    pub(crate) fn healthy(seed: u64, rate: f64) -> Self {
        Self {
            seed,
            rate,
            seconds: 60,
            threads: 4,
            bursts: None,
            idle: None,
            pauses: None,
            cold_ns: 0,
            miss_rate: 0.05,
            emptied: None,
            per_miss_ns: MS / 4,
            per_fetch_ns: MS,
            long: (0.0, 0),
            slowed: (0.0, Stage::Forward, 0),
            slow_client: (0.0, 0),
            round_trip_ns: MS / 5,
            request_bytes: 2_000,
            bytes_per_second: 200e6,
            split: None,
            is_silent: false,
            habit: None,
            p99: Some("60ms"),
        }
    }
}

/// What a simulation gave.
pub(crate) struct Simulated {
    pub(crate) exchanges: Vec<Exchange>,
    /// By how much each was slowed on purpose, in nanoseconds.
    pub(crate) slowed_ns: Vec<u64>,
}

/// A source of random numbers with shapes.
struct Dice(SeededRandom);

impl Dice {
    fn uniform(&mut self) -> f64 {
        (self.0.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -(1.0 - self.uniform()).ln() * mean
    }

    /// About one, seldom below 0.6 or above 1.6.
    fn jitter(&mut self) -> f64 {
        let normal: f64 = (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0;
        (0.18 * normal).exp()
    }

    fn has(&mut self, share: f64) -> bool {
        self.uniform() < share
    }
}

fn arrivals(of: &Simulation, dice: &mut Dice) -> Vec<u64> {
    let end = of.seconds * SECOND;
    let (mut all, mut at) = (Vec::new(), 0.0);
    loop {
        at += dice.exponential(1e9 / of.rate);
        if at as u64 >= end {
            break;
        }
        all.push(at as u64);
    }
    if let Some((size, every)) = of.bursts {
        for burst in 1..=(end - 1) / every {
            all.extend((0..size).map(|_| burst * every - every / 2 + (dice.uniform() * 50e6) as u64));
        }
    }
    if let Some((busy, idle)) = of.idle {
        all.retain(|at| at % (busy + idle) < busy);
    }
    all.sort_unstable();
    all
}

/// When work of `ns` that begins at `at` ends, if the server stands still in between.
fn work(of: &Simulation, at: u64, ns: u64) -> u64 {
    let (mut at, mut left) = (at, ns);
    let mut still = |period: u64, from: u64, length: u64| {
        let phase = at % period;
        if phase >= from && phase < from + length {
            at += from + length - phase;
        }
        let phase = at % period;
        let next = if phase < from { from - phase } else { period - phase + from };
        if left > next {
            left += length;
        }
    };
    if let Some((length, every)) = of.pauses {
        still(every, every / 2, length);
    }
    if let (Some((busy, idle)), true) = (of.idle, of.cold_ns > 0) {
        still(busy + idle, 0, of.cold_ns);
    }
    at + left
}

/// Runs it.
#[allow(clippy::too_many_lines, reason = "one request's life, in order")]
pub(crate) fn simulate(of: &Simulation) -> Simulated {
    let mut dice = Dice(SeededRandom::new(of.seed * 7_919 + 17));
    let mut free = vec![0_u64; of.threads];
    let mut found = Simulated { exchanges: Vec::new(), slowed_ns: Vec::new() };
    let mut ends: Vec<u64> = Vec::new();
    for (n, arrived) in arrivals(of, &mut dice).into_iter().enumerate() {
        let is_long = dice.has(of.long.0);
        let rows = if is_long { of.long.1 } else { [1, 4, 8, 16][(dice.uniform() * 4.0) as usize] };
        let is_emptied = of.emptied.is_some_and(|(every, length)| arrived % every < length);
        let miss_rate = if is_emptied { 0.9 } else { of.miss_rate };
        let misses = (0..rows.min(16)).filter(|_| dice.has(miss_rate)).count() as u64;
        let fetch = if misses > 0 { of.per_fetch_ns } else { 0 };
        let mut stages = [
            (Stage::Hydration, MS / 5 + misses * of.per_miss_ns + fetch),
            (Stage::Preprocessing, MS / 5 + rows * MS / 200),
            (Stage::Forward, 3 * MS + rows * MS / 10),
            (Stage::Postprocessing, MS / 4),
        ]
        .map(|(stage, ns)| (stage, (ns as f64 * dice.jitter()) as u64));
        let mut slowed = 0;
        if dice.has(of.slowed.0) {
            slowed = (of.slowed.2 as f64 * dice.jitter()) as u64;
            stages.iter_mut().filter(|(stage, _)| *stage == of.slowed.1).for_each(|(_, ns)| *ns += slowed);
        }
        let ingress = 50_000 + (of.request_bytes as f64 / of.bytes_per_second * 1e9) as u64;
        let edge = (of.round_trip_ns as f64 * dice.jitter().sqrt()) as u64 / 2;
        let window_from = arrived + ingress;
        let reached = window_from + edge;
        let thread = (0..of.threads).min_by_key(|thread| free[*thread]).unwrap();
        let began = work(of, reached.max(free[thread]), 1);
        let mut spans = vec![(Stage::Queue, reached, began)];
        let mut at = began;
        for (stage, ns) in stages {
            let end = work(of, at, ns);
            spans.push((stage, at, end));
            at = end;
        }
        free[thread] = at;
        let is_unhelped = of.split.is_some_and(|every| (n as u64).is_multiple_of(every));
        let gap = of.split.map_or(0, |_| if is_unhelped { 40 * MS } else { MS / 10 });
        let window_to = at + edge + gap;
        let client = if dice.has(of.slow_client.0) { (of.slow_client.1 as f64 * dice.jitter()) as u64 } else { 0 };
        let ended = window_to + client + 30_000;
        ends.retain(|end| *end > arrived);
        ends.push(ended);
        let stamp = |ns: u64| Stamp::default().plus(EPOCH + ns);
        let mut ledger = Ledger::open(stamp(arrived), 0);
        ledger.outcome = Outcome::Ok;
        ledger.trace = TraceId((n as u128 + 1).to_be_bytes());
        ledger.total_ns = ended - arrived;
        ledger.window = Some(UpstreamWindow {
            start_ns: window_from - arrived,
            head_ns: window_to - gap - arrived,
            end_ns: window_to - arrived,
        });
        ledger.work.primary = Some(Unit::Row);
        ledger.work.set(Unit::Row, rows, Basis::Counted);
        (ledger.request_bytes, ledger.response_bytes) = (of.request_bytes, 40_000);
        let seen = &mut ledger.circumstances;
        seen.in_flight = ends.len() as u32;
        (seen.cache_misses, seen.cache_hits) = (misses as u32, rows.min(16) as u32 - misses as u32);
        seen.body_gap_ns = gap;
        if of.split.is_some() {
            seen.annotations.add(Annotation::SplitWrite);
            seen.annotations.add(if is_unhelped { Annotation::Unhelped } else { Annotation::QuickAck });
        }
        let habit = of.habit.filter(|(_, share)| dice.has(*share));
        habit.into_iter().for_each(|(annotation, _)| seen.annotations.add(annotation));
        ledger.observe(Stage::Egress, ObservedEvent::Backpressure, stamp(window_to), stamp(window_to + client));
        let mut exchange = Exchange::of(ledger);
        let account = &mut exchange.account;
        account.add(Stage::Ingress, Source::Observed, ingress);
        account.add(Stage::Egress, Source::Observed, client + 30_000);
        if of.is_silent {
            account.add(Stage::Upstream, Source::Observed, window_to - window_from);
        } else {
            account.add(Stage::Unattributed, Source::Observed, window_to - window_from - (at - reached));
            exchange.claimed_ns = at - reached;
            for (stage, from, to) in spans {
                account.add(stage, Source::Traced, to - from);
                let offset = |ns: u64| (ns - arrived) as i64;
                let (name, start_ns, end_ns) = (stage.name().into(), offset(from), offset(to));
                exchange.traced.push(TracedSpan {
                    name,
                    stage: Some(stage),
                    phase: None,
                    start_ns,
                    end_ns,
                    depth: 1,
                    note: SpanNote::default(),
                });
            }
        }
        assert_eq!(exchange.account.total_ns(), exchange.ledger.total_ns);
        found.exchanges.push(exchange);
        found.slowed_ns.push(slowed.max(client));
    }
    found
}

/// A diagnostician with the simulation's budget.
pub(crate) fn diagnostician(of: &Simulation) -> (Diagnostician, SeriesKey) {
    let labels = Arc::new(Labels::new(300, 10, 10));
    let route = labels.routes.intern("POST /v2/models/ranker/infer");
    let key = SeriesKey { route, model: labels.models.intern("ranker"), upstream: labels.upstreams.intern("http://m:8000") };
    let budgets = of.p99.map(|p99| ("*".to_owned(), serde_json::from_value(serde_json::json!({ "p99": p99 })).unwrap()));
    (Diagnostician::new(budgets.into_iter().collect(), labels), key)
}

/// Records all exchanges in the order in which they end, and lets time pass as it did.
pub(crate) fn record(diagnostician: &mut Diagnostician, key: SeriesKey, mut exchanges: Vec<Exchange>) -> Stamp {
    let ended = |exchange: &Exchange| exchange.ledger.started.plus(exchange.ledger.total_ns);
    exchanges.sort_by_key(ended);
    let mut now = Stamp::default();
    for mut exchange in exchanges {
        exchange.ledger.series = key;
        now = now.max(ended(&exchange)).plus(MS);
        diagnostician.record(&exchange, now);
        diagnostician.tick(now);
    }
    now
}

/// The diagnosis at the end of a simulation.
pub(crate) fn diagnose(of: &Simulation) -> Diagnosis {
    let (mut diagnostician, key) = diagnostician(of);
    let now = record(&mut diagnostician, key, simulate(of).exchanges);
    diagnostician.diagnose(crate::MAX_WINDOW_NS, now)
}
