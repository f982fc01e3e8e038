//! Runs of a plan on its device.

use super::capture::DeviceTimes;
use super::loaded::{CudaExecutor, GpuError};
use super::state::CudaState;
use lapwing_plan::exec::Batch;

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
        let size = batch.size(&self.plan)?;
        let mut run = state.prepare(self, size, wanted)?;
        run.stage(batch)?;
        run.launch()?;
        run.check_fault()?;
        run.read(batch, size, wanted, outputs)
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
        let size = batch.size(&self.plan)?;
        let mut run = state.prepare(self, size, wanted)?;
        run.stage(batch)?;
        let times = run.launch_timed()?;
        run.check_fault()?;
        run.read(batch, size, wanted, outputs)?;
        Ok(times)
    }
}
