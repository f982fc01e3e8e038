//! What a GPU can do at best, measured in a short while when a benchmark warms up, by kernels of kernels/peaks.cu and the device's
//! own clock: operations a second, bytes a second from DRAM and from the second-level cache, and how long kernels take that do
//! nothing. The best of several windows counts: noise only ever takes away.
//!
//! - **Operations**: independent chains in registers; multiply-adds of single precision, and tiles of the tensor cores.
//! - **Bytes**: a block that is *read* again and again: one of half the second-level cache, and one well above it.
//! - **Launch**: a graph of as many empty kernels as a program has, from the event before the first to that behind the last.

mod floor;

use std::sync::Arc;
use std::time::Duration;

use super::device::{Block, Device, DeviceError, Event, Function, Modules, Shape, Stream};
use super::kernel::Kernel;
use super::ptx;
use crate::engine::roofline::Ceiling;

pub use floor::Floors;

/// A plan is held by the second-level cache up to this share of it: the rest is for what else goes through.
pub const L2_SHARE: f64 = 0.8;
/// Threads of a block of all kernels that measure.
const THREADS: u32 = 256;
/// Repeats of a kernel at most: seconds on the slowest device, so that a clock which stands still ends nothing but the measure.
const MOST_REPEATS: u64 = 1 << 20;
/// The most blocks in y.
const MOST_PASSES: u32 = 65_535;

const fn kernel(name: &'static str, threads: u32) -> Kernel {
    Kernel { name, module: "peaks", threads, shared: 0 }
}

static EMPTY: Kernel = kernel("empty", 32);
static FFMA: Kernel = kernel("peak_ffma", THREADS);
static MMA_F16: Kernel = kernel("peak_mma_f16", THREADS);
static MMA_TF32: Kernel = kernel("peak_mma_tf32", THREADS);
static MMA_S8: Kernel = kernel("peak_mma_s8", THREADS);
static READ: Kernel = kernel("peak_read", THREADS);

/// How it is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Multiprocessors that get blocks.
    pub processors: u32,
    /// The second-level cache, in bytes; half of it is read.
    pub l2_bytes: usize,
    /// The block that stands for DRAM, in bytes.
    pub dram_bytes: usize,
    /// Windows of each measure, at least one.
    pub windows: usize,
    /// How long a window is at least.
    pub window: Duration,
}

impl Setup {
    /// For this device; the block is eight times the cache, but no more than a quarter of the memory that is free.
    ///
    /// # Errors
    ///
    /// The device does not answer.
    pub fn of(device: &Device) -> Result<Self, DeviceError> {
        let info = device.info();
        if device.is_emulated() {
            // its figures mean nothing: tests see by it that this runs
            let window = Duration::from_nanos(1);
            return Ok(Self { processors: 1, l2_bytes: 1 << 17, dram_bytes: 1 << 18, windows: 2, window });
        }
        let l2_bytes = usize::try_from(info.l2_bytes).unwrap_or(usize::MAX).max(1 << 20);
        let free = usize::try_from(device.memory()?.free_bytes).unwrap_or(usize::MAX);
        let dram_bytes = l2_bytes.saturating_mul(8).clamp(64 << 20, 1 << 30).min(free / 4).max(1 << 20);
        let processors = info.multiprocessors.max(1);
        Ok(Self { processors, l2_bytes, dram_bytes, windows: 7, window: Duration::from_millis(2) })
    }
}

/// What a device can do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Peaks {
    /// Single-precision operations a second, a multiply-add as two.
    pub fp32_flops_per_s: f64,
    /// Operations a second of the tensor cores, factors in tf32.
    pub tf32_flops_per_s: f64,
    /// Likewise in half precision, summed in single.
    pub fp16_flops_per_s: f64,
    /// Likewise in 8-bit whole numbers.
    pub int8_ops_per_s: f64,
    /// Bytes a second read from DRAM.
    pub dram_bytes_per_s: f64,
    /// Bytes a second read from the second-level cache.
    pub l2_bytes_per_s: f64,
    /// The second-level cache, in bytes.
    pub l2_bytes: usize,
    /// How far the median window lay below the best in the noisiest measure, as a share of the best.
    pub spread: f64,
}

impl Peaks {
    /// Measures, in about 150 ms and with up to 1 GiB of the device's memory that is given back.
    ///
    /// # Errors
    ///
    /// A fault of the device, or too little memory.
    pub fn measure(device: &Arc<Device>, setup: &Setup) -> Result<Self, DeviceError> {
        let mut bench = Bench::new(device, *setup)?;
        let fp32 = bench.operations(&FFMA, 8, 256)?;
        let tf32 = bench.operations(&MMA_TF32, 2, 1024)?;
        let fp16 = bench.operations(&MMA_F16, 2, 2048)?;
        let int8 = bench.operations(&MMA_S8, 2, 4096)?;
        let l2 = bench.bytes(setup.l2_bytes / 2)?;
        let dram = bench.bytes(setup.dram_bytes)?;
        Ok(Self {
            fp32_flops_per_s: fp32,
            tf32_flops_per_s: tf32,
            fp16_flops_per_s: fp16,
            int8_ops_per_s: int8,
            dram_bytes_per_s: dram,
            l2_bytes_per_s: l2,
            l2_bytes: setup.l2_bytes,
            spread: bench.spread,
        })
    }

    /// The ceiling of a plan whose weights and arena take so many bytes, and whose nodes cost `launch_ns` each where they do
    /// nothing: it reads from the second-level cache where they fit into [`L2_SHARE`] of it, else from DRAM.
    #[must_use]
    pub fn ceiling(&self, held_bytes: usize, launch_ns: f64) -> Ceiling {
        let fits = held_bytes as f64 <= L2_SHARE * self.l2_bytes as f64;
        Ceiling {
            fp32_per_s: self.fp32_flops_per_s,
            tf32_per_s: self.tf32_flops_per_s,
            fp16_per_s: self.fp16_flops_per_s,
            int8_per_s: self.int8_ops_per_s,
            bytes_per_s: if fits { self.l2_bytes_per_s } else { self.dram_bytes_per_s },
            launch_ns,
        }
    }
}

/// What one measure after the other uses.
struct Bench {
    setup: Setup,
    modules: Modules,
    stream: Stream,
    /// The word that kernels write so that their work is not left out.
    out: Block,
    begin: Event,
    end: Event,
    spread: f64,
}

impl Bench {
    fn new(device: &Arc<Device>, setup: Setup) -> Result<Self, DeviceError> {
        let out = Block::new(device, 256)?;
        let stream = Stream::new(device)?;
        stream.fill(&out, 0, 256, 0)?;
        stream.wait()?;
        let (begin, end) = (Event::timed(device)?, Event::timed(device)?);
        Ok(Self { setup, modules: Modules::new(device), stream, out, begin, end, spread: 0.0 })
    }

    /// Operations a second of a kernel with so many blocks on each multiprocessor, whose threads do `each` in a repeat.
    fn operations(&mut self, kernel: &Kernel, blocks: u32, each: u64) -> Result<f64, DeviceError> {
        let function = function(&self.modules, kernel)?;
        let grid = (self.setup.processors * blocks, 1);
        let a_repeat = each * u64::from(grid.0) * u64::from(kernel.threads);
        self.best(a_repeat as f64, MOST_REPEATS, |bench, repeats| bench.time(&function, kernel, grid, 0, repeats.cast_signed()))
    }

    /// Bytes a second that are read from a block of this size, again and again: a pass is a row of the grid.
    fn bytes(&mut self, bytes: usize) -> Result<f64, DeviceError> {
        let function = function(&self.modules, &READ)?;
        let pieces = bytes / 16;
        let block = Block::new(self.stream.device(), 16 * pieces)?;
        self.stream.fill(&block, 0, block.bytes(), 1)?;
        let blocks = self.setup.processors * 8;
        self.best(block.bytes() as f64, u64::from(MOST_PASSES), |bench, passes| {
            let grid = (blocks, u32::try_from(passes).unwrap_or(MOST_PASSES));
            bench.time(&function, &READ, grid, block.address(), i64::try_from(pieces).unwrap_or(i64::MAX))
        })
    }

    /// Units a second in the best window, where a repeat does `each` of them. Repeats are doubled until a window is long enough,
    /// which also lets the device reach its clocks.
    fn best(
        &mut self,
        each: f64,
        most: u64,
        run: impl Fn(&Self, u64) -> Result<Duration, DeviceError>,
    ) -> Result<f64, DeviceError> {
        let mut repeats = 1_u64;
        while run(self, repeats)? < self.setup.window && 2 * repeats <= most {
            repeats *= 2;
        }
        let times = (0..self.setup.windows.max(1)).map(|_| run(self, repeats)).collect::<Result<Vec<_>, _>>()?;
        let (rate, spread) = best_of(&times, each * repeats as f64);
        self.spread = self.spread.max(spread);
        Ok(rate)
    }

    /// How long one launch takes.
    #[allow(unsafe_code, reason = "a launch hands addresses to the device")]
    fn time(
        &self,
        function: &Function,
        kernel: &Kernel,
        grid: (u32, u32),
        data: u64,
        count: i64,
    ) -> Result<Duration, DeviceError> {
        let shape = Shape { grid, threads: kernel.threads, shared_bytes: kernel.shared };
        self.stream.record(&self.begin)?;
        // SAFETY: these are the fields of PeakArgs; `out` is the bench's own, and `data` a block of 16 · `count` bytes that
        // outlives the wait below, or is not looked at
        unsafe { self.stream.launch(function, shape, &args(data, self.out.address(), count))? };
        self.stream.record(&self.end)?;
        self.stream.wait()?;
        self.end.since(&self.begin)
    }
}

/// A kernel that measures, ready to be launched.
fn function(modules: &Modules, kernel: &Kernel) -> Result<Arc<Function>, DeviceError> {
    modules.load(kernel.module, ptx::text(kernel.module))?.function(kernel.name)
}

/// The bytes of PeakArgs.
fn args(data: u64, out: u64, count: i64) -> Vec<u8> {
    [data, out, count.cast_unsigned()].into_iter().flat_map(u64::to_le_bytes).collect()
}

/// The rate in the shortest of times in which so many units were done, and how far the median lies below it.
fn best_of(times: &[Duration], units: f64) -> (f64, f64) {
    let mut seconds: Vec<f64> = times.iter().map(Duration::as_secs_f64).filter(|time| *time > 0.0).collect();
    seconds.sort_by(f64::total_cmp);
    let (Some(best), Some(median)) = (seconds.first(), seconds.get(seconds.len() / 2)) else { return (0.0, 0.0) };
    (units / best, 1.0 - best / median)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEAKS: Peaks = Peaks {
        fp32_flops_per_s: 1e12,
        tf32_flops_per_s: 2e12,
        fp16_flops_per_s: 4e12,
        int8_ops_per_s: 8e12,
        dram_bytes_per_s: 1e9,
        l2_bytes_per_s: 5e9,
        l2_bytes: 1000,
        spread: 0.0,
    };

    #[test]
    fn a_plan_is_in_the_cache_up_to_four_fifths_of_it() {
        for (bytes, rate) in [(0, 5e9), (800, 5e9), (801, 1e9), (usize::MAX, 1e9)] {
            let ceiling = PEAKS.ceiling(bytes, 2.5);
            assert_eq!((ceiling.bytes_per_s, ceiling.launch_ns), (rate, 2.5), "{bytes}");
            assert_eq!(
                [ceiling.fp32_per_s, ceiling.tf32_per_s, ceiling.fp16_per_s, ceiling.int8_per_s],
                [1e12, 2e12, 4e12, 8e12]
            );
        }
    }

    #[test]
    fn the_shortest_time_counts_and_the_median_says_how_noisy_it_was() {
        let times = [4, 2, 5].map(Duration::from_secs);
        assert_eq!(best_of(&times, 10.0), (5.0, 0.5));
        assert_eq!(best_of(&[Duration::ZERO], 1.0), (0.0, 0.0));
    }

    #[test]
    fn kernels_are_in_the_module() {
        for kernel in [&EMPTY, &FFMA, &MMA_F16, &MMA_TF32, &MMA_S8, &READ] {
            let text = ptx::text(kernel.module);
            let (_, body) = text.split_once(&format!(".entry {}(", kernel.name)).unwrap();
            let (head, _) = body.split_once('{').unwrap();
            assert!(head.contains(&format!("{}_param_0[{}]", kernel.name, args(0, 0, 0).len())), "{head}");
            assert!(head.contains(&format!(".maxntid {}, 1, 1", kernel.threads)), "{head}");
        }
    }
}
