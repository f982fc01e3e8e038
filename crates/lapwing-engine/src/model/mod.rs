//! A model that is ready to answer calls: by its plan where it has one, else by tract. It takes tensors and returns tensors. A
//! model with a plan runs several calls as one batch, because a plan's rows are known to be independent.

mod executor;
#[cfg(feature = "cuda")]
mod on_gpu;
#[doc(hidden)]
pub mod onnx_properties;
mod planned;
mod ports;
mod traced;
#[cfg(not(feature = "cuda"))]
mod without_gpu;

use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use smallvec::SmallVec;

use self::executor::{Placing, PlanExecutor};
use self::planned::Planned;
use self::traced::Traced;
#[cfg(not(feature = "cuda"))]
use self::without_gpu as on_gpu;
use super::{EngineError, UnsupportedNode};
use crate::exec::{Backend, CpuPrecision, Fallback, Placement};
use crate::lower::lower;
use crate::onnx::Graph;
use crate::plan::Plan;
use crate::tensor::{Tensor, TensorSpec};

/// How a model is run.
#[derive(Clone, Debug, Default)]
pub struct ModelOptions {
    /// What runs it.
    pub backend: Backend,
    /// How the CPU runs its plan.
    pub plan: crate::cpu::CpuOptions,
    /// The request for a GPU; `None` runs models on the CPU.
    pub gpu: Option<crate::gpu::DeviceRequest>,
}

impl ModelOptions {
    /// Threads of a forward pass.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.plan.threads.count()
    }
}

/// The size of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallWork {
    /// Sequences; rows where the model has none.
    pub rows: usize,
    /// Tokens of all sequences, masked-out tokens included; rows where the model has no sequences.
    pub executed: usize,
    /// Tokens that are not masked out.
    pub useful: usize,
    /// FLOPs of executed tokens, and of useful ones; `None` where the model has no plan.
    pub flops: Option<(u64, u64)>,
}

/// The outputs of a batch, and where its time went.
#[derive(Clone, Debug, Default)]
pub struct BatchResult {
    /// The outputs of each call, in the model's order.
    pub outputs: Vec<Vec<Tensor>>,
    /// The time to concatenate the inputs, in nanoseconds.
    pub preprocessing_ns: u64,
    /// The time of the model, in nanoseconds.
    pub forward_ns: u64,
    /// The time to split the outputs, in nanoseconds.
    pub postprocessing_ns: u64,
}

/// The working memory of one thread that runs a model.
#[derive(Debug, Default)]
pub struct Workspace {
    planned: planned::Buffers,
}

/// A loaded model. Any number of threads may run it, each with a [`Workspace`] of its own.
#[derive(Debug)]
pub struct Model {
    inputs: Vec<TensorSpec>,
    outputs: Vec<TensorSpec>,
    unsupported: Option<UnsupportedNode>,
    runner: Runner,
    placement: Mutex<Arc<Placement>>,
}

/// What runs a model, the node that prevents a plan, and why the model is not on the requested GPU.
type Runnable = (Runner, Option<UnsupportedNode>, Option<Fallback>);

/// Which outputs are wanted, in the model's order.
pub type WantedOutputs = SmallVec<[bool; 8]>;

#[derive(Debug)]
enum Runner {
    Planned(Box<Planned>),
    Traced(Traced),
}

impl Model {
    /// Loads an ONNX file. Weights in separate files must be in its folder.
    ///
    /// # Errors
    ///
    /// [`EngineError`] names the part of the model that is at fault.
    pub fn read(path: &Path, options: &ModelOptions) -> Result<Self, EngineError> {
        Self::new(Graph::read(path)?, options)
    }

    /// Loads an ONNX model from memory.
    ///
    /// # Errors
    ///
    /// [`EngineError`] names the part of the model that is at fault.
    pub fn parse(bytes: &[u8], options: &ModelOptions) -> Result<Self, EngineError> {
        Self::new(Graph::parse(bytes, None)?, options)
    }

    /// Prepares a graph: lowers it to a plan and fuses the plan or, if it cannot be lowered, lets tract optimise it.
    ///
    /// # Errors
    ///
    /// [`EngineError::Model`] if neither is possible; [`EngineError::NoPlan`] if a plan is required and there is none.
    pub fn new(graph: Graph, options: &ModelOptions) -> Result<Self, EngineError> {
        let (inputs, outputs) = (ports::inputs(&graph)?, ports::outputs(&graph)?);
        let (runner, unsupported, fallback) = match plan(&graph, options.backend) {
            Ok(plan) => Self::by_plan(plan, graph, options)?,
            Err(node) => Self::by_tract(graph, node, options)?,
        };
        let placement = match &runner {
            Runner::Planned(planned) => Arc::new(planned.executor().placement()),
            Runner::Traced(_) => Arc::new(Placement { fallback, ..(*Placement::cpu("fp32")).clone() }),
        };
        Ok(Self { inputs, outputs, unsupported, runner, placement: Mutex::new(placement) })
    }

    fn by_plan(plan: Plan, graph: Graph, options: &ModelOptions) -> Result<Runnable, EngineError> {
        let (plan, fallback) = match on_gpu::place(plan, options)? {
            Placing::Placed(executor) => return Ok((Runner::Planned(Box::new(Planned::new(executor))), None, None)),
            Placing::NotPlaced(plan, fallback) => (plan, fallback),
        };
        match crate::cpu::CpuExecutor::new(plan, options.plan.clone()) {
            Ok(executor) => {
                Ok((Runner::Planned(Box::new(Planned::new(PlanExecutor::Cpu(Box::new(executor), fallback)))), None, None))
            }
            Err(e) => Self::by_tract(graph, UnsupportedNode { node: e.node, operator: "plan".into(), reason: e.reason }, options),
        }
    }

    fn by_tract(graph: Graph, unsupported: UnsupportedNode, options: &ModelOptions) -> Result<Runnable, EngineError> {
        if matches!(options.plan.precision, CpuPrecision::Int8(_)) {
            return Err(EngineError::NoPlan(unsupported));
        }
        let fallback = on_gpu::without_plan(&unsupported, options)?;
        Ok((Runner::Traced(Traced::new(graph)?), Some(unsupported), fallback))
    }

    /// Its inputs, in its own order.
    #[must_use]
    pub fn inputs(&self) -> &[TensorSpec] {
        &self.inputs
    }

    /// Its outputs, in its own order.
    #[must_use]
    pub fn outputs(&self) -> &[TensorSpec] {
        &self.outputs
    }

    /// `plan` or `tract`.
    #[must_use]
    pub const fn executor(&self) -> &'static str {
        match &self.runner {
            Runner::Planned(_) => "plan",
            Runner::Traced(_) => "tract",
        }
    }

    /// `fp32`, `tf32`, `fp16` or `int8`.
    #[must_use]
    pub fn precision(&self) -> &'static str {
        self.placement().precision
    }

    /// Where it runs now. Only a run may change it.
    #[must_use]
    pub fn placement(&self) -> Arc<Placement> {
        let mut placement = self.placement.lock();
        if let Runner::Planned(planned) = &self.runner
            && planned.executor().has_moved(&placement)
        {
            *placement = Arc::new(planned.executor().placement());
        }
        Arc::clone(&placement)
    }

    /// The node that prevents a plan, and why; `None` if the model has a plan.
    #[must_use]
    pub const fn unsupported(&self) -> Option<&UnsupportedNode> {
        self.unsupported.as_ref()
    }

    /// The plan, if it has one.
    #[must_use]
    pub fn plan(&self) -> Option<&Plan> {
        match &self.runner {
            Runner::Planned(planned) => Some(planned.plan()),
            Runner::Traced(_) => None,
        }
    }

    /// The executor on the CPU, if that runs its plan now.
    #[must_use]
    pub fn plan_executor(&self) -> Option<&crate::cpu::CpuExecutor> {
        match &self.runner {
            Runner::Planned(planned) => planned.executor().on_cpu(),
            Runner::Traced(_) => None,
        }
    }

    /// The executor on a GPU, if that runs its plan now.
    #[must_use]
    pub fn gpu_executor(&self) -> Option<&crate::gpu::CudaExecutor> {
        match &self.runner {
            Runner::Planned(planned) => planned.executor().on_gpu(),
            Runner::Traced(_) => None,
        }
    }

    /// Measures the times of the parts of `runs` runs on a GPU; `None` if no GPU runs the model.
    ///
    /// # Errors
    ///
    /// [`EngineError::Run`] says what is wrong with the calls or the device.
    pub fn gpu_timings(
        &self,
        workspace: &mut Workspace,
        calls: &[&[Tensor]],
        runs: usize,
    ) -> Result<Option<crate::gpu::RunTimings>, EngineError> {
        match &self.runner {
            Runner::Planned(planned) => planned.timings(&mut workspace.planned, calls, runs),
            Runner::Traced(_) => Ok(None),
        }
    }

    /// Checks that a call fits the model, puts its inputs in the model's order, and returns its size.
    ///
    /// # Errors
    ///
    /// [`EngineError::Input`] names the tensor that does not fit, what was expected and what was given.
    pub fn accept(&self, inputs: &mut [Tensor]) -> Result<CallWork, EngineError> {
        ports::order(&self.inputs, inputs)?;
        match &self.runner {
            Runner::Planned(planned) => planned.accept(inputs),
            Runner::Traced(_) => Ok(ports::rows(inputs)),
        }
    }

    /// Whether several calls may run as one batch: only if their rows are known to be independent, which a plan guarantees.
    #[must_use]
    pub fn batches(&self) -> bool {
        self.plan().is_some()
    }

    /// Whether calls have sequences of tokens.
    #[must_use]
    pub fn has_tokens(&self) -> bool {
        self.plan().is_some_and(Plan::has_tokens)
    }

    /// The most tokens of a sequence; `None` if there is no limit, or it is not known.
    #[must_use]
    pub fn longest(&self) -> Option<usize> {
        self.plan().and_then(Plan::longest)
    }

    /// A synthetic call of `rows` rows, each with `length` tokens if the model has tokens: every floating-point number is 1,
    /// every integer 0, and the mask includes all tokens.
    #[must_use]
    pub fn synthetic_call(&self, rows: usize, length: usize) -> Vec<Tensor> {
        ports::synthetic_call(&self.inputs, self.plan().and_then(Plan::mask), rows, length)
    }

    /// Runs accepted calls: as one batch if the model has a plan, else one after the other.
    ///
    /// # Errors
    ///
    /// [`EngineError::Input`] if a value is invalid for the model (an id that is not in its table), [`EngineError::Run`] if the
    /// executor fails. With several calls, any of them may have caused either. [`EngineError::Device`] if the device fails for
    /// good.
    pub fn run(&self, workspace: &mut Workspace, calls: &[&[Tensor]]) -> Result<BatchResult, EngineError> {
        self.run_for(workspace, calls, &smallvec::smallvec![true; self.outputs.len()])
    }

    /// Like [`Self::run`], for the `wanted` outputs; the others may have no elements.
    ///
    /// # Errors
    ///
    /// Like [`Self::run`].
    pub fn run_for(
        &self,
        workspace: &mut Workspace,
        calls: &[&[Tensor]],
        wanted: &WantedOutputs,
    ) -> Result<BatchResult, EngineError> {
        match &self.runner {
            Runner::Planned(planned) => planned.run(&mut workspace.planned, &self.outputs, calls, wanted),
            Runner::Traced(traced) => {
                let _ = (workspace, wanted);
                traced.run(&self.outputs, calls)
            }
        }
    }
}

/// The fused plan of a graph.
fn plan(graph: &Graph, backend: Backend) -> Result<Plan, UnsupportedNode> {
    if backend == Backend::Tract {
        return Err(unsupported_model("tract was requested"));
    }
    if let Some(open) = &graph.open {
        let reason = format!("its shapes are not the same for all lengths: {}", open.reason);
        return Err(UnsupportedNode { node: open.node().to_owned(), operator: "graph".into(), reason });
    }
    let mut plan = lower(&graph.typed)?;
    crate::fuse::fuse(&mut plan);
    Ok(plan)
}

/// An error that concerns the model as a whole.
fn unsupported_model(reason: &str) -> UnsupportedNode {
    UnsupportedNode { node: "model".into(), operator: "graph".into(), reason: reason.into() }
}

#[cfg(test)]
mod tests;
