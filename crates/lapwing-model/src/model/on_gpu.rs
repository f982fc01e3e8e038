//! A plan on a GPU with the CPU behind it where a fallback is allowed: placing it there, running it, and moving it to the CPU
//! when the device fails.

use std::sync::OnceLock;

use super::options::{Fault, ModelOptions, Placing};
use lapwing_engine::gpu::{CudaExecutor, CudaState, GpuError, fallback};
use lapwing_engine::placement::{Fallback, FallbackCause, Placement};
use lapwing_engine::{cpu, gpu};
use lapwing_plan::plan::Plan;
use lapwing_plan::{EngineError, UnsupportedNode};

/// A plan on a GPU.
#[derive(Debug)]
pub(crate) struct OnGpu {
    executor: CudaExecutor,
    /// How the CPU would run it, if a fallback is allowed.
    behind: Option<cpu::CpuOptions>,
    /// The CPU's executor after the device failed, and the device's error.
    moved: OnceLock<(cpu::CpuExecutor, Fallback)>,
}

impl OnGpu {
    pub(crate) const fn executor(&self) -> &CudaExecutor {
        &self.executor
    }

    /// The CPU's executor and the device's error, if the device has failed.
    pub(crate) fn moved(&self) -> Option<&(cpu::CpuExecutor, Fallback)> {
        self.moved.get()
    }

    pub(crate) fn placement(&self) -> Placement {
        if let Some((executor, fallback)) = self.moved() {
            return Placement::on_cpu(executor.options().precision.name(), Some(fallback.clone()));
        }
        Placement {
            device: name(&self.executor),
            device_name: Some(self.executor.device().info().name.clone()),
            precision: self.executor.precision().name(),
            fallback: None,
            fault: None,
        }
    }

    /// What follows from the error of a run: the CPU's executor, if the device has failed and the plan moves there.
    ///
    /// # Errors
    ///
    /// [`Fault`] where the batch is at fault, is too large for the device, or no fallback is allowed.
    pub(crate) fn after(&self, error: GpuError, state: &mut CudaState) -> Result<&cpu::CpuExecutor, Fault> {
        let error = match error {
            GpuError::Batch(error) => return Err(Fault::Batch(error)),
            GpuError::Unsupported(node) => {
                return Err(Fault::Engine(EngineError::Run { reason: node.to_string() }));
            }
            GpuError::Device(error) => error,
        };
        use gpu::device::DeviceError::{Launch, Range, TimedOut};
        let left = std::mem::take(state);
        if matches!(error, TimedOut { .. }) {
            // dropping it would wait for the device that hangs
            std::mem::forget(left);
        }
        if error.is_out_of_memory() || matches!(error, Launch { .. } | Range { .. }) {
            return Err(Fault::Engine(EngineError::Run { reason: format!("{}: {error}", name(&self.executor)) }));
        }
        let fallback = fallback(&error);
        let detail = format!("{}: {}", name(&self.executor), fallback.detail);
        let Some(options) = &self.behind else {
            return Err(Fault::Engine(EngineError::Device { reason: detail }));
        };
        let executor = cpu::CpuExecutor::new(self.executor.plan().clone(), options.clone())
            .map_err(|e| Fault::Engine(EngineError::Device { reason: format!("{detail}; and the CPU: {e}") }))?;
        let (executor, _) = self.moved.get_or_init(|| (executor, Fallback { detail, ..fallback }));
        Ok(executor)
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
pub(crate) fn place(plan: Plan, options: &ModelOptions) -> Result<Placing<OnGpu>, EngineError> {
    let Some(request) = &options.gpu else { return Ok(Placing::NotPlaced(plan, None)) };
    let device = match &request.device {
        Ok(device) => device,
        Err(why) if request.or_cpu => return Ok(Placing::NotPlaced(plan, Some(why.clone()))),
        Err(why) => return Err(EngineError::Device { reason: why.detail.clone() }),
    };
    let error = match CudaExecutor::new(plan.clone(), device, request.precision.clone(), request.gemm.clone()) {
        Ok(executor) => {
            let behind = request.or_cpu.then(|| options.plan.clone());
            return Ok(Placing::Placed(OnGpu { executor, behind, moved: OnceLock::new() }));
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
