//! Runs of a plan on its device.

use super::capture::DeviceTimes;
use super::loaded::{CudaExecutor, GpuError};
use super::stage::HostInputs;
use super::state::CudaState;
use crate::clock::Stamp;
use lapwing_plan::exec::{Batch, CallBatch};

impl CudaExecutor {
    /// Runs a batch and writes the rows of each wanted output contiguously into `outputs`; the others become empty.
    ///
    /// # Errors
    ///
    /// [`GpuError`] says what is wrong with the batch or the device; the outputs are then undefined.
    pub fn run(
        &self,
        state: &mut CudaState,
        batch: &Batch<'_>,
        wanted: &[bool],
        outputs: &mut Vec<Vec<f32>>,
    ) -> Result<(), GpuError> {
        self.run_inputs(state, HostInputs::Batch(batch), wanted, outputs).map(drop)
    }

    /// Like [`Self::run`], with the inputs as their calls hold them, which saves a copy. Returns the time in which they were laid end
    /// to end, in nanoseconds.
    ///
    /// # Errors
    ///
    /// Like [`Self::run`].
    pub fn run_calls(
        &self,
        state: &mut CudaState,
        batch: &CallBatch<'_>,
        wanted: &[bool],
        outputs: &mut Vec<Vec<f32>>,
    ) -> Result<u64, GpuError> {
        self.run_inputs(state, HostInputs::Calls(batch), wanted, outputs)
    }

    fn run_inputs(
        &self,
        state: &mut CudaState,
        inputs: HostInputs<'_>,
        wanted: &[bool],
        outputs: &mut Vec<Vec<f32>>,
    ) -> Result<u64, GpuError> {
        let size = inputs.size(&self.plan)?;
        let mut run = state.prepare(self, size, wanted)?;
        let began = Stamp::now();
        run.stage(inputs)?;
        let staged_ns = began.elapsed();
        run.launch()?;
        run.check_fault()?;
        run.read(inputs, size, wanted, outputs)?;
        Ok(staged_ns)
    }

    /// Like [`Self::run`], and returns the device times; measuring adds some time itself.
    ///
    /// # Errors
    ///
    /// Like [`Self::run`].
    pub fn timed(
        &self,
        state: &mut CudaState,
        batch: &Batch<'_>,
        wanted: &[bool],
        outputs: &mut Vec<Vec<f32>>,
    ) -> Result<DeviceTimes, GpuError> {
        let (size, inputs) = (batch.size(&self.plan)?, HostInputs::Batch(batch));
        let mut run = state.prepare(self, size, wanted)?;
        run.stage(inputs)?;
        let times = run.launch_timed()?;
        run.check_fault()?;
        run.read(inputs, size, wanted, outputs)?;
        Ok(times)
    }
}
