//! A plan on a device: its numbers are put there once, and each size of batch becomes a graph when it first comes. A request is
//! then one launch: what it brings is staged, the graph is launched, and what it asked for is read. Nothing is allocated
//! between the first kernel and the last, and nothing waits for the host.

mod capture;
mod choice;
mod outcome;
mod pieces;
mod stage;
mod state;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::device::{Block, CublasLt, Device, DeviceError, Function, Modules, Stream};
use super::kernel::Kernel;
use super::lower::{Prepared, Program, Step};
use super::route;
use super::{Capacity, GpuPrecision, Target, ptx};
use crate::UnsupportedNode;
use crate::exec::{Batch, RunError};
use crate::plan::{Plan, Size};

pub use self::choice::Gemm;
pub use self::pieces::{LIBRARY, Piece, Pieces};
pub use self::state::State;

/// Why a plan cannot be put on a device, or a batch not be run there.
#[derive(Debug, thiserror::Error)]
pub enum GpuError {
    /// A node that no kernel does.
    #[error(transparent)]
    Unsupported(#[from] UnsupportedNode),
    /// The batch is at fault.
    #[error(transparent)]
    Batch(#[from] RunError),
    /// The device is.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// How long parts of a run took on the device, by its own clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// From the first byte that is copied to the last, kernels included.
    pub all: Duration,
    /// Inputs to the device; zero where kernels read them where they lie.
    pub to_device: Duration,
    /// All kernels.
    pub kernels: Duration,
    /// Outputs back; zero where kernels write them where they are read.
    pub to_host: Duration,
}

/// A plan on a device, ready to run on any number of threads, each with a [`State`] of its own.
#[derive(Debug)]
pub struct Executor {
    plan: Plan,
    device: Arc<Device>,
    modules: Modules,
    prepared: Prepared,
    weights: Block,
    target: Target,
    precision: GpuPrecision,
    /// Who does products; ours, where the library was looked for and is not there.
    gemm: Gemm,
    /// How long our own kernels took for products that cublasLt does too.
    own_times: Mutex<HashMap<(super::device::Product, &'static str), Duration>>,
}

impl Executor {
    /// Puts the plan's numbers into the device's memory, and loads its kernels. `gemm` says who does products of many
    /// rows.
    ///
    /// # Errors
    ///
    /// [`GpuError::Unsupported`] with the first node that no kernel does, [`GpuError::Device`] where the device fails or has too
    /// little memory.
    pub fn new(plan: Plan, device: &Arc<Device>, precision: GpuPrecision, gemm: Gemm) -> Result<Self, GpuError> {
        let refused = |e: crate::plan::PlanError| UnsupportedNode { node: e.node, operator: "plan".into(), reason: e.reason };
        plan.check().map_err(refused)?;
        let info = device.info();
        let gemm = match gemm.libraries().map(|found| CublasLt::find(found, device)) {
            None => gemm,
            Some(Ok(lt)) => {
                tracing::debug!(version = %lt.version(), "cublasLt is there");
                gemm
            }
            Some(Err(error)) => {
                tracing::info!(%error, "products are done by our own kernels");
                Gemm::Own
            }
        };
        let target = Target {
            processors: info.multiprocessors.max(1) as usize,
            shared_bytes: info.shared_bytes as usize,
            has_cublaslt: gemm.libraries().is_some(),
        };
        let prepared = Prepared::new(&plan, &precision, &target)?;
        let weights = Block::new(device, prepared.book.bytes().max(256))?;
        let stream = Stream::new(device)?;
        prepared
            .book
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
        // the driver compiles what it has not compiled before: not while somebody waits
        let all = vec![true; executor.plan.outputs.len()];
        for size in [Size::uniform(1, 1), Size::uniform(16, 4)] {
            for step in executor.program(size, &all)?.steps {
                match step {
                    Step::Launch(launch) => executor.function(launch.kernel)?,
                    Step::Product(product) => executor.function(product.own.kernel)?,
                };
            }
        }
        Ok(executor)
    }

    /// A kernel, ready to be launched.
    fn function(&self, kernel: &Kernel) -> Result<Arc<Function>, DeviceError> {
        self.modules.load(kernel.module, ptx::text(kernel.module))?.function(kernel.name)
    }

    /// What is run.
    #[must_use]
    pub const fn plan(&self) -> &Plan {
        &self.plan
    }

    /// On what.
    #[must_use]
    pub const fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// In what numbers.
    #[must_use]
    pub const fn precision(&self) -> &GpuPrecision {
        &self.precision
    }

    /// How the plan's numbers are held.
    pub(in crate::gpu) const fn prepared(&self) -> &Prepared {
        &self.prepared
    }

    /// Who does products of many rows: `own` (our kernels), `quicker` (of ours and cublasLt's), `cublaslt`.
    #[must_use]
    pub const fn gemm(&self) -> &'static str {
        self.gemm.name()
    }

    /// The program with which batches of this size run.
    ///
    /// # Errors
    ///
    /// [`UnsupportedNode`] with a node that no kernel does at this size.
    pub fn program(&self, size: Size, wanted: &[bool]) -> Result<Program, UnsupportedNode> {
        self.program_for(route::capacity(&self.plan, size), wanted)
    }

    fn program_for(&self, capacity: Capacity, wanted: &[bool]) -> Result<Program, UnsupportedNode> {
        // every number of the model's has had its place since the beginning: the copy gets no new ones
        let mut prepared = self.prepared.clone();
        let program = route::program(&mut prepared, &self.plan, capacity, wanted, &self.target)?;
        debug_assert_eq!(prepared.book.bytes(), self.prepared.book.bytes());
        Ok(program)
    }

    /// Runs a batch: each output that is wanted gets its rows, end to end; the others become empty.
    ///
    /// # Errors
    ///
    /// [`GpuError`] with what is wrong about the batch or the device; then the outputs hold nothing of use.
    pub fn run(
        &self,
        state: &mut State,
        batch: &Batch<'_>,
        wanted: &[bool],
        outputs: &mut Vec<Vec<f32>>,
    ) -> Result<(), GpuError> {
        let size = batch.size(&self.plan)?;
        let mut run = state.ready(self, size, wanted)?;
        run.stage(batch)?;
        run.launch()?;
        run.told()?;
        run.read(batch, size, wanted, outputs)
    }

    /// As [`Self::run`], with the device's own times, which cost some time themselves.
    ///
    /// # Errors
    ///
    /// As [`Self::run`].
    pub fn timed(
        &self,
        state: &mut State,
        batch: &Batch<'_>,
        wanted: &[bool],
        outputs: &mut Vec<Vec<f32>>,
    ) -> Result<Times, GpuError> {
        let size = batch.size(&self.plan)?;
        let mut run = state.ready(self, size, wanted)?;
        run.stage(batch)?;
        let times = run.launch_timed()?;
        run.told()?;
        run.read(batch, size, wanted, outputs)?;
        Ok(times)
    }
}
