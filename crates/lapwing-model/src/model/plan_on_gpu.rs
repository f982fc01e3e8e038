//! A plan on a GPU with the CPU behind it where a fallback is allowed: placing it there, running it, and moving it to the CPU
//! when the device fails.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::batch::{self, BatchResult, BatchRules, CallWork};
use super::executor::{Executor, ExecutorName, Workspace};
use super::options::{ModelOptions, Placing};
use super::plan_on_cpu;
use super::ports::Ports;
use lapwing_engine::clock::Stamp;
use lapwing_engine::gpu::{CudaExecutor, CudaState, GpuError, fallback};
use lapwing_engine::placement::{Fallback, FallbackCause, Placement};
use lapwing_engine::{cpu, gpu};
use lapwing_onnx::tensor::{Tensor, TensorSpec};
use lapwing_onnx::{EngineError, UnsupportedNode};
use lapwing_plan::plan::Plan;

/// A plan on a GPU.
#[derive(Debug)]
pub(crate) struct PlanOnGpu {
    executor: CudaExecutor,
    rules: BatchRules,
    ports: Ports,
    /// How the CPU would run it, if a fallback is allowed.
    behind: Option<cpu::CpuOptions>,
    /// The CPU's executor after the device failed, and the device's error.
    moved: OnceLock<(cpu::CpuExecutor, Fallback)>,
    placement: Mutex<Arc<Placement>>,
}

impl PlanOnGpu {
    fn new(executor: CudaExecutor, ports: Ports, behind: Option<cpu::CpuOptions>) -> Self {
        let placement = Placement {
            device: name(&executor),
            device_name: Some(executor.device().info().name.clone()),
            precision: executor.precision().name(),
            fallback: None,
            fault: None,
        };
        let rules = BatchRules::of(executor.plan());
        Self { executor, rules, ports, behind, moved: OnceLock::new(), placement: Mutex::new(Arc::new(placement)) }
    }

    /// What follows from the error of a run: the CPU's executor, if the device has failed and the plan moves there.
    ///
    /// # Errors
    ///
    /// [`EngineError`] where the batch is at fault, is too large for the device, or no fallback is allowed.
    fn after(&self, error: GpuError, state: &mut CudaState) -> Result<&cpu::CpuExecutor, EngineError> {
        let error = match error {
            GpuError::Batch(error) => return Err(batch::input_error(&error, self.executor.plan())),
            GpuError::Unsupported(node) => return Err(EngineError::Run { reason: node.to_string() }),
            GpuError::Device(error) => error,
        };
        use gpu::device::DeviceError::{Launch, Range, TimedOut};
        let left = std::mem::take(state);
        if matches!(error, TimedOut { .. }) {
            // dropping it would wait for the device that hangs
            std::mem::forget(left);
        }
        if error.is_out_of_memory() || matches!(error, Launch { .. } | Range { .. }) {
            return Err(EngineError::Run { reason: format!("{}: {error}", name(&self.executor)) });
        }
        let fallback = fallback(&error);
        let detail = format!("{}: {}", name(&self.executor), fallback.detail);
        let Some(options) = &self.behind else {
            return Err(EngineError::Device { reason: detail });
        };
        let executor = cpu::CpuExecutor::new(self.executor.plan().clone(), options.clone())
            .map_err(|e| EngineError::Device { reason: format!("{detail}; and the CPU: {e}") })?;
        let (executor, fallback) = self.moved.get_or_init(|| (executor, Fallback { detail, ..fallback }));
        *self.placement.lock() = Arc::new(Placement::on_cpu(executor.options().precision.name(), Some(fallback.clone())));
        Ok(executor)
    }

    /// Runs calls; the outputs are in the workspace, those that are not wanted may be empty. Returns the time in which the inputs were
    /// laid end to end, in nanoseconds: the device's memory is where that is done, if it runs them.
    fn forward(&self, workspace: &mut Workspace, calls: &[&[Tensor]], wanted: &[bool]) -> Result<u64, EngineError> {
        if let Some((executor, _)) = self.moved.get() {
            return plan_on_cpu::forward(executor, workspace, calls);
        }
        let Workspace { batch, gpu, outputs, .. } = workspace;
        match self.executor.run_calls(gpu, &batch.of_calls(self.executor.plan(), calls), wanted, outputs) {
            Ok(laid_ns) => Ok(laid_ns),
            Err(error) => {
                let executor = self.after(error, gpu)?;
                plan_on_cpu::forward(executor, workspace, calls)
            }
        }
    }
}

impl Executor for PlanOnGpu {
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
        Arc::clone(&self.placement.lock())
    }

    fn run(&self, workspace: &mut Workspace, calls: &[&[Tensor]], wanted: &[bool]) -> Result<BatchResult, EngineError> {
        let began = Stamp::now();
        let laid_ns = self.forward(workspace, calls, wanted)?;
        Ok(batch::result(self.executor.plan(), &self.ports.outputs, calls, &mut workspace.outputs, began, laid_ns))
    }

    fn plan(&self) -> Option<&Plan> {
        Some(self.executor.plan())
    }

    fn cpu_executor(&self) -> Option<&cpu::CpuExecutor> {
        self.moved.get().map(|(executor, _)| executor)
    }

    fn gpu_executor(&self) -> Option<&CudaExecutor> {
        self.moved.get().is_none().then_some(&self.executor)
    }
}

/// `cuda:0`
fn name(executor: &CudaExecutor) -> String {
    format!("cuda:{}", executor.device().info().ordinal)
}

/// Places a plan on the requested GPU.
///
/// # Errors
///
/// [`EngineError::Device`] where it cannot run there and no fallback is allowed.
pub(crate) fn place(plan: Plan, ports: &Ports, options: &ModelOptions) -> Result<Placing<PlanOnGpu>, EngineError> {
    let Some(request) = &options.gpu else { return Ok(Placing::NotPlaced(plan, None)) };
    let device = match &request.device {
        Ok(device) => device,
        Err(why) if request.or_cpu => return Ok(Placing::NotPlaced(plan, Some(why.clone()))),
        Err(why) => return Err(EngineError::Device { reason: why.detail.clone() }),
    };
    let error = match CudaExecutor::new(plan.clone(), device, request.precision.clone(), request.gemm.clone()) {
        Ok(executor) => {
            let behind = request.or_cpu.then(|| options.plan.clone());
            return Ok(Placing::Placed(PlanOnGpu::new(executor, ports.clone(), behind)));
        }
        Err(error) => error,
    };
    let why = match &error {
        GpuError::Unsupported(node) => Fallback { cause: FallbackCause::Node, detail: node.to_string() },
        GpuError::Batch(error) => Fallback { cause: FallbackCause::Node, detail: error.to_string() },
        GpuError::Device(error) => fallback(error),
    };
    if request.or_cpu { Ok(Placing::NotPlaced(plan, Some(why))) } else { Err(EngineError::Device { reason: why.detail }) }
}

/// Why a model without a plan does not run on the requested GPU; `None` where none was requested.
///
/// # Errors
///
/// [`EngineError::Device`] where no fallback is allowed.
pub(crate) fn without_plan(node: &UnsupportedNode, options: &ModelOptions) -> Result<Option<Fallback>, EngineError> {
    match &options.gpu {
        None => Ok(None),
        Some(request) if !request.or_cpu => Err(EngineError::Device { reason: format!("only plans run there: {node}") }),
        Some(request) => {
            let unsupported = || Fallback { cause: FallbackCause::Node, detail: node.to_string() };
            Ok(Some(request.device.as_ref().err().cloned().unwrap_or_else(unsupported)))
        }
    }
}
