//! Seeded runs of the verdict under noise of every kind, with a look after every pair. Short ones here; the long ones print the
//! tables of docs/BENCHMARKS.md:
//!
//! ```sh
//! cargo test --release --lib shadow::ab::tests::simulation -- --ignored --nocapture --test-threads 1
//! ```

mod noise;
mod rivals;
mod runs;
mod screen;
mod tables;
mod tail;

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// The results of `run` for the seeds from 0, on all processors; a result depends on its seed alone.
fn in_parallel<T: Send>(runs: u64, run: impl Fn(u64) -> T + Sync) -> Vec<T> {
    let next = AtomicU64::new(0);
    let worker = || {
        let mut results = Vec::new();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= runs {
                return results;
            }
            results.push((seed, run(seed)));
        }
    };
    let mut results = thread::scope(|scope| {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect::<Vec<_>>()
    });
    results.sort_by_key(|(seed, _)| *seed);
    results.into_iter().map(|(_, result)| result).collect()
}

/// The share of the results that are so.
fn share<T>(results: &[T], is_so: impl Fn(&T) -> bool) -> f64 {
    results.iter().filter(|result| is_so(result)).count() as f64 / results.len() as f64
}

/// A quantile of times, of which `None` is after all others; infinite if it is among those.
fn time_quantile(times: impl Iterator<Item = Option<u64>>, quantile: f64) -> f64 {
    let mut times: Vec<_> = times.map(|time| time.map_or(f64::INFINITY, |time| time as f64)).collect();
    times.sort_by(f64::total_cmp);
    times[((times.len() as f64 * quantile) as usize).min(times.len() - 1)]
}
