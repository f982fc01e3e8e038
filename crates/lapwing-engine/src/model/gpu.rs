//! A plan on a GPU with the processor behind it, if that may be; putting it there, or saying why not.

use std::sync::OnceLock;

use super::Options;
use super::on::{Fault, Memory, On, on_cpu};
use crate::cpu::Batch;
use crate::gpu::{Executor, GpuError, fallback};
use crate::lower::Refused;
use crate::plan::Plan;
use crate::standing::{Fallback, Reason, Standing};
use crate::{EngineError, cpu, gpu};

/// A plan on a GPU.
#[derive(Debug)]
pub(super) struct OnGpu {
    executor: Executor,
    /// How the processor would run it, if it may.
    behind: Option<cpu::Options>,
    /// The processor, after the device failed, and what it said.
    moved: OnceLock<(cpu::Executor, Fallback)>,
}

impl OnGpu {
    pub(super) const fn executor(&self) -> &Executor {
        &self.executor
    }

    /// What runs the plan since the device failed, and what that said.
    pub(super) fn moved(&self) -> Option<&(cpu::Executor, Fallback)> {
        self.moved.get()
    }

    pub(super) fn standing(&self) -> Standing {
        if let Some((executor, fallback)) = self.moved() {
            return on_cpu(executor, Some(fallback));
        }
        Standing {
            device: name(&self.executor),
            device_name: Some(self.executor.device().info().name.clone()),
            precision: self.executor.precision().name(),
            fallback: None,
            fault: None,
        }
    }

    pub(super) fn run(
        &self,
        memory: &mut Memory,
        batch: &Batch<'_>,
        wanted: &[bool],
        outputs: &mut Vec<Vec<f32>>,
    ) -> Result<(), Fault> {
        if let Some((executor, _)) = self.moved() {
            return executor.run(&mut memory.cpu, batch, outputs).map_err(Fault::Batch);
        }
        let error = match self.executor.run(&mut memory.gpu, batch, wanted, outputs) {
            Ok(()) => return Ok(()),
            Err(GpuError::Batch(error)) => return Err(Fault::Batch(error)),
            Err(GpuError::Refused(refused)) => {
                return Err(Fault::Engine(EngineError::Run { reason: refused.to_string() }));
            }
            Err(GpuError::Device(error)) => error,
        };
        use gpu::device::DeviceError::{Launch, Range, TimedOut};
        let left = std::mem::take(&mut memory.gpu);
        if matches!(error, TimedOut { .. }) {
            // to let go of it would be to wait for what hangs
            std::mem::forget(left);
        }
        if error.is_out_of_memory() || matches!(error, Launch { .. } | Range { .. }) {
            return Err(Fault::Engine(EngineError::Run { reason: format!("{}: {error}", name(&self.executor)) }));
        }
        let fallback = fallback(&error);
        let told = format!("{}: {}", name(&self.executor), fallback.told);
        let Some(options) = &self.behind else {
            return Err(Fault::Engine(EngineError::Device { reason: told }));
        };
        let executor = cpu::Executor::new(self.executor.plan().clone(), options.clone())
            .map_err(|e| Fault::Engine(EngineError::Device { reason: format!("{told}; and the processor: {e}") }))?;
        let (executor, _) = self.moved.get_or_init(|| (executor, Fallback { told, ..fallback }));
        executor.run(&mut memory.cpu, batch, outputs).map_err(Fault::Batch)
    }
}

/// `cuda:0`
fn name(executor: &Executor) -> String {
    format!("cuda:{}", executor.device().info().ordinal)
}

/// What came of it.
pub(super) enum Put {
    /// It is there.
    There(On),
    /// It is not; why, if it was to be.
    Not(Plan, Option<Fallback>),
}

/// Puts a plan on the GPU that is asked for.
///
/// # Errors
///
/// [`EngineError::Device`] where it cannot be there and may not be elsewhere.
pub(super) fn on_gpu(plan: Plan, options: &Options) -> Result<Put, EngineError> {
    let Some(wish) = &options.gpu else { return Ok(Put::Not(plan, None)) };
    let device = match &wish.device {
        Ok(device) => device,
        Err(why) if wish.or_cpu => return Ok(Put::Not(plan, Some(why.clone()))),
        Err(why) => return Err(EngineError::Device { reason: why.told.clone() }),
    };
    let error = match Executor::new(plan.clone(), device, wish.precision.clone(), wish.gemm.clone()) {
        Ok(executor) => {
            let behind = wish.or_cpu.then(|| options.plan.clone());
            return Ok(Put::There(On::Gpu(Box::new(OnGpu { executor, behind, moved: OnceLock::new() }))));
        }
        Err(error) => error,
    };
    let why = match &error {
        GpuError::Refused(refused) => Fallback { reason: Reason::Node, told: refused.to_string() },
        GpuError::Batch(error) => Fallback { reason: Reason::Node, told: error.to_string() },
        GpuError::Device(error) => fallback(error),
    };
    if wish.or_cpu { Ok(Put::Not(plan, Some(why))) } else { Err(EngineError::Device { reason: why.told }) }
}

/// Why a model without a plan is not on the GPU that was looked for.
///
/// # Errors
///
/// [`EngineError::Device`] where it may not be elsewhere.
pub(super) fn without_plan(refused: &Refused, options: &Options) -> Result<Option<Fallback>, EngineError> {
    match &options.gpu {
        None => Ok(None),
        Some(wish) if !wish.or_cpu => Err(EngineError::Device { reason: format!("only plans run there: {refused}") }),
        Some(wish) => {
            let node = || Fallback { reason: Reason::Node, told: refused.to_string() };
            Ok(Some(wish.device.as_ref().err().cloned().unwrap_or_else(node)))
        }
    }
}
