//! How a model is run, and what comes of placing its plan on a GPU.

use super::batch_axis::BatchTrial;
use crate::choice::{Backend, ProviderChoice};
use lapwing_engine::onnxruntime::{LibraryError, Runtime};
use lapwing_engine::placement::Fallback;
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
    /// ONNX Runtime's library, or why there is none to use; `None` if it was not looked for.
    pub onnxruntime: Option<Result<Runtime, LibraryError>>,
    /// What runs the nodes of models in ONNX Runtime.
    pub provider: ProviderChoice,
    /// Why no plan is to be made of the file although `backend` is `auto`: its import ended the process that tried it.
    pub unreadable: Option<String>,
    /// Whether a model that another executor runs is held against ONNX Runtime when it is loaded, if there is a library.
    pub verify: bool,
    /// Whether a model that another executor runs is timed beside ONNX Runtime when it is loaded, if there is a library; `auto` moves it
    /// where that is faster.
    pub measure: bool,
    /// How it is found whether calls of a model without a plan may run as one; `None` runs them one after the other.
    pub batch_trial: Option<BatchTrial>,
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
