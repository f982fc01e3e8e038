//! A model that is ready to answer calls: by its plan where it has one, else by tract. It takes tensors and returns tensors. A
//! model with a plan runs several calls as one batch, because a plan's rows are known to be independent.

mod batch;
#[cfg(feature = "cuda")]
mod on_gpu;
mod options;
mod traced;
#[cfg(not(feature = "cuda"))]
mod without_gpu;

use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

use self::batch::{BatchInput, BatchRules};
pub use self::batch::{BatchResult, CallWork, WantedOutputs};
use self::on_gpu::OnGpu;
pub use self::options::ModelOptions;
use self::options::{Fault, Placing};
use self::traced::Traced;
#[cfg(not(feature = "cuda"))]
use self::without_gpu as on_gpu;
use crate::choice::Backend;
use lapwing_engine::clock::Stamp;
use lapwing_engine::cpu::{CpuExecutor, CpuState};
use lapwing_engine::gpu::{CudaExecutor, CudaState};
use lapwing_engine::placement::{Fallback, Placement};
use lapwing_plan::exec::CpuPrecision;
use lapwing_plan::lower::lower;
use lapwing_plan::onnx::{Graph, ports};
use lapwing_plan::plan::Plan;
use lapwing_plan::tensor::{Tensor, TensorSpec};
use lapwing_plan::{EngineError, UnsupportedNode};

/// The working memory of one thread that runs a model.
#[derive(Debug, Default)]
pub struct Workspace {
    batch: BatchInput,
    cpu: CpuState,
    gpu: CudaState,
    outputs: Vec<Vec<f32>>,
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

#[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "no plan runs on a GPU"))]
#[derive(Debug)]
enum Runner {
    /// The plan on the CPU; with the reason, if a GPU was looked for.
    Cpu(Box<CpuExecutor>, BatchRules, Option<Fallback>),
    /// The plan on a GPU, or on the CPU if the GPU has failed.
    Gpu(Box<OnGpu>, BatchRules),
    Traced(Traced),
}

impl Runner {
    /// The plan and what it asks of calls, if there is one.
    fn plan(&self) -> Option<(&Plan, &BatchRules)> {
        match self {
            Self::Cpu(cpu, rules, _) => Some((cpu.plan(), rules)),
            Self::Gpu(gpu, rules) => Some((gpu.executor().plan(), rules)),
            Self::Traced(_) => None,
        }
    }
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
            Runner::Cpu(cpu, _, fallback) => Arc::new(Placement::on_cpu(cpu.options().precision.name(), fallback.clone())),
            Runner::Gpu(gpu, _) => Arc::new(gpu.placement()),
            Runner::Traced(_) => Arc::new(Placement::on_cpu("fp32", fallback)),
        };
        Ok(Self { inputs, outputs, unsupported, runner, placement: Mutex::new(placement) })
    }

    fn by_plan(plan: Plan, graph: Graph, options: &ModelOptions) -> Result<Runnable, EngineError> {
        let (plan, fallback) = match on_gpu::place(plan, options)? {
            Placing::Placed(gpu) => {
                let rules = BatchRules::of(gpu.executor().plan());
                return Ok((Runner::Gpu(Box::new(gpu), rules), None, None));
            }
            Placing::NotPlaced(plan, fallback) => (plan, fallback),
        };
        match CpuExecutor::new(plan, options.plan.clone()) {
            Ok(cpu) => {
                let rules = BatchRules::of(cpu.plan());
                Ok((Runner::Cpu(Box::new(cpu), rules, fallback), None, None))
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
            Runner::Cpu(..) | Runner::Gpu(..) => "plan",
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
        if let Runner::Gpu(gpu, _) = &self.runner
            && placement.fallback.is_none()
            && gpu.moved().is_some()
        {
            *placement = Arc::new(gpu.placement());
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
        self.runner.plan().map(|(plan, _)| plan)
    }

    /// The executor on the CPU, if that runs its plan now.
    #[must_use]
    pub fn plan_executor(&self) -> Option<&CpuExecutor> {
        match &self.runner {
            Runner::Cpu(cpu, ..) => Some(cpu),
            Runner::Gpu(gpu, _) => gpu.moved().map(|(cpu, _)| cpu),
            Runner::Traced(_) => None,
        }
    }

    /// The executor on a GPU, if that runs its plan now.
    #[must_use]
    pub fn gpu_executor(&self) -> Option<&CudaExecutor> {
        match &self.runner {
            Runner::Gpu(gpu, _) if gpu.moved().is_none() => Some(gpu.executor()),
            _ => None,
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
    ) -> Result<Option<lapwing_engine::gpu::RunTimings>, EngineError> {
        let Some(executor) = self.gpu_executor() else { return Ok(None) };
        let Workspace { batch, gpu, .. } = workspace;
        batch.fill(executor.plan(), calls);
        let wanted = vec![true; executor.plan().outputs.len()];
        let timings = batch.with(|batch| executor.time_steps(gpu, batch, &wanted, runs));
        timings.map(Some).map_err(|error| EngineError::Run { reason: error.to_string() })
    }

    /// Checks that a call fits the model, puts its inputs in the model's order, and returns its size.
    ///
    /// # Errors
    ///
    /// [`EngineError::Input`] names the tensor that does not fit, what was expected and what was given.
    pub fn accept(&self, inputs: &mut [Tensor]) -> Result<CallWork, EngineError> {
        batch::order(&self.inputs, inputs)?;
        match self.runner.plan() {
            Some((plan, rules)) => rules.accept(plan, inputs),
            None => Ok(batch::rows(inputs)),
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
        batch::synthetic_call(&self.inputs, self.plan().and_then(Plan::mask), rows, length)
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
        let plan = match &self.runner {
            Runner::Cpu(cpu, ..) => cpu.plan(),
            Runner::Gpu(gpu, _) => gpu.executor().plan(),
            Runner::Traced(traced) => return traced.run(&self.outputs, calls),
        };
        let began = Stamp::now();
        let laid_ns = self.forward(began, plan, workspace, calls, wanted).map_err(|fault| match fault {
            Fault::Batch(error) => batch::input_error(&error, plan),
            Fault::Engine(error) => error,
        })?;
        let done = Stamp::now();
        let outputs = batch::split(plan, &self.outputs, calls, &mut workspace.outputs);
        Ok(BatchResult {
            outputs,
            preprocessing_ns: laid_ns,
            forward_ns: done.since(began).saturating_sub(laid_ns),
            postprocessing_ns: done.elapsed(),
        })
    }

    /// Runs calls by the plan; outputs that are not wanted may become empty. Returns the time in which the inputs were laid end to end,
    /// in nanoseconds: a GPU's executor does that in memory that the device reads, the CPU's reads the workspace.
    fn forward(
        &self,
        mut began: Stamp,
        plan: &Plan,
        workspace: &mut Workspace,
        calls: &[&[Tensor]],
        wanted: &[bool],
    ) -> Result<u64, Fault> {
        let Workspace { batch, cpu, gpu, outputs } = workspace;
        let executor = match &self.runner {
            Runner::Cpu(executor, ..) => executor,
            Runner::Gpu(on_gpu, _) => match on_gpu.moved() {
                Some((executor, _)) => executor,
                None => match on_gpu.executor().run_calls(gpu, &batch.of_calls(plan, calls), wanted, outputs) {
                    Ok(laid_ns) => return Ok(laid_ns),
                    Err(error) => {
                        let executor = on_gpu.after(error, gpu)?;
                        began = Stamp::now();
                        executor
                    }
                },
            },
            Runner::Traced(_) => return Ok(0),
        };
        batch.fill(plan, calls);
        let laid_ns = began.elapsed();
        batch.with(|batch| executor.run(cpu, batch, outputs)).map_err(Fault::Batch)?;
        Ok(laid_ns)
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
    lapwing_plan::fuse::fuse(&mut plan);
    Ok(plan)
}

/// An error that concerns the model as a whole.
fn unsupported_model(reason: &str) -> UnsupportedNode {
    UnsupportedNode { node: "model".into(), operator: "graph".into(), reason: reason.into() }
}

#[cfg(test)]
mod tests;
