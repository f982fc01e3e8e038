//! The GPU executor: the weights of a plan are uploaded once, and each batch size is captured as a CUDA graph when it
//! is first used. A request is then one launch: its inputs are staged, the graph is launched, and the requested outputs
//! are read. Between the first and the last kernel nothing is allocated and nothing waits for the host.

mod capture;
mod results;
mod selection;
mod stage;
mod state;
mod timings;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::device::{CublasLt, CudaDevice, DeviceBuffer, DeviceError, Function, Modules, Stream};
use super::kernel::Kernel;
use super::lower::{LoweredProgram, PreparedPlan, Step};
use super::route;
use super::{Capacity, GpuPrecision, LoweringTarget, ptx};
use crate::UnsupportedNode;
use crate::exec::{Batch, RunError};
use crate::plan::{BatchSize, Plan};

pub use self::selection::GemmPolicy;
pub use self::state::CudaState;
pub use self::timings::{LIBRARY, RunTimings, StepTiming};

/// Why a plan cannot run on a device, or a batch failed there.
#[derive(Debug, thiserror::Error)]
pub enum GpuError {
    /// No kernel supports a node.
    #[error(transparent)]
    Unsupported(#[from] UnsupportedNode),
    /// The batch is invalid.
    #[error(transparent)]
    Batch(#[from] RunError),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// Durations of the phases of a run, by the device's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceTimes {
    /// From the first copied byte to the last, kernels included.
    pub all: Duration,
    /// Input copies; zero if kernels read the inputs in host memory.
    pub to_device: Duration,
    /// All kernels.
    pub kernels: Duration,
    /// Output copies; zero if kernels write the outputs in host memory.
    pub to_host: Duration,
}

/// A plan on a device, ready to run on any number of threads, each with a [`CudaState`] of its own.
#[derive(Debug)]
pub struct CudaExecutor {
    plan: Plan,
    device: Arc<CudaDevice>,
    modules: Modules,
    prepared: PreparedPlan,
    weights: DeviceBuffer,
    target: LoweringTarget,
    precision: GpuPrecision,
    /// Which kernels compute products; `Own` if the library was looked for and not found.
    gemm: GemmPolicy,
    /// Times of our own kernels for products that cublasLt supports too.
    own_times: Mutex<HashMap<(super::device::MatmulShape, &'static str), Duration>>,
}

impl CudaExecutor {
    /// Uploads the plan's weights, and loads its kernels. `gemm` selects the kernels of products of many rows.
    ///
    /// # Errors
    ///
    /// [`GpuError::Unsupported`] names the first node that no kernel supports; [`GpuError::Device`] if the device fails or
    /// has too little memory.
    pub fn new(plan: Plan, device: &Arc<CudaDevice>, precision: GpuPrecision, gemm: GemmPolicy) -> Result<Self, GpuError> {
        let refused = |e: crate::plan::PlanError| UnsupportedNode { node: e.node, operator: "plan".into(), reason: e.reason };
        plan.check().map_err(refused)?;
        let info = device.info();
        let gemm = match gemm.libraries().map(|found| CublasLt::find(found, device)) {
            None => gemm,
            Some(Ok(lt)) => {
                tracing::debug!(version = %lt.version(), "found cublasLt");
                gemm
            }
            Some(Err(error)) => {
                tracing::info!(%error, "cublasLt cannot be used; products run on Lapwing's own kernels");
                GemmPolicy::Own
            }
        };
        let target = LoweringTarget {
            processors: info.multiprocessors.max(1) as usize,
            shared_bytes: info.shared_bytes as usize,
            has_cublaslt: gemm.libraries().is_some(),
        };
        let prepared = PreparedPlan::new(&plan, &precision, &target)?;
        let weights = DeviceBuffer::new(device, prepared.weights.bytes().max(256))?;
        let stream = Stream::new(device)?;
        prepared
            .weights
            .write(&plan, |offset, bytes| if bytes.is_empty() { Ok(()) } else { weights.upload(&stream, offset, bytes) })?;
        let modules = Modules::new(device);
        let executor = Self {
            plan,
            device: device.clone(),
            modules,
            prepared,
            weights,
            target,
            precision,
            gemm,
            own_times: Mutex::default(),
        };
        // compile all kernels now rather than during the first request
        let all = vec![true; executor.plan.outputs.len()];
        for size in [BatchSize::uniform(1, 1), BatchSize::uniform(16, 4)] {
            for step in executor.program(size, &all)?.steps {
                match step {
                    Step::Launch(launch) => executor.function(launch.kernel)?,
                    Step::Product(product) => executor.function(product.own.kernel)?,
                };
            }
        }
        Ok(executor)
    }

    /// A loaded kernel.
    fn function(&self, kernel: &Kernel) -> Result<Arc<Function>, DeviceError> {
        self.modules.load(kernel.module, ptx::text(kernel.module))?.function(kernel.name)
    }

    /// The plan.
    #[must_use]
    pub const fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The device.
    #[must_use]
    pub const fn device(&self) -> &Arc<CudaDevice> {
        &self.device
    }

    /// The precision of products.
    #[must_use]
    pub const fn precision(&self) -> &GpuPrecision {
        &self.precision
    }

    /// The layout of the plan's weights and values.
    pub(in crate::gpu) const fn prepared(&self) -> &PreparedPlan {
        &self.prepared
    }

    /// Which kernels compute products of many rows: `own` (ours), `quicker` (the faster one of ours and cublasLt's),
    /// `cublaslt`.
    #[must_use]
    pub const fn gemm(&self) -> &'static str {
        self.gemm.name()
    }

    /// The program with which batches of this size run.
    ///
    /// # Errors
    ///
    /// [`UnsupportedNode`] names a node that no kernel supports at this size.
    pub fn program(&self, size: BatchSize, wanted: &[bool]) -> Result<LoweredProgram, UnsupportedNode> {
        self.program_for(route::capacity(&self.plan, size), wanted)
    }

    fn program_for(&self, capacity: Capacity, wanted: &[bool]) -> Result<LoweredProgram, UnsupportedNode> {
        // all weights were laid out at the beginning: lowering into this copy adds none
        let mut prepared = self.prepared.clone();
        let program = route::program(&mut prepared, &self.plan, capacity, wanted, &self.target)?;
        debug_assert_eq!(prepared.weights.bytes(), self.prepared.weights.bytes());
        Ok(program)
    }

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
