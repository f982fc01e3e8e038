//! The peak rates of this processor, measured briefly when the engine warms up: operations a second in registers, and
//! bytes a second from the second-level cache, the last-level cache and DRAM. Rates are totals over all the engine's
//! threads.
//!
//! - **Operations**: chains of independent multiply-adds, in the instructions that the matrix products use (AVX-512,
//!   AVX2 with FMA, or portable; for int8 `vpdpbusd` where there is VNNI, else 16-bit products, because the byte
//!   products of AVX2 saturate and the engine's sums are exact). A multiply-add is two operations.
//! - **Bytes**: streams that are *read*, each element once. That is the right bound for weights: a product reads every
//!   weight and writes none. A copy is also measured, for information only; it counts bytes read plus bytes written.
//! - **Best of several windows**: noise only lowers a rate, so the best window is nearest to the machine's peak.
//!   `Spread` reports how far the median lies below it.
//!
//! `roofline` computes what a plan could reach with these rates.

mod caches;
mod chains;
mod launch;
mod stream;
mod window;

use std::sync::{Mutex, PoisonError};

pub use caches::Caches;
use window::{BestRate, WorkerGroup};
pub use window::{PeaksError, Runner};

use super::gemm::int8::{LevelI8, int8_chains};
use super::level::Level;
use lapwing_plan::roofline::Ceiling;

/// Number of windows of each measurement.
const WINDOWS: usize = 5;
/// Length of a window, nanoseconds; DRAM has longer ones.
const WINDOW_NS: u64 = 1_500_000;
/// Length of a window on DRAM.
const DRAM_WINDOW_NS: u64 = 3_000_000;
/// Bytes read between two readings of the clock: about 10 microseconds.
const PIECE_BYTES: usize = 256 << 10;
/// The smallest page size of any supported system, in bytes.
const PAGE_BYTES: usize = 4096;
/// The DRAM buffer is four last-level caches, within these bounds and within the free memory.
const DRAM_BUFFER_BYTES: std::ops::RangeInclusive<usize> = 64 << 20..=256 << 20;

/// What to measure, and on what.
#[derive(Clone, Copy, Debug)]
pub struct PeakSetup {
    /// The vector instructions of the f32 kernels.
    pub level: Level,
    /// The integer instructions of the int8 kernels.
    pub level_i8: LevelI8,
    /// Number of threads of the runner, at least one.
    pub threads: usize,
    /// The overhead of one node that does no work, nanoseconds; measured by the executor and copied to the result.
    pub launch_ns: f64,
    /// The caches of the machine.
    pub caches: Caches,
}

/// The processor's peak rates: totals over all threads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Peaks {
    /// Single-precision operations a second, a multiply-add as two.
    pub flops_per_s: f64,
    /// 8-bit integer operations a second, a multiply-add as two.
    pub int8_ops_per_s: f64,
    /// Bytes a second read from the second-level cache.
    pub l2_bytes_per_s: f64,
    /// Bytes a second read plus written by a copy within the second-level cache.
    pub l2_copy_bytes_per_s: f64,
    /// Bytes a second read from the last-level cache; the rate of the second level where that is the last.
    pub llc_bytes_per_s: f64,
    /// Bytes a second read from DRAM.
    pub dram_bytes_per_s: f64,
    /// The total size of the threads' second-level caches.
    pub l2_bytes: usize,
    /// The total size of the last-level caches that the threads use ([`Caches::llc_of`]).
    pub llc_bytes: usize,
    /// The size of the buffer used to measure DRAM. If it is below twice `llc_bytes` (memory was short), part of it was
    /// read from cache.
    pub dram_buffer_bytes: usize,
    /// The overhead of one node that does no work, nanoseconds.
    pub launch_ns: f64,
    /// Number of threads that ran in parallel.
    pub threads: usize,
    /// The noise of the measurements.
    pub spread: Spread,
}

/// For each measurement, how far the median window lies below the best, as a share of the best: 0 is quiet, above 0.1
/// is noisy.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    /// Of single precision.
    pub fp32: f64,
    /// Of 8-bit integers.
    pub int8: f64,
    /// Of reads from the second-level cache.
    pub l2: f64,
    /// Of reads from the last-level cache.
    pub llc: f64,
    /// Of reads from DRAM.
    pub dram: f64,
}

impl Spread {
    /// The largest.
    #[must_use]
    pub fn worst(self) -> f64 {
        [self.int8, self.l2, self.llc, self.dram].into_iter().fold(self.fp32, f64::max)
    }
}

impl Peaks {
    /// The ceiling of a plan whose weights and arena take this many bytes: its bandwidth is that of the smallest memory
    /// that holds them.
    #[must_use]
    pub fn ceiling(&self, working_set_bytes: usize) -> Ceiling {
        let bytes_per_s = match working_set_bytes {
            bytes if bytes <= self.l2_bytes => self.l2_bytes_per_s,
            bytes if bytes <= self.llc_bytes => self.llc_bytes_per_s,
            _ => self.dram_bytes_per_s,
        };
        let single = self.flops_per_s;
        Ceiling {
            fp32_per_s: single,
            tf32_per_s: single,
            fp16_per_s: single,
            int8_per_s: self.int8_ops_per_s,
            bytes_per_s,
            launch_ns: self.launch_ns,
        }
    }
}

/// Measures in about 100 ms, with up to 256 MiB that are freed afterwards.
///
/// # Errors
/// The runner does not run `setup.threads` threads at the same time.
pub fn calibrate(setup: &PeakSetup, run: Runner<'_>) -> Result<Peaks, PeaksError> {
    let (level, caches, threads) = (setup.level, setup.caches, setup.threads);
    let workers = WorkerGroup { threads, run };
    let fp32 = workers.best(WINDOWS, WINDOW_NS, &|_| chains::fp32(level, 4096))?;
    let int8 = workers.best(WINDOWS, WINDOW_NS, &|_| int8_chains(setup.level_i8, 4096))?;
    let half = caches.l2_bytes / 2;
    let l2 = read(workers, level, &Parts::new(workers, half), WINDOW_NS)?;
    let copied = copy(workers, level, half)?;
    let (llc_bytes, l2_bytes) = (caches.llc_of(threads), caches.l2_of(threads));
    // Eight second-level caches, so that almost nothing stays in them, but at most half of the last level.
    let each = (8 * caches.l2_bytes).min(llc_bytes / 2 / threads.max(1));
    let llc = if each >= 2 * caches.l2_bytes { read(workers, level, &Parts::new(workers, each), WINDOW_NS)? } else { l2 };
    let dram_buffer_bytes = dram_buffer(llc_bytes, caches::free_bytes());
    let dram = read(workers, level, &Parts::new(workers, dram_buffer_bytes / threads.max(1)), DRAM_WINDOW_NS)?;
    Ok(Peaks {
        flops_per_s: fp32.per_s,
        int8_ops_per_s: int8.per_s,
        l2_bytes_per_s: l2.per_s,
        l2_copy_bytes_per_s: copied.per_s,
        llc_bytes_per_s: llc.per_s,
        dram_bytes_per_s: dram.per_s,
        l2_bytes,
        llc_bytes,
        dram_buffer_bytes,
        launch_ns: setup.launch_ns,
        threads,
        spread: Spread { fp32: fp32.spread, int8: int8.spread, l2: l2.spread, llc: llc.spread, dram: dram.spread },
    })
}

/// Size in bytes of the buffer used to measure DRAM; never more than a quarter of the free memory, so that measuring
/// cannot exhaust it.
fn dram_buffer(llc_bytes: usize, free: Option<usize>) -> usize {
    let wanted = llc_bytes.saturating_mul(4).clamp(*DRAM_BUFFER_BYTES.start(), *DRAM_BUFFER_BYTES.end());
    free.map_or(wanted, |free| wanted.min(free / 4)).max(PIECE_BYTES)
}

/// A buffer for each thread, and how far it has been read.
struct Parts(Vec<Mutex<(Vec<f32>, usize)>>);

impl Parts {
    /// A buffer of `bytes` for each thread, written by the thread that will read it (first-touch NUMA placement).
    fn new(workers: WorkerGroup<'_>, bytes: usize) -> Self {
        let parts: Vec<_> = (0..workers.threads).map(|_| Mutex::new((Vec::new(), 0))).collect();
        // Pages that were never written would all map to the zero page; writing one element allocates a page.
        (workers.run)(&|thread| {
            if let Some(part) = parts.get(thread) {
                let mut values = vec![0.0; bytes / 4];
                values.iter_mut().step_by(PAGE_BYTES / 4).for_each(|value| *value = 1.0);
                part.lock().unwrap_or_else(PoisonError::into_inner).0 = values;
            }
        });
        Self(parts)
    }
}

/// Reads the parts from end to end, repeatedly.
fn read(workers: WorkerGroup<'_>, level: Level, parts: &Parts, window_ns: u64) -> Result<BestRate, PeaksError> {
    workers.best(WINDOWS, window_ns, &|thread| {
        let Some(part) = parts.0.get(thread) else { return 0 };
        // Uncontended: about 20 ns a piece.
        let mut part = part.lock().unwrap_or_else(PoisonError::into_inner);
        let (values, at) = &mut *part;
        let from = if *at < values.len() { *at } else { 0 };
        let to = (from + PIECE_BYTES / 4).min(values.len());
        let Some(piece) = values.get(from..to) else { return 0 };
        std::hint::black_box(stream::read(level, piece));
        *at = to;
        4 * piece.len() as u64
    })
}

/// Copies one half of a buffer of `bytes` to the other.
fn copy(workers: WorkerGroup<'_>, level: Level, bytes: usize) -> Result<BestRate, PeaksError> {
    let parts = Parts::new(workers, bytes);
    workers.best(WINDOWS, WINDOW_NS, &|thread| {
        let Some(part) = parts.0.get(thread) else { return 0 };
        let mut part = part.lock().unwrap_or_else(PoisonError::into_inner);
        let middle = part.0.len() / 2;
        let (from, to) = part.0.split_at_mut(middle);
        stream::copy(level, from, to);
        std::hint::black_box(to);
        8 * middle as u64
    })
}

#[cfg(test)]
mod tests;
