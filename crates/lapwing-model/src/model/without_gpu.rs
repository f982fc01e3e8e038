//! Replaces `plan_on_gpu` in a build without the feature `cuda`: no plan runs on a GPU.

use std::sync::Arc;

use super::batch::{BatchResult, CallWork};
use super::executor::{Executor, ExecutorName, Workspace};
use super::options::{ModelOptions, Placing};
use super::ports::Ports;
use lapwing_engine::placement::{Fallback, Placement};
use lapwing_onnx::tensor::{Tensor, TensorSpec};
use lapwing_onnx::{EngineError, UnsupportedNode};
use lapwing_plan::plan::Plan;

/// A plan on a GPU.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PlanOnGpu {}

impl Executor for PlanOnGpu {
    fn name(&self) -> ExecutorName {
        match *self {}
    }

    fn inputs(&self) -> &[TensorSpec] {
        match *self {}
    }

    fn outputs(&self) -> &[TensorSpec] {
        match *self {}
    }

    fn batches(&self) -> bool {
        match *self {}
    }

    fn accept(&self, _: &[Tensor]) -> Result<CallWork, EngineError> {
        match *self {}
    }

    fn placement(&self) -> Arc<Placement> {
        match *self {}
    }

    fn run(&self, _: &mut Workspace, _: &[&[Tensor]], _: &[bool]) -> Result<BatchResult, EngineError> {
        match *self {}
    }
}

/// Leaves the plan to the CPU.
#[allow(clippy::unnecessary_wraps, reason = "placing a plan on a GPU can fail")]
pub(crate) fn place(plan: Plan, _: &Ports, _: &ModelOptions) -> Result<Placing<PlanOnGpu>, EngineError> {
    Ok(Placing::NotPlaced(plan, None))
}

/// Finds no reason, because no GPU is looked for.
#[allow(clippy::unnecessary_wraps, reason = "a request for a GPU can fail")]
pub(crate) fn without_plan(_: &UnsupportedNode, _: &ModelOptions) -> Result<Option<Fallback>, EngineError> {
    Ok(None)
}
