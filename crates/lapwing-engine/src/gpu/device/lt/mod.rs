//! cublasLt, if it is found: matrix products of one shape each. For each shape the fastest of the library's algorithms
//! is selected by timing and kept. Everything is prepared at start; enqueuing a product on a stream is one call of the
//! library.
//!
//! 8-bit products never use it: our kernel's epilogue scales rows and columns. Of the activations it applies only ReLU; behind a product
//! with another one (the library has GELU in its tanh form only) a kernel of ours follows.

mod descriptors;
pub(crate) mod library;
mod plan;
mod shape;
mod tune;

use std::collections::HashMap;
use std::sync::Arc;

use cudarc::cublaslt::sys;
use parking_lot::Mutex;

use super::buffer::DeviceBuffer;
use super::context::CudaDevice;
use super::error::Result;
use super::probe::Driver;
use super::stream::Stream;
use super::version::Version;

use library::check;
pub use plan::{MatmulPlan, SelectedAlgorithm};
pub use shape::{MatmulOperands, MatmulPrecision, MatmulShape};

/// Workspace for compute capability 9.0 and newer, as NVIDIA recommends.
const WORKSPACE_BYTES: usize = 32 << 20;
/// Workspace for older devices.
const WORKSPACE_BYTES_BEFORE_9: usize = 4 << 20;

/// The library's state on a device. All of its products share its workspace: they must be enqueued on one stream, or in
/// graphs that are launched on one stream.
pub struct CublasLt {
    library: Arc<Library>,
    workspace: Arc<DeviceBuffer>,
    version: Version,
    plans: Mutex<HashMap<MatmulShape, Option<Arc<MatmulPlan>>>>,
}

/// The library's handle, shared with its plans.
pub(crate) struct Library {
    device: Arc<CudaDevice>,
    handle: sys::cublasLtHandle_t,
}

// SAFETY: the library allows any thread to use the handle at any time.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: this owns the handle; no product is being enqueued with it.
        let ended = self.device.bind().and_then(|()| check("cublasLtDestroy", unsafe { sys::cublasLtDestroy(self.handle) }));
        self.device.record_drop_error("cublasLt", ended);
    }
}

impl std::fmt::Debug for CublasLt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CublasLt")
            .field("version", &self.version)
            .field("plans", &self.plans.lock().len())
            .finish_non_exhaustive()
    }
}

impl CublasLt {
    /// Looks for the library, first in the directory where the driver was looked for, then on the system's library
    /// path, and allocates its workspace. The workspace always has the same size, because the library's selection
    /// depends on it.
    ///
    /// # Errors
    /// `DeviceError::NoLt` with the reason: the library is missing, is older than 12.0, lacks a function, or would
    /// change a precision by itself. Any other error is the device's.
    pub fn find(found: &Driver, device: &Arc<CudaDevice>) -> Result<Self> {
        let version = library::find(found.directory())?;
        device.bind()?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the library is present with all of its functions; the context is current; `handle` is valid for
        // writing.
        check("cublasLtCreate", unsafe { sys::cublasLtCreate(&mut handle) })?;
        let library = Arc::new(Library { device: device.clone(), handle });
        let bytes = if device.info().capability.0 >= 9 { WORKSPACE_BYTES } else { WORKSPACE_BYTES_BEFORE_9 };
        let workspace = Arc::new(DeviceBuffer::new(device, bytes)?);
        Ok(Self { library, workspace, version, plans: Mutex::default() })
    }

    /// The library's version.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// Returns the plan for products of one shape. The first time, up to eight algorithms that the library proposes are
    /// timed with these operands on the stream, and the fastest is kept. `None` if the library has no algorithm for the
    /// shape.
    ///
    /// The contents of `operands.y` are undefined afterwards.
    ///
    /// # Errors
    /// The shape is invalid ([`MatmulShape::check`]), or the device failed. An algorithm that the library rejects is
    /// skipped.
    ///
    /// # Safety
    /// As for [`CublasLt::enqueue`].
    pub unsafe fn plan(
        &self,
        stream: &mut Stream,
        product: MatmulShape,
        operands: &MatmulOperands,
    ) -> Result<Option<Arc<MatmulPlan>>> {
        product.check()?;
        self.library.device.check_owner("a stream", stream.device())?;
        // locked while timing: two timings at once would disturb each other
        let mut plans = self.plans.lock();
        if let Some(known) = plans.get(&product) {
            return Ok(known.clone());
        }
        // SAFETY: guaranteed by the caller.
        let plan = unsafe { tune::pick(self.library.handle, &self.workspace, stream, product, operands) }?.map(Arc::new);
        plans.insert(product, plan.clone());
        Ok(plan)
    }

    /// Enqueues a product on the stream.
    ///
    /// # Errors
    /// An address is missing or not a multiple of 16, or the library rejected the call.
    ///
    /// # Safety
    /// The addresses refer to matrices of the plan's shape on this device, which live until the work is done
    /// ([`Stream::keep_until_done`]). Products of this library are enqueued on one stream only.
    pub unsafe fn enqueue(&self, stream: &Stream, plan: &MatmulPlan, operands: &MatmulOperands) -> Result<()> {
        self.library.device.check_owner("a stream", stream.device())?;
        self.library.device.bind()?;
        // SAFETY: guaranteed by the caller; the workspace has the size that the plan's algorithm was selected for, and
        // the stream keeps it alive.
        unsafe { plan.enqueue(self.library.handle, stream, operands, &self.workspace) }?;
        stream.keep_until_done(self.workspace.clone());
        stream.keep_until_done(self.library.clone());
        Ok(())
    }

    /// All plans so far, for reports: shapes with the selected algorithm, in no order.
    #[must_use]
    pub fn plans(&self) -> Vec<(MatmulShape, Option<SelectedAlgorithm>)> {
        self.plans.lock().iter().map(|(product, plan)| (*product, plan.as_ref().map(|plan| plan.tuning()))).collect()
    }
}
