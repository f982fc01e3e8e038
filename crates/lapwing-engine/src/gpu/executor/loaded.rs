//! A plan on a device: its weights there, its kernels, and its programs.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::gpu::device::{self, CublasLt, CudaDevice, DeviceBuffer, DeviceError, Driver, Function, Modules, Stream};
use crate::gpu::kernel::Kernel;
use crate::gpu::lower::{LoweredProgram, PreparedPlan, Step};
use crate::gpu::{Capacity, GpuPrecision, LoweringTarget, ptx, route};
use lapwing_onnx::UnsupportedNode;
use lapwing_plan::exec::RunError;
use lapwing_plan::plan::{Activation, BatchSize, Plan};

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

/// Which kernels compute products of many rows.
#[derive(Clone, Debug, Default)]
pub enum GemmPolicy {
    /// Our own kernels.
    #[default]
    Own,
    /// The faster one of ours and cublasLt's, if the library is found.
    Quicker(Driver),
    /// cublasLt wherever it has a kernel; for comparisons.
    Library(Driver),
}

impl GemmPolicy {
    /// Where to look for the library.
    pub(crate) const fn libraries(&self) -> Option<&Driver> {
        match self {
            Self::Own => None,
            Self::Quicker(found) | Self::Library(found) => Some(found),
        }
    }

    /// The name used in reports.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Quicker(_) => "quicker",
            Self::Library(_) => "cublaslt",
        }
    }
}

/// A plan on a device, ready to run on any number of threads, each with a `CudaState` of its own.
#[derive(Debug)]
pub struct CudaExecutor {
    pub(crate) plan: Plan,
    pub(crate) device: Arc<CudaDevice>,
    pub(crate) modules: Modules,
    pub(crate) prepared: PreparedPlan,
    pub(crate) weights: DeviceBuffer,
    pub(crate) target: LoweringTarget,
    pub(crate) precision: GpuPrecision,
    /// Which kernels compute products; `Own` if the library was looked for and not found.
    pub(crate) gemm: GemmPolicy,
    /// Times of our own kernels for products that cublasLt supports too, and for the activation behind one of cublasLt's.
    pub(crate) own_times: Mutex<HashMap<(device::MatmulShape, Activation, &'static str), Duration>>,
}

impl CudaExecutor {
    /// Uploads the plan's weights, and loads its kernels. `gemm` selects the kernels of products of many rows.
    ///
    /// # Errors
    ///
    /// [`GpuError::Unsupported`] names the first node that no kernel supports; [`GpuError::Device`] if the device fails or
    /// has too little memory.
    pub fn new(plan: Plan, device: &Arc<CudaDevice>, precision: GpuPrecision, gemm: GemmPolicy) -> Result<Self, GpuError> {
        let refused =
            |e: lapwing_plan::plan::PlanError| UnsupportedNode { node: e.node, operator: "plan".into(), reason: e.reason };
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
            for launch in executor.program(size, &all)?.steps.iter().flat_map(Step::launches) {
                executor.function(launch.kernel)?;
            }
        }
        Ok(executor)
    }

    /// A loaded kernel.
    pub(crate) fn function(&self, kernel: &Kernel) -> Result<Arc<Function>, DeviceError> {
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
    pub(crate) const fn prepared(&self) -> &PreparedPlan {
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

    pub(crate) fn program_for(&self, capacity: Capacity, wanted: &[bool]) -> Result<LoweredProgram, UnsupportedNode> {
        // all weights were laid out at the beginning: lowering into this copy adds none
        let mut prepared = self.prepared.clone();
        let program = route::program(&mut prepared, &self.plan, capacity, wanted, &self.target)?;
        debug_assert_eq!(prepared.weights.bytes(), self.prepared.weights.bytes());
        Ok(program)
    }
}
