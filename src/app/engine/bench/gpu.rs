//! A benchmark on a GPU: which one, what it can do at best, and how long the parts of a case take there. Nothing is measured on a
//! device that only looks like one.

use std::time::Duration;

use super::super::cli::{BenchArgs, Device, Products, Runs};
use super::rows::{Case, DeviceUs, GpuPeaksRow, NodeUs, OnGpu, Run, Work};
use super::{Shape, ToolError};
use lapwing_engine::Model;
use lapwing_engine::cpu;
use lapwing_engine::gpu::peaks::{Floors, Peaks, Setup};
use lapwing_engine::gpu::{Executor, GemmPolicy, LIBRARY, Precision, RunTimings, Wish};
use lapwing_engine::model::Workspace;
use lapwing_engine::plan::Size;
use lapwing_engine::roofline::Roofline;
use lapwing_engine::tensor::Tensor;

/// Runs whose parts are looked at.
const LOOKS: usize = 50;
/// Empty kernels by which the cost of one is told.
const EMPTY: usize = 64;

/// What is asked of a GPU.
pub(super) fn wish(args: &BenchArgs) -> Result<Option<Wish>, ToolError> {
    let directory = args.cuda_lib_dir.as_deref();
    let precision = args.precision.into();
    let by = |wish: Wish| if args.gemm == Products::Own { Wish { gemm: GemmPolicy::Own, ..wish } } else { wish };
    match args.device {
        Device::Cpu => Ok(None),
        // tract runs on the processor only
        Device::Auto if args.executor == Runs::Tract => Ok(None),
        Device::Auto => Ok(Some(by(Wish::auto(directory, precision)))),
        Device::Cuda(ordinal) => {
            let asked = |reason: String| ToolError::argument("device", format!("{}: {reason}", args.device));
            let wish = Wish::device(directory, ordinal, precision).map_err(|error| asked(error.to_string()))?;
            match &wish.device {
                Ok(device) if device.is_emulated() => {
                    let name = &device.info().name;
                    Err(ToolError::told(format!("device: {} is {name}, which is never measured", args.device)))
                }
                _ => Ok(Some(by(wish))),
            }
        }
    }
}

/// The same with the ranges that were found for 8 bits.
pub(super) fn calibrated(wish: Wish, precision: &cpu::Precision) -> Wish {
    match precision {
        cpu::Precision::Fp32 => wish,
        cpu::Precision::Int8(_) => Wish { precision: Precision::calibrated(precision), ..wish },
    }
}

/// A GPU that was measured.
#[derive(Debug)]
pub(super) struct Gpu {
    name: String,
    driver: String,
    peaks: Peaks,
    floors: Floors,
}

impl Gpu {
    pub(super) fn new(executor: &Executor) -> Result<Self, ToolError> {
        let device = executor.device();
        let setup = Setup::of(device).map_err(ToolError::told)?;
        Ok(Self {
            name: device.info().name.clone(),
            driver: device.driver().to_string(),
            peaks: Peaks::measure(device, &setup).map_err(ToolError::told)?,
            floors: Floors::new(device).map_err(ToolError::told)?,
        })
    }

    pub(super) fn row(&mut self, run: &Run) -> Result<GpuPeaksRow, ToolError> {
        let peaks = &self.peaks;
        Ok(GpuPeaksRow {
            case: "peaks",
            device: run.device.clone(),
            device_name: self.name.clone(),
            driver: self.driver.clone(),
            fp32_flops_per_s: peaks.fp32_flops_per_s,
            tf32_flops_per_s: peaks.tf32_flops_per_s,
            fp16_flops_per_s: peaks.fp16_flops_per_s,
            int8_ops_per_s: peaks.int8_ops_per_s,
            l2_bytes_per_s: peaks.l2_bytes_per_s,
            dram_bytes_per_s: peaks.dram_bytes_per_s,
            l2_bytes: peaks.l2_bytes,
            launch_us: us(self.floors.of(EMPTY).map_err(ToolError::told)?) / EMPTY as f64,
            spread: peaks.spread,
        })
    }

    /// What a batch has to do, and how long its parts take.
    pub(super) fn case(
        &mut self,
        model: &Model,
        workspace: &mut Workspace,
        shape: Shape,
        inputs: &[Tensor],
        samples: bool,
    ) -> Result<Case, ToolError> {
        let gone = || ToolError::told("the model is not on the GPU any more");
        let pieces = model.gpu_pieces(workspace, &[inputs], LOOKS)?.ok_or_else(gone)?;
        let executor = model.gpu_executor().ok_or_else(gone)?;
        let account = executor.account(Size::uniform(shape.batch, shape.length.unwrap_or(1))).map_err(ToolError::told)?;
        let floor = self.floors.of(account.kernels).map_err(ToolError::told)?;
        // so that all nodes together have what was measured
        let launch_ns = floor.as_secs_f64() * 1e9 / account.nodes.len().max(1) as f64;
        let ceiling = self.peaks.ceiling(account.weight_bytes.saturating_add(account.arena_bytes), launch_ns);
        let roofline = Roofline::of(account.nodes.iter().copied(), &ceiling);
        let work = Work {
            flops: Some(roofline.flops),
            min_bytes: Some(account.total.min_bytes),
            roofline: Some(roofline),
            elapsed_ns: Some(pieces.times.kernels.as_secs_f64() * 1e9),
        };
        let mark = if samples { Some(self.floors.mark(account.kernels).map_err(ToolError::told)?) } else { None };
        let on_gpu = OnGpu {
            gemm: if pieces.steps.iter().any(|piece| piece.kernel == LIBRARY) { LIBRARY } else { "own" },
            kernels: account.kernels,
            device_us: DeviceUs {
                all: us(pieces.times.all),
                to_device: us(pieces.times.to_device),
                kernels: us(pieces.times.kernels),
                to_host: us(pieces.times.to_host),
            },
            stage_us: us(pieces.stage),
            launch_us: us(pieces.launch),
            launch_floor_us: us(floor),
            mark_us: mark.map(us),
            nodes_us: samples.then(|| nodes(executor, &pieces)),
        };
        Ok(Case { work, on_gpu: Some(on_gpu) })
    }
}

fn nodes(executor: &Executor, pieces: &RunTimings) -> Vec<NodeUs> {
    let named = |piece: &lapwing_engine::gpu::StepTiming| {
        let node = executor.plan().nodes.get(piece.node);
        NodeUs {
            node: node.map_or_else(String::new, |node| node.name.clone()),
            op: node.map_or("", |node| node.op.name()),
            kernel: piece.kernel,
            us: us(piece.time),
        }
    };
    pieces.steps.iter().map(named).collect()
}

/// Microseconds.
fn us(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
