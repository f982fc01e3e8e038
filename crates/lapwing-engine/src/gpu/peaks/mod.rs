//! What a GPU can do at best, measured in a short while when a benchmark warms up, by kernels of kernels/peaks.cu and the device's
//! own clock: operations a second, bytes a second from DRAM and from the second-level cache, and how long kernels take that do
//! nothing. The best of several windows counts: noise only ever takes away.
//!
//! - **Operations**: independent chains in registers; multiply-adds of single precision, and tiles of the tensor cores.
//!   Single precision is measured first and last, after the device was kept busy for a while: at rest its clocks are low.
//! - **Bytes**: a block that is *read* again and again: one that the second-level cache holds wherever it is read from, and one
//!   well above it.
//! - **Launch**: a graph of as many empty kernels as a program has, from the event before the first to that behind the last.

mod floor;

use std::sync::Arc;
use std::time::Duration;

use super::device::{Block, Device, DeviceError, Event, Function, Modules, Shape, Stream};
use super::kernel::Kernel;
use super::ptx;
use crate::clock::Stamp;
use crate::roofline::Ceiling;

pub use floor::Floors;

/// A plan is held by the second-level cache up to this share of it: the rest is for what else goes through. Where the cache is in
/// two parts (see [`Setup::of`]), a plan of more than half of it may not be: what one part's processors read of the other part is
/// kept twice. Then some of it comes from DRAM, its bandwidth is taken for too high, and its utilisation comes out too low.
pub const L2_SHARE: f64 = 0.8;
/// Threads of a block of all kernels that measure.
const THREADS: u32 = 256;
/// Repeats of a kernel at most: seconds on the slowest device, so that a clock which stands still ends nothing but the measure.
const MOST_REPEATS: u64 = 1 << 20;
/// Blocks that read on each multiprocessor: as many as are there at a time on every device (see peak_read).
const READERS: u32 = 4;
/// The most pieces of 16 bytes that peak_read counts.
const MOST_PIECES: usize = 1 << 30;

const fn kernel(name: &'static str, threads: u32) -> Kernel {
    Kernel { name, module: "peaks", threads, shared: 0 }
}

static EMPTY: Kernel = kernel("empty", 32);
static READ: Kernel = kernel("peak_read", THREADS);
static FFMA: Arithmetic = Arithmetic { kernel: kernel("peak_ffma", THREADS), blocks: 8, each: 512 };
static MMA_F16: Arithmetic = Arithmetic { kernel: kernel("peak_mma_f16", THREADS), blocks: 2, each: 2048 };
static MMA_TF32: Arithmetic = Arithmetic { kernel: kernel("peak_mma_tf32", THREADS), blocks: 2, each: 1024 };
static MMA_S8: Arithmetic = Arithmetic { kernel: kernel("peak_mma_s8", THREADS), blocks: 2, each: 4096 };

/// A kernel that computes.
struct Arithmetic {
    kernel: Kernel,
    /// On each multiprocessor.
    blocks: u32,
    /// Operations of a thread in a repeat.
    each: u64,
}

impl Arithmetic {
    const fn grid(&self, setup: &Setup) -> u32 {
        setup.processors * self.blocks
    }

    /// No place is given for what comes out: it is not wanted.
    fn args(&self, repeats: u64) -> Vec<u8> {
        args(&[0, 0, repeats])
    }
}

/// How it is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Multiprocessors that get blocks.
    pub processors: u32,
    /// The second-level cache, in bytes.
    pub l2_bytes: usize,
    /// The block that stands for it, in bytes.
    pub l2_block_bytes: usize,
    /// The block that stands for DRAM, in bytes.
    pub dram_bytes: usize,
    /// Windows of each measure, at least one.
    pub windows: usize,
    /// How long a window is at least.
    pub window: Duration,
    /// For how long the device is kept busy before.
    pub busy: Duration,
}

/// How long it takes for clocks to rise, and more.
const BUSY: Duration = Duration::from_millis(200);

/// Whether devices of this compute capability have a second-level cache in two parts, where lines of the far one are kept in the
/// near one too: A100, H100 and their like. Then only what fits into a half of a half is near to all.
const fn is_split(capability: (u32, u32)) -> bool {
    matches!(capability, (8 | 9, 0) | (10, _))
}

impl Setup {
    /// For this device. The block for the cache is half of it, or a quarter where the cache is in two parts; that for DRAM is
    /// eight times the cache, but no more than a quarter of the memory that is free.
    ///
    /// # Errors
    ///
    /// The device does not answer.
    pub fn of(device: &Device) -> Result<Self, DeviceError> {
        let info = device.info();
        if device.is_emulated() {
            // its figures mean nothing: tests see by it that this runs
            let window = Duration::from_nanos(1);
            let (l2_bytes, l2_block_bytes, dram_bytes) = (1 << 17, 1 << 16, 1 << 18);
            return Ok(Self { processors: 1, l2_bytes, l2_block_bytes, dram_bytes, windows: 2, window, busy: BUSY });
        }
        let l2_bytes = usize::try_from(info.l2_bytes).unwrap_or(usize::MAX).max(1 << 20);
        let free = usize::try_from(device.memory()?.free_bytes).unwrap_or(usize::MAX);
        let dram_bytes = l2_bytes.saturating_mul(8).clamp(64 << 20, 1 << 30).min(free / 4).max(1 << 20);
        let processors = info.multiprocessors.max(1);
        let l2_block_bytes = l2_bytes / if is_split(info.capability) { 4 } else { 2 };
        Ok(Self { processors, l2_bytes, l2_block_bytes, dram_bytes, windows: 7, window: Duration::from_millis(2), busy: BUSY })
    }
}

/// What a device can do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Peaks {
    /// Single-precision operations a second, a multiply-add as two.
    pub fp32_flops_per_s: f64,
    /// Operations a second of the tensor cores by mma.sync, factors in tf32. From compute capability 9.0 on they can do more by
    /// other instructions, which our kernels do not use and cublasLt does.
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
    /// Measures, in about 400 ms and with up to 1 GiB of the device's memory that is given back.
    ///
    /// # Errors
    ///
    /// A fault of the device, or too little memory.
    pub fn measure(device: &Arc<Device>, setup: &Setup) -> Result<Self, DeviceError> {
        let bench = Bench::new(device, *setup)?;
        bench.busy()?;
        let mut fp32 = bench.operations(&FFMA)?;
        let tf32 = bench.operations(&MMA_TF32)?;
        let fp16 = bench.operations(&MMA_F16)?;
        let int8 = bench.operations(&MMA_S8)?;
        let l2 = bench.bytes(setup.l2_block_bytes)?;
        let dram = bench.bytes(setup.dram_bytes)?;
        // what it gained since belongs to the noise
        fp32.extend(bench.operations(&FFMA)?);
        let mut spread = 0.0_f64;
        let mut best = |rates: &[f64]| {
            let (rate, off) = best_of(rates);
            spread = spread.max(off);
            rate
        };
        let [fp32, tf32, fp16, int8, l2, dram] = [fp32, tf32, fp16, int8, l2, dram].map(|rates| best(&rates));
        Ok(Self {
            fp32_flops_per_s: fp32,
            tf32_flops_per_s: tf32,
            fp16_flops_per_s: fp16,
            int8_ops_per_s: int8,
            dram_bytes_per_s: dram,
            l2_bytes_per_s: l2,
            l2_bytes: setup.l2_bytes,
            spread,
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
    begin: Event,
    end: Event,
}

impl Bench {
    fn new(device: &Arc<Device>, setup: Setup) -> Result<Self, DeviceError> {
        let (stream, begin, end) = (Stream::new(device)?, Event::timed(device)?, Event::timed(device)?);
        Ok(Self { setup, modules: Modules::new(device), stream, begin, end })
    }

    /// Keeps all multiprocessors busy for as long as the setup says, so that clocks are what they are under load.
    fn busy(&self) -> Result<(), DeviceError> {
        let function = function(&self.modules, &FFMA.kernel)?;
        let (from, busy) = (Stamp::now(), self.setup.busy.as_nanos());
        let mut repeats = 1;
        while u128::from(from.elapsed()) < busy {
            let time = self.time(&function, &FFMA.kernel, FFMA.grid(&self.setup), &FFMA.args(repeats))?;
            repeats = self.more(repeats, time).unwrap_or(repeats);
        }
        Ok(())
    }

    /// Operations a second of a kernel, in each window.
    fn operations(&self, work: &Arithmetic) -> Result<Vec<f64>, DeviceError> {
        let function = function(&self.modules, &work.kernel)?;
        let grid = work.grid(&self.setup);
        let a_repeat = work.each * u64::from(grid) * u64::from(work.kernel.threads);
        self.rates(a_repeat as f64, |repeats| self.time(&function, &work.kernel, grid, &work.args(repeats)))
    }

    /// Bytes a second that are read from a block of about this size, again and again, in each window.
    fn bytes(&self, bytes: usize) -> Result<Vec<f64>, DeviceError> {
        let function = function(&self.modules, &READ)?;
        let pieces = (bytes / 16).clamp(1, MOST_PIECES);
        let grid = self.setup.processors * READERS;
        let device = self.stream.device();
        let block = Block::new(device, 16 * pieces)?;
        let sums = Block::new(device, 4 * (grid * READ.threads / 32) as usize)?;
        self.stream.fill(&block, 0, block.bytes(), 1)?;
        self.rates(block.bytes() as f64, |passes| {
            self.time(&function, &READ, grid, &args(&[block.address(), sums.address(), pieces as u64, passes]))
        })
    }

    /// Units a second in each window, where a repeat does `each` of them. Repeats are doubled until a window is long enough.
    fn rates(&self, each: f64, run: impl Fn(u64) -> Result<Duration, DeviceError>) -> Result<Vec<f64>, DeviceError> {
        let mut repeats = 1_u64;
        while let Some(more) = self.more(repeats, run(repeats)?) {
            repeats = more;
        }
        (0..self.setup.windows.max(1)).map(|_| Ok(each * repeats as f64 / run(repeats)?.as_secs_f64())).collect()
    }

    /// How often to repeat where so many repeats took less than a window.
    fn more(&self, repeats: u64, time: Duration) -> Option<u64> {
        (time < self.setup.window && 2 * repeats <= MOST_REPEATS).then_some(2 * repeats)
    }

    /// How long one launch takes.
    #[allow(unsafe_code, reason = "a launch hands addresses to the device")]
    fn time(&self, function: &Function, kernel: &Kernel, blocks: u32, args: &[u8]) -> Result<Duration, DeviceError> {
        let shape = Shape { grid: (blocks, 1), threads: kernel.threads, shared_bytes: kernel.shared };
        self.stream.record(&self.begin)?;
        // SAFETY: these are the fields of PeakArgs, which name no memory, or those of PeakReadArgs: a block of 16 bytes a piece and
        // a word for each warp, both of which outlive the wait below
        unsafe { self.stream.launch(function, shape, args)? };
        self.stream.record(&self.end)?;
        self.stream.wait()?;
        self.end.since(&self.begin)
    }
}

/// A kernel that measures, ready to be launched.
fn function(modules: &Modules, kernel: &Kernel) -> Result<Arc<Function>, DeviceError> {
    modules.load(kernel.module, ptx::text(kernel.module))?.function(kernel.name)
}

/// The bytes of PeakArgs (data, out, count) or of PeakReadArgs (data, out, pieces, passes).
fn args(fields: &[u64]) -> Vec<u8> {
    fields.iter().copied().flat_map(u64::to_le_bytes).collect()
}

/// The best rate, and how far the median lies below it; of no measure, where no time went by, nothing.
fn best_of(rates: &[f64]) -> (f64, f64) {
    let mut rates: Vec<f64> = rates.iter().copied().filter(|rate| rate.is_finite()).collect();
    rates.sort_by(|a, b| b.total_cmp(a));
    let (Some(best), Some(median)) = (rates.first(), rates.get(rates.len() / 2)) else { return (0.0, 0.0) };
    (*best, 1.0 - median / best)
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
    fn the_best_rate_counts_and_the_median_says_how_noisy_it_was() {
        assert_eq!(best_of(&[2.0, 5.0, 2.5]), (5.0, 0.5));
        // first and last measure together: half of it was slow
        assert_eq!(best_of(&[3.0, 3.0, 4.0, 4.0]), (4.0, 0.25));
        assert_eq!(best_of(&[f64::INFINITY]), (0.0, 0.0));
    }

    #[test]
    fn caches_in_two_parts_are_known() {
        for (capability, want) in
            [((8, 0), true), ((8, 6), false), ((8, 9), false), ((9, 0), true), ((10, 3), true), ((12, 0), false)]
        {
            assert_eq!(is_split(capability), want, "{capability:?}");
        }
    }

    /// Its head, and what it does.
    fn entry<'a>(text: &'a str, name: &str) -> (&'a str, &'a str) {
        let (_, entry) = text.split_once(&format!(".entry {name}(")).unwrap();
        let (entry, _) = entry.split_once("\n}").unwrap();
        entry.split_once('{').unwrap()
    }

    #[test]
    fn kernels_are_in_the_module() {
        let computing = [&FFMA, &MMA_F16, &MMA_TF32, &MMA_S8].map(|work| (&work.kernel, 3));
        for (kernel, fields) in computing.into_iter().chain([(&EMPTY, 3), (&READ, 4)]) {
            let (head, _) = entry(ptx::text(kernel.module), kernel.name);
            assert!(head.contains(&format!("{}_param_0[{}]", kernel.name, args(&vec![0; fields]).len())), "{head}");
            assert!(head.contains(&format!(".maxntid {}, 1, 1", kernel.threads)), "{head}");
        }
    }

    /// What a repeat is counted for is what the compiler left of it.
    #[test]
    fn kernels_do_what_they_are_counted_for() {
        let count = |name, what| entry(ptx::text("peaks"), name).1.matches(what).count() as u64;
        // tiles of 16 by 8, by a warp: operations in one of them, for each thread
        for (work, what, each) in [
            (&FFMA, "fma.rn.f32", 2),
            (&MMA_F16, "m16n8k16", 16 * 8 * 16 * 2 / 32),
            (&MMA_TF32, "m16n8k8", 16 * 8 * 8 * 2 / 32),
            (&MMA_S8, "m16n8k32", 16 * 8 * 32 * 2 / 32),
        ] {
            assert_eq!(count(work.kernel.name, what) * each, work.each, "{}", work.kernel.name);
        }
        // eight and those at the end, all of them past the first-level cache; and no two threads write the same word
        assert_eq!((count(READ.name, "ld.global.cg.v4"), count(READ.name, "ld.global"), count(READ.name, "atom")), (9, 9, 0));
    }
}
