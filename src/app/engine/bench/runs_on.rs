//! The device that runs the model, the CPU or a GPU, and its peaks.

use super::super::error::ToolError;
use super::super::shapes::Shape;
use super::gpu::Gpu;
use super::loaded::Loaded;
use super::rows::{BatchWork, Case, CpuPeaksRow, PeaksRow, Run};
use lapwing_engine::cpu::CpuOptions;
use lapwing_engine::cpu::peaks::Peaks;
use lapwing_model::Workspace;
use lapwing_onnx::tensor::Tensor;
use lapwing_plan::plan::BatchSize;
use lapwing_plan::roofline::Roofline;

/// The device that runs a model.
pub(crate) enum Machine {
    Cpu(Box<Peaks>),
    Gpu(Box<Gpu>),
}

impl Machine {
    /// Measures the device that runs the model.
    pub(crate) fn of(loaded: &Loaded, options: &CpuOptions) -> Result<Self, ToolError> {
        if let Some(executor) = loaded.model.gpu_executor() {
            return Ok(Self::Gpu(Box::new(Gpu::new(executor)?)));
        }
        Ok(Self::Cpu(Box::new(Peaks::of(options).map_err(ToolError::told)?)))
    }

    pub(crate) const fn is_gpu(&self) -> bool {
        !matches!(self, Self::Cpu(_))
    }

    pub(crate) fn row(&mut self, run: &Run, options: &CpuOptions) -> Result<PeaksRow, ToolError> {
        match self {
            Self::Cpu(peaks) => Ok(PeaksRow::Cpu(CpuPeaksRow::new(run, options, peaks))),
            Self::Gpu(gpu) => gpu.row(run).map(PeaksRow::Gpu),
        }
    }

    /// The work of a batch; on a GPU, also how long its parts take.
    pub(crate) fn case(
        &mut self,
        loaded: &Loaded,
        workspace: &mut Workspace,
        shape: Shape,
        inputs: &[Tensor],
        samples: bool,
    ) -> Result<Case, ToolError> {
        match self {
            Self::Cpu(peaks) => Ok(Case { work: cpu_work(loaded, shape, peaks), on_gpu: None }),
            Self::Gpu(gpu) => gpu.case(&loaded.model, workspace, shape, inputs, samples),
        }
    }
}

/// The work of a batch. Of a model without a plan, at most the FLOPs are known.
fn cpu_work(loaded: &Loaded, shape: Shape, peaks: &Peaks) -> BatchWork {
    let Some(executor) = loaded.model.plan_executor() else {
        let work = loaded.model.work(shape.batch, shape.length.unwrap_or(1));
        return BatchWork::unknown(work.filter(|work| !work.misses_products).map(|work| work.flops));
    };
    let size = BatchSize::uniform(shape.batch, shape.length.unwrap_or(1));
    let cost = executor.execution_cost(size);
    // the memory that every run touches: weights, inputs, outputs and the values between nodes
    let touched = usize::try_from(cost.total.min_bytes).unwrap_or(usize::MAX);
    let ceiling = peaks.ceiling(touched.saturating_add(cost.arena_bytes));
    let roofline = Roofline::of(cost.nodes, &ceiling);
    BatchWork { flops: Some(roofline.flops), min_bytes: Some(cost.total.min_bytes), roofline: Some(roofline), elapsed_ns: None }
}
