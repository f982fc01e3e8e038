//! A benchmark on a GPU: the GPU, its peaks, and how long the parts of a case take there.

use std::time::Duration;

use super::rows::{BatchWork, Case, DeviceUs, GpuPeaksRow, NodeUs, OnGpu, Run};
use super::{Shape, ToolError};
use lapwing_engine::gpu::peaks::{GpuPeakSetup, GpuPeaks, LaunchFloors};
use lapwing_engine::gpu::{CudaExecutor, LIBRARY, RunTimings};
use lapwing_model::{Model, Workspace};
use lapwing_onnx::tensor::Tensor;
use lapwing_plan::plan::BatchSize;
use lapwing_plan::roofline::Roofline;

/// Runs whose parts are timed.
const LOOKS: usize = 50;
/// Empty kernels by which the cost of one launch is measured.
const EMPTY: usize = 64;

/// A GPU that was measured.
#[derive(Debug)]
pub(crate) struct Gpu {
    name: String,
    driver: String,
    peaks: GpuPeaks,
    floors: LaunchFloors,
}

impl Gpu {
    pub(crate) fn new(executor: &CudaExecutor) -> Result<Self, ToolError> {
        let device = executor.device();
        let setup = GpuPeakSetup::of(device).map_err(ToolError::told)?;
        Ok(Self {
            name: device.info().name.clone(),
            driver: device.driver().to_string(),
            peaks: GpuPeaks::measure(device, &setup).map_err(ToolError::told)?,
            floors: LaunchFloors::new(device).map_err(ToolError::told)?,
        })
    }

    pub(crate) fn row(&mut self, run: &Run) -> Result<GpuPeaksRow, ToolError> {
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

    /// The work of a batch, and how long its parts take.
    pub(crate) fn case(
        &mut self,
        model: &Model,
        workspace: &mut Workspace,
        shape: Shape,
        inputs: &[Tensor],
        samples: bool,
    ) -> Result<Case, ToolError> {
        let gone = || ToolError::told("the model is not on the GPU any more");
        let pieces = model.gpu_timings(workspace, &[inputs], LOOKS)?.ok_or_else(gone)?;
        let executor = model.gpu_executor().ok_or_else(gone)?;
        let cost =
            executor.execution_cost(BatchSize::uniform(shape.batch, shape.length.unwrap_or(1))).map_err(ToolError::told)?;
        let floor = self.floors.of(cost.kernels).map_err(ToolError::told)?;
        // divided among the nodes, so that their sum is what was measured
        let launch_ns = floor.as_secs_f64() * 1e9 / cost.nodes.len().max(1) as f64;
        let ceiling = self.peaks.ceiling(cost.weight_bytes.saturating_add(cost.arena_bytes), launch_ns);
        let roofline = Roofline::of(cost.nodes.iter().copied(), &ceiling);
        let work = BatchWork {
            flops: Some(roofline.flops),
            min_bytes: Some(cost.total.min_bytes),
            roofline: Some(roofline),
            elapsed_ns: Some(pieces.times.kernels.as_secs_f64() * 1e9),
        };
        let mark = if samples { Some(self.floors.mark(cost.kernels).map_err(ToolError::told)?) } else { None };
        let on_gpu = OnGpu {
            gemm: if pieces.steps.iter().any(|piece| piece.kernel == LIBRARY) { LIBRARY } else { "own" },
            kernels: cost.kernels,
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

fn nodes(executor: &CudaExecutor, pieces: &RunTimings) -> Vec<NodeUs> {
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
