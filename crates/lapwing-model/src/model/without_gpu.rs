//! Replaces `on_gpu` in a build without the feature `cuda`: no plan runs on a GPU.

use super::options::{Fault, ModelOptions, Placing};
use lapwing_engine::cpu::CpuExecutor;
use lapwing_engine::gpu::{CudaState, DeviceError};
use lapwing_engine::placement::{Fallback, Placement};
use lapwing_plan::plan::Plan;
use lapwing_plan::{EngineError, UnsupportedNode};

/// A plan on a GPU.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OnGpu {}

impl OnGpu {
    pub(crate) const fn executor(&self) -> &lapwing_engine::gpu::CudaExecutor {
        match *self {}
    }

    pub(crate) const fn moved(&self) -> Option<&(CpuExecutor, Fallback)> {
        match *self {}
    }

    pub(crate) const fn placement(&self) -> Placement {
        match *self {}
    }

    pub(crate) const fn after(&self, _: DeviceError, _: &mut CudaState) -> Result<&CpuExecutor, Fault> {
        match *self {}
    }
}

/// Leaves the plan to the CPU.
#[allow(clippy::unnecessary_wraps, reason = "placing a plan on a GPU can fail")]
pub(crate) fn place(plan: Plan, _: &ModelOptions) -> Result<Placing<OnGpu>, EngineError> {
    Ok(Placing::NotPlaced(plan, None))
}

/// Finds no reason, because no GPU is looked for.
#[allow(clippy::unnecessary_wraps, reason = "a request for a GPU can fail")]
pub(crate) fn without_plan(_: &UnsupportedNode, _: &ModelOptions) -> Result<Option<Fallback>, EngineError> {
    Ok(None)
}
