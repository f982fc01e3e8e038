//! How a model is run, and what comes of placing its plan on a GPU.

use crate::choice::Backend;
use lapwing_engine::placement::Fallback;
use lapwing_plan::EngineError;
use lapwing_plan::exec::RunError;
use lapwing_plan::plan::Plan;

/// How a model is run.
#[derive(Clone, Debug, Default)]
pub struct ModelOptions {
    /// What runs it.
    pub backend: Backend,
    /// How the CPU runs its plan.
    pub plan: lapwing_engine::cpu::CpuOptions,
    /// The request for a GPU; `None` runs models on the CPU.
    pub gpu: Option<lapwing_engine::gpu::DeviceRequest>,
}

impl ModelOptions {
    /// Threads of a forward pass.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.plan.threads.count()
    }
}

/// What came of placing a plan on a GPU.
#[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "nothing is placed on a GPU"))]
pub(crate) enum Placing<G> {
    /// It runs there.
    Placed(G),
    /// It does not; with the reason, if a GPU was looked for.
    NotPlaced(Plan, Option<Fallback>),
}

/// Why a batch could not be run on a GPU.
#[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "only a GPU ends a model"))]
pub(crate) enum Fault {
    /// The batch is at fault.
    Batch(RunError),
    /// The device: the model cannot run any more, or this batch is too large for it.
    Engine(EngineError),
}
