//! The interface of executors: what runs a model says of itself, and what it needs of a thread. Plans on the CPU and on a GPU, rten,
//! ONNX Runtime and classical models implement it; [`Model`](super::Model) asks nothing else.

use std::fmt;
use std::sync::Arc;

use ::rten::ThreadPool;

use super::batch::{self, BatchInput, BatchResult, CallWork};
use super::image_memory::ImageMemory;
use super::rten_threads::RtenThreads;
use lapwing_engine::cpu::{CpuExecutor, CpuState};
use lapwing_engine::gpu::{CudaExecutor, CudaState};
use lapwing_engine::placement::Placement;
use lapwing_onnx::tensor::{Tensor, TensorSpec};
use lapwing_onnx::{EngineError, GraphWork};
use lapwing_plan::plan::Plan;
use lapwing_tabular::TabularState;

/// Who runs a model, as headers, metrics and JSON name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExecutorName {
    /// The model's plan, by this engine's kernels.
    Plan,
    /// The file, by rten, which is in this program.
    Rten,
    /// The file, by ONNX Runtime's library.
    OnnxRuntime,
    /// Trees and other classical models, by this engine's kernels.
    Tabular,
}

impl ExecutorName {
    /// Every executor.
    pub const ALL: [Self; 4] = [Self::Plan, Self::Rten, Self::OnnxRuntime, Self::Tabular];

    /// `plan`, `rten`, `onnxruntime` or `tabular`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plan => "plan",
            Self::Rten => "rten",
            Self::OnnxRuntime => "onnxruntime",
            Self::Tabular => "tabular",
        }
    }
}

impl fmt::Display for ExecutorName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What runs a model. Any number of threads may run it at once, each with a [`Workspace`] of its own.
pub trait Executor: fmt::Debug + Send + Sync {
    /// Its name.
    fn name(&self) -> ExecutorName;

    /// The model's inputs, in the order in which [`Self::run`] takes them.
    fn inputs(&self) -> &[TensorSpec];

    /// The model's outputs, in the order in which [`Self::run`] gives them.
    fn outputs(&self) -> &[TensorSpec];

    /// Whether [`Self::run`] runs several calls as one batch: only if their rows are known to be independent.
    fn batches(&self) -> bool {
        false
    }

    /// The size of a call whose tensors fit their ports, in the order of [`Self::inputs`].
    ///
    /// # Errors
    ///
    /// [`EngineError::Input`] names the tensor that does not fit the others. Without a plan nothing is known of that.
    fn accept(&self, inputs: &[Tensor]) -> Result<CallWork, EngineError> {
        Ok(batch::rows(inputs))
    }

    /// Where it runs now, and in which precision. Only a run may change it.
    fn placement(&self) -> Arc<Placement>;

    /// Runs accepted calls for the `wanted` outputs; the others may have no elements.
    ///
    /// # Errors
    ///
    /// [`EngineError::Input`] if a value is invalid for the model, [`EngineError::Run`] if the run fails, [`EngineError::Device`] if the
    /// model cannot run any more.
    fn run(&self, workspace: &mut Workspace, calls: &[&[Tensor]], wanted: &[bool]) -> Result<BatchResult, EngineError>;

    /// What a user has to know of the way in which it computes, each in one sentence.
    fn notes(&self) -> &[String] {
        &[]
    }

    /// The threads in which a workspace's runs happen, if they are not the caller's: whoever runs many calls does that in them, and saves
    /// the hand-over of each.
    fn host(&self, _workspace: &mut Workspace) -> Option<Arc<ThreadPool>> {
        None
    }

    /// The work of a run of `rows` rows, where the executor counts it itself.
    fn work(&self, _rows: usize) -> Option<GraphWork> {
        None
    }

    /// The plan that it runs, if it runs one: tokens, positions and cost are known of plans only.
    fn plan(&self) -> Option<&Plan> {
        None
    }

    /// The executor of a plan on the CPU, if that is what runs now; for tools.
    fn cpu_executor(&self) -> Option<&CpuExecutor> {
        None
    }

    /// The executor of a plan on a GPU, if that is what runs now; for tools.
    fn gpu_executor(&self) -> Option<&CudaExecutor> {
        None
    }
}

/// The working memory of one thread that runs a model.
#[derive(Debug, Default)]
pub struct Workspace {
    pub(crate) batch: BatchInput,
    pub(crate) cpu: CpuState,
    pub(crate) gpu: CudaState,
    pub(crate) outputs: Vec<Vec<f32>>,
    pub(crate) rten: RtenThreads,
    pub(crate) images: ImageMemory,
    pub(crate) tabular: TabularState,
}
