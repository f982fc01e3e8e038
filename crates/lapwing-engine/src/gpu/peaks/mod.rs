//! Measures a GPU's peak rates before a benchmark, with the kernels of kernels/peaks.cu and the device's own clock:
//! operations a second, bytes a second from DRAM and from the second-level cache, and the time of empty kernels. The
//! best of several windows counts, because noise only lowers a rate.
//!
//! - **Operations**: independent chains in registers: fp32 multiply-adds, and tensor-core tiles. fp32 is measured first
//!   and last, after a warm-up, because an idle device runs at low clocks.
//! - **Bytes**: a buffer that is *read* repeatedly: one that fits the second-level cache from every multiprocessor, and
//!   one well above its size.
//! - **Launch**: a graph of as many empty kernels as a program has, from the event before the first to the event after
//!   the last.

mod floor;

use std::sync::Arc;
use std::time::Duration;

use super::device::{CudaDevice, DeviceBuffer, DeviceError, Event, Function, LaunchShape, Modules, Stream};
use super::kernel::Kernel;
use super::ptx;
use crate::clock::Stamp;
use lapwing_plan::roofline::Ceiling;

pub use floor::LaunchFloors;

/// A plan counts as cached up to this share of the second-level cache; the rest is left for other traffic. If the cache
/// has two partitions (see [`GpuPeakSetup::of`]), a plan of more than half of it may not fit: lines that one partition's
/// multiprocessors read from the other partition are stored twice. Some reads then come from DRAM, the assumed
/// bandwidth is too high, and the utilisation comes out too low.
pub const L2_SHARE: f64 = 0.8;
/// Threads per block of all measuring kernels.
const THREADS: u32 = 256;
/// The most repeats of a kernel: seconds on the slowest device, so that a stopped clock ends the measurement only.
const MOST_REPEATS: u64 = 1 << 20;
/// Reading blocks per multiprocessor: as many as are resident at a time on every device (see peak_read).
const READERS: u32 = 4;
/// The most 16-byte loads that peak_read can count.
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

/// A kernel that measures arithmetic.
struct Arithmetic {
    kernel: Kernel,
    /// Blocks per multiprocessor.
    blocks: u32,
    /// Operations per thread and repeat.
    each: u64,
}

impl Arithmetic {
    const fn grid(&self, setup: &GpuPeakSetup) -> u32 {
        setup.processors * self.blocks
    }

    /// The output pointer is null, because the result is not needed.
    fn args(&self, repeats: u64) -> Vec<u8> {
        args(&[0, 0, repeats])
    }
}

/// The parameters of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuPeakSetup {
    /// Multiprocessors to use.
    pub processors: u32,
    /// Size of the second-level cache, in bytes.
    pub l2_bytes: usize,
    /// Size of the buffer that measures the cache, in bytes.
    pub l2_block_bytes: usize,
    /// Size of the buffer that measures DRAM, in bytes.
    pub dram_bytes: usize,
    /// Number of windows of each measurement, at least one.
    pub windows: usize,
    /// The least length of a window.
    pub window: Duration,
    /// Duration of the warm-up.
    pub busy: Duration,
}

/// More than clocks need to rise.
const WARM_UP: Duration = Duration::from_millis(200);

/// Whether devices of this compute capability have a second-level cache in two partitions, where lines of the far
/// partition are also kept in the near one (A100, H100 and the like). Then only a quarter of its size is surely near
/// every multiprocessor.
const fn is_split(capability: (u32, u32)) -> bool {
    matches!(capability, (8 | 9, 0) | (10, _))
}

impl GpuPeakSetup {
    /// The parameters for this device. The cache buffer is half of the cache, or a quarter if the cache has two
    /// partitions; the DRAM buffer is eight times the cache, but at most a quarter of the free memory.
    ///
    /// # Errors
    ///
    /// The device failed.
    pub fn of(device: &CudaDevice) -> Result<Self, DeviceError> {
        let info = device.info();
        if device.is_emulated() {
            // the results are meaningless; tests check only that the measurement runs
            let window = Duration::from_nanos(1);
            let (l2_bytes, l2_block_bytes, dram_bytes) = (1 << 17, 1 << 16, 1 << 18);
            return Ok(Self { processors: 1, l2_bytes, l2_block_bytes, dram_bytes, windows: 2, window, busy: WARM_UP });
        }
        let l2_bytes = usize::try_from(info.l2_bytes).unwrap_or(usize::MAX).max(1 << 20);
        let free = usize::try_from(device.memory()?.free_bytes).unwrap_or(usize::MAX);
        let dram_bytes = l2_bytes.saturating_mul(8).clamp(64 << 20, 1 << 30).min(free / 4).max(1 << 20);
        let processors = info.multiprocessors.max(1);
        let l2_block_bytes = l2_bytes / if is_split(info.capability) { 4 } else { 2 };
        Ok(Self { processors, l2_bytes, l2_block_bytes, dram_bytes, windows: 7, window: Duration::from_millis(2), busy: WARM_UP })
    }
}

/// A device's peak rates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GpuPeaks {
    /// Single-precision operations a second, a multiply-add as two.
    pub fp32_flops_per_s: f64,
    /// Tensor-core operations a second with mma.sync and tf32 factors. Devices of compute capability 9.0 and newer can
    /// do more with other instructions, which cublasLt uses and our kernels do not.
    pub tf32_flops_per_s: f64,
    /// The same with fp16 factors and fp32 sums.
    pub fp16_flops_per_s: f64,
    /// The same with 8-bit integers.
    pub int8_ops_per_s: f64,
    /// Bytes a second read from DRAM.
    pub dram_bytes_per_s: f64,
    /// Bytes a second read from the second-level cache.
    pub l2_bytes_per_s: f64,
    /// Size of the second-level cache, in bytes.
    pub l2_bytes: usize,
    /// How far the median window lies below the best in the noisiest measurement, as a share of the best.
    pub spread: f64,
}

impl GpuPeaks {
    /// Measures, in about 400 ms and with up to 1 GiB of device memory, which is freed afterwards.
    ///
    /// # Errors
    ///
    /// The device failed or has too little memory.
    pub fn measure(device: &Arc<CudaDevice>, setup: &GpuPeakSetup) -> Result<Self, DeviceError> {
        let bench = Bench::new(device, *setup)?;
        bench.busy()?;
        let mut fp32 = bench.operations(&FFMA)?;
        let tf32 = bench.operations(&MMA_TF32)?;
        let fp16 = bench.operations(&MMA_F16)?;
        let int8 = bench.operations(&MMA_S8)?;
        let l2 = bench.bytes(setup.l2_block_bytes)?;
        let dram = bench.bytes(setup.dram_bytes)?;
        // a gain since the first measurement counts as noise
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

    /// The ceiling of a plan whose weights and arena take `held_bytes`, with a launch overhead of `launch_ns` per node:
    /// its bandwidth is that of the second-level cache if they fit into [`L2_SHARE`] of it, else that of DRAM.
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

/// The resources that all measurements share.
struct Bench {
    setup: GpuPeakSetup,
    modules: Modules,
    stream: Stream,
    begin: Event,
    end: Event,
}

impl Bench {
    fn new(device: &Arc<CudaDevice>, setup: GpuPeakSetup) -> Result<Self, DeviceError> {
        let (stream, begin, end) = (Stream::new(device)?, Event::timed(device)?, Event::timed(device)?);
        Ok(Self { setup, modules: Modules::new(device), stream, begin, end })
    }

    /// Keeps all multiprocessors busy for the warm-up, so that clocks are those under load.
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

    /// Bytes a second read repeatedly from a buffer of about this size, in each window.
    fn bytes(&self, bytes: usize) -> Result<Vec<f64>, DeviceError> {
        let function = function(&self.modules, &READ)?;
        let pieces = (bytes / 16).clamp(1, MOST_PIECES);
        let grid = self.setup.processors * READERS;
        let device = self.stream.device();
        let block = DeviceBuffer::new(device, 16 * pieces)?;
        let sums = DeviceBuffer::new(device, 4 * (grid * READ.threads / 32) as usize)?;
        self.stream.fill(&block, 0, block.bytes(), 1)?;
        self.rates(block.bytes() as f64, |passes| {
            self.time(&function, &READ, grid, &args(&[block.address(), sums.address(), pieces as u64, passes]))
        })
    }

    /// Units a second in each window, with `each` units per repeat. Repeats are doubled until a window is long enough.
    fn rates(&self, each: f64, run: impl Fn(u64) -> Result<Duration, DeviceError>) -> Result<Vec<f64>, DeviceError> {
        let mut repeats = 1_u64;
        while let Some(more) = self.more(repeats, run(repeats)?) {
            repeats = more;
        }
        (0..self.setup.windows.max(1)).map(|_| Ok(each * repeats as f64 / run(repeats)?.as_secs_f64())).collect()
    }

    /// The next number of repeats, if `repeats` of them took less than a window.
    fn more(&self, repeats: u64, time: Duration) -> Option<u64> {
        (time < self.setup.window && 2 * repeats <= MOST_REPEATS).then_some(2 * repeats)
    }

    /// The duration of one launch.
    #[allow(unsafe_code, reason = "a launch passes addresses to the device")]
    fn time(&self, function: &Function, kernel: &Kernel, blocks: u32, args: &[u8]) -> Result<Duration, DeviceError> {
        let shape = LaunchShape { grid: (blocks, 1), threads: kernel.threads, shared_bytes: kernel.shared };
        self.stream.record(&self.begin)?;
        // SAFETY: the fields of PeakArgs, which refer to no memory, or of PeakReadArgs: a buffer of 16 bytes per load
        // and a word for each warp, both of which outlive the wait below
        unsafe { self.stream.launch(function, shape, args)? };
        self.stream.record(&self.end)?;
        self.stream.wait()?;
        self.end.since(&self.begin)
    }
}

/// A loaded measuring kernel.
fn function(modules: &Modules, kernel: &Kernel) -> Result<Arc<Function>, DeviceError> {
    modules.load(kernel.module, ptx::text(kernel.module))?.function(kernel.name)
}

/// The bytes of PeakArgs (data, out, count) or of PeakReadArgs (data, out, pieces, passes).
fn args(fields: &[u64]) -> Vec<u8> {
    fields.iter().copied().flat_map(u64::to_le_bytes).collect()
}

/// The best rate, and how far the median lies below it; zeros if nothing was measured, or no time passed.
fn best_of(rates: &[f64]) -> (f64, f64) {
    let mut rates: Vec<f64> = rates.iter().copied().filter(|rate| rate.is_finite()).collect();
    rates.sort_by(|a, b| b.total_cmp(a));
    let (Some(best), Some(median)) = (rates.first(), rates.get(rates.len() / 2)) else { return (0.0, 0.0) };
    (*best, 1.0 - median / best)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEAKS: GpuPeaks = GpuPeaks {
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
        // first and last measurement together: half of the windows were slow
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

    /// A kernel's header and body.
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

    /// The compiler kept exactly the operations that a repeat is counted for.
    #[test]
    fn kernels_do_what_they_are_counted_for() {
        let count = |name, what| entry(ptx::text("peaks"), name).1.matches(what).count() as u64;
        // a tile of 16 by 8 per warp: operations per thread
        for (work, what, each) in [
            (&FFMA, "fma.rn.f32", 2),
            (&MMA_F16, "m16n8k16", 16 * 8 * 16 * 2 / 32),
            (&MMA_TF32, "m16n8k8", 16 * 8 * 8 * 2 / 32),
            (&MMA_S8, "m16n8k32", 16 * 8 * 32 * 2 / 32),
        ] {
            assert_eq!(count(work.kernel.name, what) * each, work.each, "{}", work.kernel.name);
        }
        // eight loads and one for the remainder, all bypassing the first-level cache; and no two threads write the same
        // word
        assert_eq!((count(READ.name, "ld.global.cg.v4"), count(READ.name, "ld.global"), count(READ.name, "atom")), (9, 9, 0));
    }
}
