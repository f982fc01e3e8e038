//! Replaces `on_gpu` in a build without the feature `cuda`: no plan runs on a GPU.

use super::ModelOptions;
use super::executor::{Fault, Memory, Placing};
use crate::cpu::CpuExecutor;
use crate::exec::{Batch, Fallback, Placement};
use crate::plan::Plan;
use crate::{EngineError, UnsupportedNode};

/// A plan on a GPU.
#[derive(Clone, Copy, Debug)]
pub(super) enum OnGpu {}

impl OnGpu {
    pub(super) const fn executor(&self) -> &crate::gpu::CudaExecutor {
        match *self {}
    }

    pub(super) const fn moved(&self) -> Option<&(CpuExecutor, Fallback)> {
        match *self {}
    }

    pub(super) const fn placement(&self) -> Placement {
        match *self {}
    }

    pub(super) const fn run(&self, _: &mut Memory, _: &Batch<'_>, _: &[bool], _: &mut Vec<Vec<f32>>) -> Result<(), Fault> {
        match *self {}
    }
}

/// Leaves the plan to the CPU.
#[allow(clippy::unnecessary_wraps, reason = "placing a plan on a GPU can fail")]
pub(super) fn place(plan: Plan, _: &ModelOptions) -> Result<Placing, EngineError> {
    Ok(Placing::NotPlaced(plan, None))
}

/// Finds no reason, because no GPU is looked for.
#[allow(clippy::unnecessary_wraps, reason = "a request for a GPU can fail")]
pub(super) fn without_plan(_: &UnsupportedNode, _: &ModelOptions) -> Result<Option<Fallback>, EngineError> {
    Ok(None)
}
