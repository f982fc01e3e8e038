//! Where a plan runs: on the processor, or on a GPU with the processor behind it, if that may be.

#[cfg(feature = "cuda")]
use crate::EngineError;
use crate::cpu::{Batch, Executor, RunError, State};
use crate::plan::Plan;
use crate::standing::{Fallback, Standing};

#[cfg(feature = "cuda")]
use super::gpu::OnGpu;

/// Why a batch could not be run.
pub(super) enum Fault {
    /// The batch is at fault.
    Batch(RunError),
    /// All of it: the model cannot run any more, or this batch is too large for the device.
    #[cfg(feature = "cuda")]
    Engine(EngineError),
}

/// What one thread needs.
#[derive(Debug, Default)]
pub(super) struct Memory {
    pub(super) cpu: State,
    #[cfg(feature = "cuda")]
    pub(super) gpu: crate::gpu::State,
}

/// A plan on what runs it.
#[derive(Debug)]
pub(super) enum On {
    /// The processor; why, if a GPU was looked for.
    Cpu(Box<Executor>, Option<Fallback>),
    /// A GPU.
    #[cfg(feature = "cuda")]
    Gpu(Box<OnGpu>),
}

impl On {
    pub(super) const fn plan(&self) -> &Plan {
        match self {
            Self::Cpu(executor, _) => executor.plan(),
            #[cfg(feature = "cuda")]
            Self::Gpu(gpu) => gpu.executor().plan(),
        }
    }

    /// The processor's executor, if that is what runs the plan.
    pub(super) fn on_cpu(&self) -> Option<&Executor> {
        match self {
            Self::Cpu(executor, _) => Some(executor),
            #[cfg(feature = "cuda")]
            Self::Gpu(gpu) => gpu.moved().map(|(executor, _)| executor),
        }
    }

    /// The GPU's executor, if that is what runs the plan.
    #[cfg(feature = "cuda")]
    pub(super) fn on_gpu(&self) -> Option<&crate::gpu::Executor> {
        match self {
            Self::Gpu(gpu) if gpu.moved().is_none() => Some(gpu.executor()),
            _ => None,
        }
    }

    /// Whether it runs elsewhere than this says.
    #[cfg(feature = "cuda")]
    pub(super) fn has_moved(&self, standing: &Standing) -> bool {
        match self {
            Self::Cpu(..) => false,
            Self::Gpu(gpu) => standing.fallback.is_none() && gpu.moved().is_some(),
        }
    }

    pub(super) fn standing(&self) -> Standing {
        match self {
            Self::Cpu(executor, fallback) => on_cpu(executor, fallback.as_ref()),
            #[cfg(feature = "cuda")]
            Self::Gpu(gpu) => gpu.standing(),
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
        let _ = wanted;
        match self {
            Self::Cpu(executor, _) => executor.run(&mut memory.cpu, batch, outputs).map_err(Fault::Batch),
            #[cfg(feature = "cuda")]
            Self::Gpu(gpu) => gpu.run(memory, batch, wanted, outputs),
        }
    }
}

/// On the processor, by this executor.
pub(super) fn on_cpu(executor: &Executor, fallback: Option<&Fallback>) -> Standing {
    let precision = executor.options().precision.name();
    Standing { device: "cpu".into(), device_name: None, precision, fallback: fallback.cloned(), fault: None }
}
