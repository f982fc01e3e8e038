//! The profiler's cost of one exchange: ledger, merge, and record into one of 10 to 10,000 series. The ledger is filled on the
//! request path, the rest is done by the aggregator. `cargo bench --profile dist --bench record`; docs/BENCHMARKS.md has the
//! figures.
//!
//! A ledger has four observed spans, four reports, and 1 to 64 rows of 64 scalars in 1 KiB. Series are used in random order, so
//! with many of them each exchange finds its series outside of the caches. That is the worst case, because real traffic uses
//! some series more often.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use lapwing_ledger::merge;
use lapwing_ledger::{Basis, Ledger, ObservedEvent, Outcome, Report, ReportPlace, SeriesKey, Stage, Stamp, Unit, UpstreamWindow};
use lapwing_metrics::{Config, Counters, Labels, Registry};

const US: u64 = 1_000;
/// How many exchanges are recorded at a time, as by the aggregator.
const BATCH: u64 = 16;
/// Exchanges recorded into each series before measuring.
const WARM: usize = 20;

/// SplitMix64: chooses the next series, and how long its request took.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 8
    }

    /// A number within a tenth of `of`.
    fn around(&mut self, of: u64) -> u64 {
        of - of / 10 + self.next() % (of / 5)
    }
}

/// A closed ledger, as the request path passes it to the aggregator.
fn ledger(series: SeriesKey, random: &mut Random) -> Ledger {
    let started = Stamp::from_ns(1).unwrap_or_default();
    let mut ledger = Ledger::open(started, 1_795_246_795_000_000_000);
    let mut at = started;
    let mut observe = |ledger: &mut Ledger, stage, event, ns| {
        let end = at.plus(ns);
        ledger.observe(stage, event, at, end);
        at = end;
        ledger.offset(end)
    };
    observe(&mut ledger, Stage::Ingress, ObservedEvent::Request, random.around(40 * US));
    observe(&mut ledger, Stage::Validation, ObservedEvent::Admit, random.around(3 * US));
    let start_ns = observe(&mut ledger, Stage::Unattributed, ObservedEvent::Send, random.around(15 * US));
    let reports = [
        (Stage::Hydration, 700 * US),
        (Stage::Preprocessing, 400 * US),
        (Stage::Forward, 8_000 * US),
        (Stage::Postprocessing, 300 * US),
    ];
    let mut sum_ns = 0;
    for (stage, of) in reports {
        let duration_ns = random.around(of);
        sum_ns += duration_ns;
        ledger.report(Report::of(stage, duration_ns, ReportPlace::Head));
    }
    let end_ns = start_ns + sum_ns + random.around(100 * US);
    ledger.window = Some(UpstreamWindow { start_ns, head_ns: end_ns, end_ns });
    let (last, total_ns) = (started.plus(end_ns), end_ns + random.around(30 * US));
    ledger.observe(Stage::Egress, ObservedEvent::Response, last, started.plus(total_ns));
    let rows = 1 << (random.next() % 7);
    ledger.work.primary = Some(Unit::Row);
    ledger.work.set(Unit::Row, rows, Basis::Counted);
    ledger.work.set(Unit::Element, 64 * rows, Basis::Counted);
    (ledger.request_bytes, ledger.response_bytes) = (1_024, 256);
    (ledger.series, ledger.outcome, ledger.status, ledger.total_ns) = (series, Outcome::Ok, 200, total_ns);
    ledger
}

/// A registry with `n` series in use, and their keys.
fn registry(n: usize) -> (Registry, Vec<SeriesKey>) {
    let labels = Arc::new(Labels::new(n, n, 1));
    let key = |i: usize| SeriesKey {
        route: labels.routes.intern(&format!("POST /v2/models/{{model}}/{i}")),
        model: labels.models.intern("m"),
        upstream: labels.upstreams.intern("http://127.0.0.1:8000"),
    };
    let keys: Vec<SeriesKey> = (0..n).map(key).collect();
    let config = Config { max_series: n, max_routes: n, ..Config::default() };
    let mut registry = Registry::new(config, labels, Arc::new(Counters::default()));
    let mut random = Random(1);
    for key in keys.iter().cycle().take(n * WARM) {
        registry.record_recent(merge(ledger(*key, &mut random), Vec::new()), Stamp::now(), 0);
    }
    (registry, keys)
}

fn exchange(c: &mut Criterion) {
    let mut group = c.benchmark_group("exchange");
    let mut random = Random(2);
    group.bench_function("ledger", |b| b.iter(|| ledger(black_box(SeriesKey::default()), &mut random)));
    let closed = ledger(SeriesKey::default(), &mut random);
    group.bench_function("merge", |b| b.iter(|| merge(black_box(&closed).clone(), Vec::new())));
    for n in [10, 100, 1_000, 10_000] {
        let (mut registry, keys) = registry(n);
        let closed: Vec<Ledger> = (0..1_024).map(|_| ledger(SeriesKey::default(), &mut random)).collect();
        let now = Stamp::now();
        group.bench_function(BenchmarkId::new("merge_and_record", n), |b| {
            b.iter_custom(|iterations| {
                let batches = iterations.div_ceil(BATCH);
                let began = Stamp::now();
                for _ in 0..batches {
                    let batch: [Ledger; BATCH as usize] = std::array::from_fn(|_| {
                        let at = random.next() as usize;
                        let mut ledger = closed[at % closed.len()].clone();
                        ledger.series = keys[(at >> 10) % n];
                        ledger
                    });
                    batch.iter().for_each(|ledger| registry.warm(ledger.series));
                    for ledger in batch {
                        registry.record_recent(merge(ledger, Vec::new()), now, 0);
                    }
                }
                Duration::from_nanos(began.elapsed() * iterations / (batches * BATCH))
            });
        });
    }
    group.finish();
}

/// The cost of closing a time slot, for each series with traffic.
fn rotation(c: &mut Criterion) {
    let mut group = c.benchmark_group("rotation");
    let (mut registry, keys) = registry(100);
    let mut random = Random(3);
    let mut now = Stamp::now();
    let mut each = keys.iter().cycle();
    group.bench_function("record_8_and_rotate_one_series", |b| {
        b.iter(|| {
            let key = *each.next().unwrap_or(&keys[0]);
            (0..8).for_each(|_| registry.record(&merge(ledger(key, &mut random), Vec::new())));
            now = now.plus(2_000_000_000);
            registry.rotate(now);
        });
    });
    group.finish();
}

criterion_group!(benches, exchange, rotation);
criterion_main!(benches);
