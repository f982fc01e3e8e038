//! A model that is ready to answer calls. It takes tensors and returns tensors, and leaves everything to the [`Executor`] that was chosen
//! when it was loaded.

mod batch;
mod batch_axis;
mod call;
mod executor;
mod first_difference;
mod generated;
mod half_ports;
mod image_memory;
mod joined;
mod measured;
mod onnxruntime;
mod options;
mod plan_on_cpu;
#[cfg(feature = "cuda")]
mod plan_on_gpu;
mod ports;
mod rten;
mod rten_threads;
mod select;
mod tabular;
mod verify;
#[cfg(not(feature = "cuda"))]
mod without_gpu;
mod work;

use std::path::Path;
use std::sync::Arc;

pub use self::batch::{BatchResult, CallWork, WantedOutputs};
pub use self::batch_axis::{BatchAxis, BatchTrial};
pub use self::executor::{Executor, ExecutorName, Workspace};
pub use self::measured::{Measured, MeasuredCall};
pub use self::options::ModelOptions;
pub use self::select::NotUsed;
use self::select::Selected;
pub use self::verify::Verification;
use self::work::Meter;
use lapwing_engine::cpu::CpuExecutor;
use lapwing_engine::gpu::CudaExecutor;
use lapwing_engine::placement::Placement;
use lapwing_onnx::OnnxFile;
use lapwing_onnx::shaped::ShapedGraph;
use lapwing_onnx::tensor::{Tensor, TensorSpec};
use lapwing_onnx::{EngineError, GraphWork, UnsupportedNode};
use lapwing_plan::plan::{Plan, PlanPort, Rows};

/// A loaded model. Any number of threads may run it, each with a [`Workspace`] of its own.
#[derive(Debug)]
pub struct Model {
    executor: Box<dyn Executor>,
    unsupported: Option<UnsupportedNode>,
    not_used: Vec<NotUsed>,
    verification: Verification,
    measured: Measured,
    batch_axis: BatchAxis,
    /// Counts the work of calls where the executor does not.
    meter: Option<Meter>,
}

impl Model {
    fn selected(selected: Selected, file: Option<&OnnxFile>, options: &ModelOptions) -> Self {
        let Selected { executor, unsupported, not_used, verification, measured } = selected;
        let batch_axis = batch_axis::find(&*executor, file, options.batch_trial.as_ref());
        Self { executor, unsupported, not_used, verification, measured, batch_axis, meter: None }
    }
}

impl Model {
    /// Loads an ONNX file. Weights in separate files must be in its folder.
    ///
    /// # Errors
    ///
    /// [`EngineError`] names the part of the model that is at fault.
    pub fn read(path: &Path, options: &ModelOptions) -> Result<Self, EngineError> {
        Self::of(&OnnxFile::read(path)?, options)
    }

    /// Loads an ONNX model from memory.
    ///
    /// # Errors
    ///
    /// [`EngineError`] names the part of the model that is at fault.
    pub fn parse(bytes: &[u8], options: &ModelOptions) -> Result<Self, EngineError> {
        Self::of(&OnnxFile::parse(bytes.to_vec().into())?, options)
    }

    /// Prepares a file for the executor that `options` choose.
    ///
    /// # Errors
    ///
    /// [`EngineError::Model`] if none can run it; [`EngineError::Executor`] if the one that was named cannot, or answers otherwise than ONNX
    /// Runtime; [`EngineError::NoPlan`] if a plan is required and there is none.
    pub fn of(file: &OnnxFile, options: &ModelOptions) -> Result<Self, EngineError> {
        let model = Self::selected(select::select(Some(file), || file.graph(), options)?, Some(file), options);
        let is_counted = model.plan().is_some() || model.executor.work(1).is_some() || options.unreadable.is_some();
        let meter = if is_counted { None } else { file.graph().ok().map(|graph| Meter::new(&graph)) };
        Ok(Self { meter, ..model })
    }

    /// Prepares a graph for its plan: others read files.
    ///
    /// # Errors
    ///
    /// As for [`Self::of`].
    pub fn new(graph: &Arc<ShapedGraph>, options: &ModelOptions) -> Result<Self, EngineError> {
        Ok(Self::selected(select::select(None, || Ok(Arc::clone(graph)), options)?, None, options))
    }

    /// Its inputs, in its own order.
    #[must_use]
    pub fn inputs(&self) -> &[TensorSpec] {
        self.executor.inputs()
    }

    /// Its outputs, in its own order.
    #[must_use]
    pub fn outputs(&self) -> &[TensorSpec] {
        self.executor.outputs()
    }

    /// Who runs it.
    #[must_use]
    pub fn executor(&self) -> ExecutorName {
        self.executor.name()
    }

    /// `fp32`, `tf32`, `fp16` or `int8`, as a plan is run; the format of a file's weights where ONNX Runtime runs it, which may be `bf16`.
    #[must_use]
    pub fn precision(&self) -> &'static str {
        self.placement().precision
    }

    /// Where it runs now. Only a run may change it.
    #[must_use]
    pub fn placement(&self) -> Arc<Placement> {
        self.executor.placement()
    }

    /// The node that prevents a plan, and why; `None` if the model has a plan.
    #[must_use]
    pub const fn unsupported(&self) -> Option<&UnsupportedNode> {
        self.unsupported.as_ref()
    }

    /// The executors that were tried before the one that runs it, in this order, each with the reason why it does not.
    #[must_use]
    pub fn not_used(&self) -> &[NotUsed] {
        &self.not_used
    }

    /// What a user has to know of the way in which it computes, each in one sentence.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        self.executor.notes()
    }

    /// The threads in which a workspace's runs happen, if they are not the caller's.
    pub(crate) fn host(&self, workspace: &mut Workspace) -> Option<Arc<::rten::ThreadPool>> {
        self.executor.host(workspace)
    }

    /// With what came of holding it against ONNX Runtime in another process.
    #[must_use]
    pub fn with_verification(self, verification: Verification) -> Self {
        Self { verification, ..self }
    }

    /// What came of holding it against ONNX Runtime when it was loaded.
    #[must_use]
    pub const fn verification(&self) -> &Verification {
        &self.verification
    }

    /// The times of calls beside ONNX Runtime's when it was loaded: of the executor that runs it, or that it was moved from.
    #[must_use]
    pub const fn measured(&self) -> &Measured {
        &self.measured
    }

    /// The plan, if it has one.
    #[must_use]
    pub fn plan(&self) -> Option<&Plan> {
        self.executor.plan()
    }

    /// The executor on the CPU, if that runs its plan now.
    #[must_use]
    pub fn plan_executor(&self) -> Option<&CpuExecutor> {
        self.executor.cpu_executor()
    }

    /// The executor on a GPU, if that runs its plan now.
    #[must_use]
    pub fn gpu_executor(&self) -> Option<&CudaExecutor> {
        self.executor.gpu_executor()
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
        let plan = self.plan();
        let is_past = |at: usize, axis: usize| {
            let rows = |port: &PlanPort| plan.map(|plan| plan.value(port.value).rows).filter(|rows| *rows == Rows::Past);
            plan.and_then(|plan| plan.inputs.get(at))
                .is_some_and(|port| rows(port).and_then(|rows| port.token_axis(rows)) == Some(axis))
        };
        call::order(self.inputs(), inputs, is_past)?;
        let work = self.executor.accept(inputs)?;
        let flops = work.flops.or_else(|| self.meter.as_ref()?.flops(inputs).map(|flops| (flops, flops)));
        Ok(CallWork { flops, ..work })
    }

    /// The work of a call of `rows` rows, each of `length` tokens if axes after the first are open; of a model with a plan, that is
    /// [`Plan::total`]. `None` if nothing is known of it.
    #[must_use]
    pub fn work(&self, rows: usize, length: usize) -> Option<GraphWork> {
        self.executor.work(rows).or_else(|| self.meter.as_ref()?.work(rows, length))
    }

    /// Whether several calls may run as one batch, and along which axis.
    #[must_use]
    pub const fn batch_axis(&self) -> &BatchAxis {
        &self.batch_axis
    }

    /// Whether several calls may run as one batch.
    #[must_use]
    pub const fn batches(&self) -> bool {
        !matches!(self.batch_axis, BatchAxis::NotShown(_))
    }

    /// Whether two accepted calls may run as one batch: those of a plan whatever their lengths, others if only their rows differ.
    pub(crate) fn joins(&self, one: &[Tensor], other: &[Tensor]) -> bool {
        match self.batch_axis {
            BatchAxis::Planned => true,
            BatchAxis::Shown => joined::fit(one, other),
            BatchAxis::NotShown(_) => false,
        }
    }

    /// Whether an input's first axis is open, so that calls choose their rows.
    pub(crate) fn has_open_batch(&self) -> bool {
        self.inputs().iter().any(|port| port.shape.first() == Some(&None))
    }

    /// Whether no axis but the first is open, so that rows alone make a call larger.
    pub(crate) fn has_only_rows(&self) -> bool {
        self.inputs().iter().all(|port| port.shape.iter().skip(1).all(Option::is_some))
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
    /// every integer 0, the mask includes all tokens, and there is no past.
    #[must_use]
    pub fn synthetic_call(&self, rows: usize, length: usize) -> Vec<Tensor> {
        call::synthetic_call(self.inputs(), self.plan(), rows, length)
    }

    /// Runs accepted calls: as one batch if they may run so, else one after the other.
    ///
    /// # Errors
    ///
    /// [`EngineError::Input`] if a value is invalid for the model (an id that is not in its table), [`EngineError::Run`] if the
    /// executor fails. With several calls, any of them may have caused either. [`EngineError::Device`] if the device fails for
    /// good.
    pub fn run(&self, workspace: &mut Workspace, calls: &[&[Tensor]]) -> Result<BatchResult, EngineError> {
        self.run_for(workspace, calls, &smallvec::smallvec![true; self.outputs().len()])
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
        match (&self.batch_axis, calls) {
            (BatchAxis::Shown, [first, others @ ..])
                if !others.is_empty() && others.iter().all(|call| self.joins(first, call)) =>
            {
                joined::run(&*self.executor, workspace, calls, wanted)
            }
            _ => self.executor.run(workspace, calls, wanted),
        }
    }
}

#[cfg(test)]
mod tests;
