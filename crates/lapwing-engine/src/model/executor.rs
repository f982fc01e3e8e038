//! The executor of a model's plan: the CPU's, or a GPU's with the CPU's behind it where a fallback is allowed.

use super::on_gpu::OnGpu;
use crate::EngineError;
use crate::cpu::{CpuExecutor, CpuState};
use crate::exec::{Batch, Fallback, Placement, RunError};
use crate::plan::Plan;

/// Why a batch could not be run.
#[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "only a GPU ends a model"))]
pub(super) enum Fault {
    /// The batch is at fault.
    Batch(RunError),
    /// The device: the model cannot run any more, or this batch is too large for it.
    Engine(EngineError),
}

/// The working memory of one thread.
#[derive(Debug, Default)]
pub(super) struct Memory {
    pub(super) cpu: CpuState,
    pub(super) gpu: crate::gpu::CudaState,
}

/// What runs a plan.
#[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "no plan runs on a GPU"))]
#[derive(Debug)]
pub(super) enum PlanExecutor {
    /// The CPU; with the reason, if a GPU was looked for.
    Cpu(Box<CpuExecutor>, Option<Fallback>),
    /// A GPU.
    Gpu(Box<OnGpu>),
}

/// What came of placing a plan on a GPU.
#[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "nothing is placed on a GPU"))]
pub(super) enum Placing {
    /// It runs there.
    Placed(PlanExecutor),
    /// It does not; with the reason, if a GPU was looked for.
    NotPlaced(Plan, Option<Fallback>),
}

impl PlanExecutor {
    pub(super) fn plan(&self) -> &Plan {
        match self {
            Self::Cpu(executor, _) => executor.plan(),
            Self::Gpu(gpu) => gpu.executor().plan(),
        }
    }

    /// The CPU's executor, if it runs the plan.
    pub(super) fn on_cpu(&self) -> Option<&CpuExecutor> {
        match self {
            Self::Cpu(executor, _) => Some(executor),
            Self::Gpu(gpu) => gpu.moved().map(|(executor, _)| executor),
        }
    }

    /// The GPU's executor, if it runs the plan.
    pub(super) fn on_gpu(&self) -> Option<&crate::gpu::CudaExecutor> {
        match self {
            Self::Gpu(gpu) if gpu.moved().is_none() => Some(gpu.executor()),
            _ => None,
        }
    }

    /// Whether the plan has moved to the CPU since this placement was taken.
    pub(super) fn has_moved(&self, placement: &Placement) -> bool {
        match self {
            Self::Cpu(..) => false,
            Self::Gpu(gpu) => placement.fallback.is_none() && gpu.moved().is_some(),
        }
    }

    pub(super) fn placement(&self) -> Placement {
        match self {
            Self::Cpu(executor, fallback) => on_cpu(executor, fallback.as_ref()),
            Self::Gpu(gpu) => gpu.placement(),
        }
    }

    /// Runs a batch; outputs that are not wanted may become empty.
    pub(super) fn run(
        &self,
        memory: &mut Memory,
        batch: &Batch<'_>,
        wanted: &[bool],
        outputs: &mut Vec<Vec<f32>>,
    ) -> Result<(), Fault> {
        match self {
            Self::Cpu(executor, _) => executor.run(&mut memory.cpu, batch, outputs).map_err(Fault::Batch),
            Self::Gpu(gpu) => gpu.run(memory, batch, wanted, outputs),
        }
    }
}

/// The placement of a plan that this CPU executor runs.
pub(super) fn on_cpu(executor: &CpuExecutor, fallback: Option<&Fallback>) -> Placement {
    let precision = executor.options().precision.name();
    Placement { device: "cpu".into(), device_name: None, precision, fallback: fallback.cloned(), fault: None }
}
