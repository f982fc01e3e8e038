//! A model that is ready to answer calls: by its plan where it has one, else by tract. It takes tensors and returns tensors. A
//! model with a plan runs several calls as one batch, because a plan's rows are known to be independent.

mod executor;
#[cfg(feature = "cuda")]
mod on_gpu;
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

    /// Makes a graph ready: lowered to a plan and fused, or where that is refused, optimised by tract.
    ///
    /// # Errors
    ///
    /// [`EngineError::Model`] where neither can be done; [`EngineError::NoPlan`] where only a plan would do.
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

    /// Where it runs now. It may change with a run, and with nothing else.
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

    /// Which node has no plan, and why; `None` where the model has one.
    #[must_use]
    pub const fn unsupported(&self) -> Option<&UnsupportedNode> {
        self.unsupported.as_ref()
    }

    /// The plan, if it is run by one.
    #[must_use]
    pub fn plan(&self) -> Option<&Plan> {
        match &self.runner {
            Runner::Planned(planned) => Some(planned.plan()),
            Runner::Traced(_) => None,
        }
    }

    /// The executor of its plan on the processor, if that is what runs it.
    #[must_use]
    pub fn plan_executor(&self) -> Option<&crate::cpu::CpuExecutor> {
        match &self.runner {
            Runner::Planned(planned) => planned.executor().on_cpu(),
            Runner::Traced(_) => None,
        }
    }

    /// The executor of its plan on a GPU, if that is what runs it.
    #[must_use]
    pub fn gpu_executor(&self) -> Option<&crate::gpu::CudaExecutor> {
        match &self.runner {
            Runner::Planned(planned) => planned.executor().on_gpu(),
            Runner::Traced(_) => None,
        }
    }

    /// How long the parts of `runs` runs of calls take on a GPU; `None` where the model is run by none.
    ///
    /// # Errors
    ///
    /// [`EngineError::Run`] with what is wrong about the calls or the device.
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

    /// Looks whether a call fits the model, puts its inputs in the model's order, and says what it brings.
    ///
    /// # Errors
    ///
    /// [`EngineError::Input`] with the tensor that does not fit, what was expected and what came.
    pub fn accept(&self, inputs: &mut [Tensor]) -> Result<CallWork, EngineError> {
        ports::order(&self.inputs, inputs)?;
        match &self.runner {
            Runner::Planned(planned) => planned.accept(inputs),
            Runner::Traced(_) => Ok(ports::rows(inputs)),
        }
    }

    /// Whether several calls may be run as one batch: only where their rows are known not to touch one another.
    #[must_use]
    pub fn batches(&self) -> bool {
        self.plan().is_some()
    }

    /// Whether calls have sequences of tokens.
    #[must_use]
    pub fn has_tokens(&self) -> bool {
        self.plan().is_some_and(Plan::has_tokens)
    }

    /// How many tokens a sequence may have; `None` where there is no end, or it is not known.
    #[must_use]
    pub fn longest(&self) -> Option<usize> {
        self.plan().and_then(Plan::longest)
    }

    /// A call of so many rows, of so many tokens where the model has them, that means nothing: every number is one, every id
    /// nought, and the mask leaves all tokens in.
    #[must_use]
    pub fn synthetic_call(&self, rows: usize, length: usize) -> Vec<Tensor> {
        ports::synthetic_call(&self.inputs, self.plan().and_then(Plan::mask), rows, length)
    }

    /// Runs calls that were accepted. Where the model has no plan, one after the other.
    ///
    /// # Errors
    ///
    /// [`EngineError::Input`] where a value of theirs has no meaning to the model (an id that a table does not have),
    /// [`EngineError::Run`] where the executor fails. With several calls, either may be the fault of any of them.
    /// [`EngineError::Device`] where the device fails for good.
    pub fn run(&self, workspace: &mut Workspace, calls: &[&[Tensor]]) -> Result<BatchResult, EngineError> {
        self.run_for(workspace, calls, &smallvec::smallvec![true; self.outputs.len()])
    }

    /// As [`Self::run`], where only some outputs are wanted; the others may come without elements.
    ///
    /// # Errors
    ///
    /// As [`Self::run`].
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

/// A graph's plan, fused.
fn plan(graph: &Graph, backend: Backend) -> Result<Plan, UnsupportedNode> {
    if backend == Backend::Tract {
        return Err(unsupported_model("tract was asked for"));
    }
    if let Some(open) = &graph.open {
        let reason = format!("its shapes are not the same for all lengths: {}", open.reason);
        return Err(UnsupportedNode { node: open.node().to_owned(), operator: "graph".into(), reason });
    }
    let mut plan = lower(&graph.typed)?;
    crate::fuse::fuse(&mut plan);
    Ok(plan)
}

/// The model as a whole.
fn unsupported_model(reason: &str) -> UnsupportedNode {
    UnsupportedNode { node: "model".into(), operator: "graph".into(), reason: reason.into() }
}

#[cfg(test)]
mod tests;
