//! Replaces `gpu` in a build without the feature `cuda`: a GPU can be requested, and the answer is that this build does not
//! support it. The other types have no values.

use std::path::Path;

use lapwing_plan::exec::{Batch, CallBatch, CpuPrecision, GpuPrecision};
use lapwing_plan::plan::Plan;

/// Why no GPU can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this build was made without the feature `cuda`")]
pub struct DeviceError;

/// A request to run models on a GPU.
#[derive(Clone, Debug)]
pub enum DeviceRequest {}

impl DeviceRequest {
    /// Requests the first usable device: `None`, because this build uses none.
    #[must_use]
    pub fn auto(_: Option<&Path>, _: GpuPrecision) -> Option<Self> {
        None
    }

    /// Requests this device and no other.
    ///
    /// # Errors
    ///
    /// Always [`DeviceError`].
    pub fn device(_: Option<&Path>, _: usize, _: GpuPrecision) -> Result<Self, DeviceError> {
        Err(DeviceError)
    }

    /// The same request with static ranges for 8-bit products.
    #[must_use]
    pub const fn calibrated(self, _: &CpuPrecision) -> Self {
        match self {}
    }

    /// The same request with Lapwing's own kernels for all products.
    #[must_use]
    pub const fn with_own_kernels(self) -> Self {
        match self {}
    }

    /// The device's name if it is the emulated one of the tests.
    #[must_use]
    pub const fn emulated_name(&self) -> Option<&str> {
        match *self {}
    }
}

/// A plan on a GPU.
#[derive(Clone, Copy, Debug)]
pub enum CudaExecutor {}

impl CudaExecutor {
    /// The plan.
    #[must_use]
    pub const fn plan(&self) -> &Plan {
        match *self {}
    }

    /// Runs a batch.
    ///
    /// # Errors
    ///
    /// None: there is no executor.
    pub const fn run_calls(
        &self,
        _: &mut CudaState,
        _: &CallBatch<'_>,
        _: &[bool],
        _: &mut Vec<Vec<f32>>,
    ) -> Result<u64, DeviceError> {
        match *self {}
    }

    /// How long the parts of runs take.
    ///
    /// # Errors
    ///
    /// None: there is no executor.
    pub const fn time_steps(&self, _: &mut CudaState, _: &Batch<'_>, _: &[bool], _: usize) -> Result<RunTimings, DeviceError> {
        match *self {}
    }
}

/// How long the parts of a run take on a GPU.
#[derive(Clone, Copy, Debug)]
pub enum RunTimings {}

/// What one thread needs to run plans on a GPU: nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct CudaState;
