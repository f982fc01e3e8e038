//! The rows of a benchmark. docs/ENGINE.md documents the fields; their names are stable. Times are microseconds, rates per second.

use serde::Serialize;

use super::super::machine::percentile;
use super::super::shapes::Shape;
use lapwing_engine::cpu::gemm::int8::LevelI8;
use lapwing_engine::cpu::{CpuOptions, peaks::Peaks};
use lapwing_plan::roofline::{Efficiency, Roofline};

/// The fields that all rows of one model with one number of threads share.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Run {
    pub(crate) model: String,
    pub(crate) device: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) device_name: Option<String>,
    pub(crate) executor: &'static str,
    pub(crate) precision: &'static str,
    pub(crate) threads: usize,
    pub(crate) cpu_flags: String,
    pub(crate) processor: Option<String>,
    pub(crate) measured_at: String,
}

/// The work of a batch, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchWork {
    pub(crate) flops: Option<u64>,
    pub(crate) min_bytes: Option<u64>,
    pub(crate) roofline: Option<Roofline>,
    /// The time by which rates are computed: that of all kernels by the device's clock; `None` for the median pass.
    pub(crate) elapsed_ns: Option<f64>,
}

impl BatchWork {
    /// The work of a model of which at most the FLOPs are known.
    pub(crate) const fn unknown(flops: Option<u64>) -> Self {
        Self { flops, min_bytes: None, roofline: None, elapsed_ns: None }
    }
}

/// A case without its times.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) work: BatchWork,
    pub(crate) on_gpu: Option<OnGpu>,
}

/// Times of parts on a GPU.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct DeviceUs {
    pub(crate) all: f64,
    pub(crate) to_device: f64,
    pub(crate) kernels: f64,
    pub(crate) to_host: f64,
}

/// One kernel of a case.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct NodeUs {
    pub(crate) node: String,
    pub(crate) op: &'static str,
    pub(crate) kernel: &'static str,
    pub(crate) us: f64,
}

/// The fields that only a GPU's case has.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct OnGpu {
    pub(crate) gemm: &'static str,
    pub(crate) kernels: usize,
    pub(crate) device_us: DeviceUs,
    pub(crate) stage_us: f64,
    pub(crate) launch_us: f64,
    pub(crate) launch_floor_us: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mark_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) nodes_us: Option<Vec<NodeUs>>,
}

/// One case.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    #[serde(flatten)]
    pub(crate) run: Run,
    pub(crate) batch: usize,
    pub(crate) length: Option<usize>,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) flops: Option<u64>,
    pub(crate) bytes: Option<u64>,
    pub(crate) flops_per_s: Option<f64>,
    pub(crate) bytes_per_s: Option<f64>,
    pub(crate) bound: Option<&'static str>,
    pub(crate) utilisation: Option<f64>,
    pub(crate) optimum_us: Option<f64>,
    pub(crate) peak_suspect: Option<bool>,
    pub(crate) batch_speed_up: Option<f64>,
    pub(crate) batch_efficiency: Option<f64>,
    pub(crate) min_bytes: Option<u64>,
    pub(crate) runs: usize,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub(crate) on_gpu: Option<OnGpu>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) samples_us: Option<Vec<f64>>,
}

impl Row {
    /// Of a case's times, sorted, and of the median of one row at the same length, if that is known.
    pub(crate) fn new(run: &Run, shape: Shape, sorted_ns: &[u64], work: &BatchWork, one_ns: Option<u64>) -> Self {
        let (p50, p99) = (percentile(sorted_ns, 0.5) as f64, percentile(sorted_ns, 0.99) as f64);
        let elapsed = work.elapsed_ns.unwrap_or(p50);
        let reached = work.roofline.and_then(|roofline| roofline.reached(elapsed));
        let batched = one_ns.and_then(|one| Efficiency::of(shape.batch, one as f64, p50));
        Self {
            run: run.clone(),
            batch: shape.batch,
            length: shape.length,
            p50_us: p50 / 1e3,
            p99_us: p99 / 1e3,
            flops: work.flops,
            bytes: work.roofline.map(|roofline| roofline.bytes),
            flops_per_s: work.flops.filter(|_| elapsed > 0.0).map(|flops| flops as f64 * 1e9 / elapsed),
            bytes_per_s: reached.map(|reached| reached.bytes_per_s),
            bound: work.roofline.map(|roofline| roofline.bound.name()),
            utilisation: reached.map(|reached| reached.utilisation),
            optimum_us: work.roofline.map(|roofline| roofline.optimum_ns / 1e3),
            peak_suspect: reached.map(|reached| reached.peak_suspect),
            batch_speed_up: batched.map(|batched| batched.speed_up),
            batch_efficiency: batched.map(|batched| batched.efficiency),
            min_bytes: work.min_bytes,
            runs: sorted_ns.len(),
            on_gpu: None,
            samples_us: None,
        }
    }
}

/// The cold start: from nothing to the first answer.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ColdStart {
    #[serde(flatten)]
    pub(crate) run: Run,
    pub(crate) case: &'static str,
    pub(crate) batch: usize,
    pub(crate) length: Option<usize>,
    pub(crate) load_us: f64,
    pub(crate) first_us: f64,
}

impl ColdStart {
    pub(crate) fn new(run: &Run, shape: Shape, load_ns: u64, first_ns: u64) -> Self {
        let (load_us, first_us) = (load_ns as f64 / 1e3, first_ns as f64 / 1e3);
        Self { run: run.clone(), case: "cold_start", batch: shape.batch, length: shape.length, load_us, first_us }
    }
}

/// The peaks of the device that runs the model.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum PeaksRow {
    Cpu(CpuPeaksRow),
    Gpu(GpuPeaksRow),
}

/// The peaks of a GPU.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct GpuPeaksRow {
    pub(crate) case: &'static str,
    pub(crate) device: String,
    pub(crate) device_name: String,
    pub(crate) driver: String,
    pub(crate) fp32_flops_per_s: f64,
    pub(crate) tf32_flops_per_s: f64,
    pub(crate) fp16_flops_per_s: f64,
    pub(crate) int8_ops_per_s: f64,
    pub(crate) l2_bytes_per_s: f64,
    pub(crate) dram_bytes_per_s: f64,
    pub(crate) l2_bytes: usize,
    pub(crate) launch_us: f64,
    pub(crate) spread: f64,
}

/// The CPU's peaks with these threads.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct CpuPeaksRow {
    pub(crate) case: &'static str,
    pub(crate) device: &'static str,
    pub(crate) threads: usize,
    pub(crate) cpu_flags: String,
    pub(crate) level: &'static str,
    pub(crate) level_int8: &'static str,
    pub(crate) fp32_flops_per_s: f64,
    pub(crate) int8_ops_per_s: f64,
    pub(crate) l2_bytes_per_s: f64,
    pub(crate) llc_bytes_per_s: f64,
    pub(crate) dram_bytes_per_s: f64,
    pub(crate) l2_bytes: usize,
    pub(crate) llc_bytes: usize,
    pub(crate) launch_us: f64,
    pub(crate) spread: f64,
}

impl CpuPeaksRow {
    pub(crate) fn new(run: &Run, options: &CpuOptions, peaks: &Peaks) -> Self {
        Self {
            case: "peaks",
            device: "cpu",
            threads: run.threads,
            cpu_flags: run.cpu_flags.clone(),
            level: options.level.runnable().name(),
            level_int8: LevelI8::for_floats(options.level).name(),
            fp32_flops_per_s: peaks.flops_per_s,
            int8_ops_per_s: peaks.int8_ops_per_s,
            l2_bytes_per_s: peaks.l2_bytes_per_s,
            llc_bytes_per_s: peaks.llc_bytes_per_s,
            dram_bytes_per_s: peaks.dram_bytes_per_s,
            l2_bytes: peaks.l2_bytes,
            llc_bytes: peaks.llc_bytes,
            launch_us: peaks.launch_ns / 1e3,
            spread: peaks.spread.worst(),
        }
    }
}
