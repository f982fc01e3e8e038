//! The cost of latency A/B: recording a pair, closing a block, and a report. `cargo bench --profile dist --bench pairs`;
//! docs/BENCHMARKS.md has the figures.
//!
//! Latencies spread over a factor of 3 on each side, in random order, so the bins of a pair are rarely those of the pair before.

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use lapwing_compare::ab::{LatencyReport, PairCounts, Tracking};

/// Pairs before anything is measured: what an hour at 28 pairs a second counts.
const PAIRS: u64 = 100_000;

/// Latencies of both sides in nanoseconds, by SplitMix64.
fn latencies(pairs: u64) -> Vec<(u64, u64)> {
    let mut state = 42_u64;
    let mut random = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 8
    };
    let mut side = || 5_000_000 + random() % 5_000_000 + random() % 5_000_000;
    (0..pairs).map(|_| (side(), side())).collect()
}

fn bench(criterion: &mut Criterion) {
    let pairs = latencies(PAIRS);
    let (mut counts, mut tracking) = (PairCounts::default(), Tracking::new());
    for (i, (baseline_ns, candidate_ns)) in (0_u64..).zip(&pairs) {
        tracking.tick(&counts, Duration::from_millis(36 * i));
        counts.record(*baseline_ns, *candidate_ns);
        counts.record_mismatch(i.is_multiple_of(997));
    }
    println!("counts of {PAIRS} pairs: {} bytes; tracking: {} bytes", counts.memory_bytes(), size_of::<Tracking>());

    let (mut next, mut recorded) = (pairs.iter().cycle(), counts.clone());
    criterion.bench_function("pair", |bencher| {
        bencher.iter(|| {
            if let Some((baseline_ns, candidate_ns)) = next.next() {
                recorded.record(black_box(*baseline_ns), black_box(*candidate_ns));
                recorded.record_mismatch(black_box(false));
            }
        });
    });
    criterion.bench_function("report", |bencher| {
        bencher.iter(|| LatencyReport::new(black_box(&counts), black_box(&tracking)));
    });
    let mut elapsed = tracking.elapsed();
    criterion.bench_function("block", |bencher| {
        bencher.iter(|| {
            // the longest block
            elapsed += Duration::from_secs(64);
            tracking.tick(black_box(&counts), elapsed);
        });
    });
}

criterion_group!(benches, bench);
criterion_main!(benches);
