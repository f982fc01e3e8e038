//! Replaces `gpu` in a build without the feature `cuda`: no GPU is measured.

use super::rows::{Case, GpuPeaksRow, Run};
use super::{Shape, ToolError};
use lapwing_engine::gpu::CudaExecutor;
use lapwing_model::{Model, Workspace};
use lapwing_onnx::tensor::Tensor;

/// A GPU that was measured.
#[derive(Debug)]
pub(crate) enum Gpu {}

impl Gpu {
    pub(crate) const fn new(executor: &CudaExecutor) -> Result<Self, ToolError> {
        match *executor {}
    }

    pub(crate) const fn row(&mut self, _: &Run) -> Result<GpuPeaksRow, ToolError> {
        match *self {}
    }

    pub(crate) const fn case(
        &mut self,
        _: &Model,
        _: &mut Workspace,
        _: Shape,
        _: &[Tensor],
        _: bool,
    ) -> Result<Case, ToolError> {
        match *self {}
    }
}
