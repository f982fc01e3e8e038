//! A plan on the CPU. Several calls run as one batch, because a plan's rows are known to be independent.

use std::sync::Arc;

use super::batch::{self, BatchResult, BatchRules, CallWork};
use super::executor::{Executor, ExecutorName, Workspace};
use super::ports::Ports;
use lapwing_engine::clock::Stamp;
use lapwing_engine::cpu::{CpuExecutor, CpuOptions, PrepareError};
use lapwing_engine::placement::{Fallback, Placement};
use lapwing_onnx::EngineError;
use lapwing_onnx::tensor::{Tensor, TensorSpec};
use lapwing_plan::plan::Plan;

/// A plan on the CPU.
#[derive(Debug)]
pub(crate) struct PlanOnCpu {
    executor: CpuExecutor,
    rules: BatchRules,
    ports: Ports,
    placement: Arc<Placement>,
}

impl PlanOnCpu {
    /// Packs the plan's weights. `fallback` says why no GPU runs it, if one was looked for.
    ///
    /// # Errors
    ///
    /// [`PrepareError`] names the node that has no kernel.
    pub(crate) fn new(plan: Plan, ports: Ports, options: CpuOptions, fallback: Option<Fallback>) -> Result<Self, PrepareError> {
        let executor = CpuExecutor::new(plan, options)?;
        let rules = BatchRules::of(executor.plan());
        let placement = Arc::new(Placement::on_cpu(executor.options().precision.name(), fallback));
        Ok(Self { executor, rules, ports, placement })
    }
}

impl Executor for PlanOnCpu {
    fn name(&self) -> ExecutorName {
        ExecutorName::Plan
    }

    fn inputs(&self) -> &[TensorSpec] {
        &self.ports.inputs
    }

    fn outputs(&self) -> &[TensorSpec] {
        &self.ports.outputs
    }

    fn batches(&self) -> bool {
        true
    }

    fn accept(&self, inputs: &[Tensor]) -> Result<CallWork, EngineError> {
        self.rules.accept(self.executor.plan(), inputs)
    }

    fn placement(&self) -> Arc<Placement> {
        Arc::clone(&self.placement)
    }

    fn run(&self, workspace: &mut Workspace, calls: &[&[Tensor]], _: &[bool]) -> Result<BatchResult, EngineError> {
        let began = Stamp::now();
        let laid_ns = forward(&self.executor, workspace, calls)?;
        Ok(batch::result(self.executor.plan(), &self.ports.outputs, calls, &mut workspace.outputs, began, laid_ns))
    }

    fn plan(&self) -> Option<&Plan> {
        Some(self.executor.plan())
    }

    fn cpu_executor(&self) -> Option<&CpuExecutor> {
        Some(&self.executor)
    }
}

/// Runs calls by the plan; the outputs are in the workspace. Returns the time in which the inputs were laid end to end, in nanoseconds.
pub(crate) fn forward(executor: &CpuExecutor, workspace: &mut Workspace, calls: &[&[Tensor]]) -> Result<u64, EngineError> {
    let Workspace { batch, cpu, outputs, .. } = workspace;
    let began = Stamp::now();
    batch.fill(executor.plan(), calls);
    let laid_ns = began.elapsed();
    let ran = batch.with(|batch| executor.run(cpu, batch, outputs));
    ran.map_err(|error| batch::input_error(&error, executor.plan()))?;
    Ok(laid_ns)
}
