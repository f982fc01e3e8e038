//! cublasLt, where it is found: matrix products of one shape each, for which the quickest of its kernels was picked by timing and
//! is kept. All it needs is made at start; a product that is given to a stream is one call of the library.
//!
//! Never by it: products of 8-bit numbers (the own kernel's epilogue scales rows and columns), and GELU (the library's is the
//! tanh form).

mod descriptors;
pub(super) mod library;
mod plan;
mod tune;

use std::collections::HashMap;
use std::sync::Arc;

use cudarc::cublaslt::sys;
use parking_lot::Mutex;

use super::block::Block;
use super::context::Device;
use super::error::{DeviceError, Result};
use super::probe::{Found, Version};
use super::stream::Stream;

pub use plan::{Operands, Plan, Product, ProductPrecision};
pub use tune::Tuning;

/// Workspace for compute capability 9.0 on, as the library's makers advise.
const WORKSPACE_BYTES: usize = 32 << 20;
/// Workspace for older devices.
const WORKSPACE_BYTES_BEFORE_9: usize = 4 << 20;

/// The library in use on a device. Its workspace is shared by all of its products: they are given to one stream, or to graphs
/// that are launched on one stream.
pub struct CublasLt {
    library: Arc<Library>,
    workspace: Arc<Block>,
    version: Version,
    plans: Mutex<HashMap<Product, Option<Arc<Plan>>>>,
}

/// The library's handle, kept by plans.
pub(super) struct Library {
    device: Arc<Device>,
    handle: sys::cublasLtHandle_t,
}

// SAFETY: a handle that the library lets any thread use at any time.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: the handle is this one's; no product of it is being given to a stream.
        let ended = self.device.bind().and_then(|()| check("cublasLtDestroy", unsafe { sys::cublasLtDestroy(self.handle) }));
        self.device.note("cublasLt", ended);
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
    /// Looks for the library, first in the directory in which the driver was looked for, then where the system looks; and
    /// allocates its workspace, of the same size always, since the library's choice depends on it.
    ///
    /// # Errors
    /// [`DeviceError::NoLt`] with the reason: there is none, it is older than 12.0, lacks a function, or would change a precision
    /// by itself. Any other: the device's.
    pub fn find(found: &Found, device: &Arc<Device>) -> Result<Self> {
        let version = library::find(found.directory())?;
        device.bind()?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the library is there with all of its functions; the context is current; `handle` is a valid place.
        check("cublasLtCreate", unsafe { sys::cublasLtCreate(&mut handle) })?;
        let library = Arc::new(Library { device: device.clone(), handle });
        let bytes = if device.info().capability.0 >= 9 { WORKSPACE_BYTES } else { WORKSPACE_BYTES_BEFORE_9 };
        let workspace = Arc::new(Block::new(device, bytes)?);
        Ok(Self { library, workspace, version, plans: Mutex::default() })
    }

    /// The library's version.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// The plan for products of one shape. The first time, up to eight kernels that the library proposes are timed on these
    /// operands, on the stream, and the quickest is kept. None where the library has no kernel for the shape.
    ///
    /// What `operands.y` holds afterwards is not said.
    ///
    /// # Errors
    /// The shape is not one ([`Product::check`]); a fault of the device. A kernel that the library refuses is left out.
    ///
    /// # Safety
    /// As for [`CublasLt::give`].
    pub unsafe fn plan(&self, stream: &mut Stream, product: Product, operands: &Operands) -> Result<Option<Arc<Plan>>> {
        product.check()?;
        self.library.device.own("a stream", stream.device())?;
        // held while timing: two that time at once would disturb one another
        let mut plans = self.plans.lock();
        if let Some(known) = plans.get(&product) {
            return Ok(known.clone());
        }
        // SAFETY: the caller's promise.
        let plan = unsafe { tune::pick(self, stream, product, operands) }?.map(Arc::new);
        plans.insert(product, plan.clone());
        Ok(plan)
    }

    /// Gives a product to the stream.
    ///
    /// # Errors
    /// An address is not a multiple of 16, or there is none for what the shape has; the library's refusal.
    ///
    /// # Safety
    /// The addresses lead to matrices of the plan's shape on this device, which live until the work is done ([`Stream::keep`]).
    /// Products of this library are given to one stream only.
    pub unsafe fn give(&self, stream: &Stream, plan: &Plan, operands: &Operands) -> Result<()> {
        self.library.device.own("a stream", stream.device())?;
        self.library.device.bind()?;
        // SAFETY: the caller's promise; the workspace is as large as the plan's kernel was told, and held by the stream.
        unsafe { plan.enqueue(self.library.handle, stream, operands, &self.workspace) }?;
        stream.keep(self.workspace.clone());
        stream.keep(self.library.clone());
        Ok(())
    }

    /// All plans so far, for reports: shapes with what was picked, in no order.
    #[must_use]
    pub fn plans(&self) -> Vec<(Product, Option<Tuning>)> {
        self.plans.lock().iter().map(|(product, plan)| (*product, plan.as_ref().map(|plan| plan.tuning()))).collect()
    }
}

/// The result of the library's function. Called only when the library is loaded.
pub(super) fn check(call: &'static str, status: sys::cublasStatus_t) -> Result<()> {
    match status {
        sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS => Ok(()),
        _ => Err(DeviceError::Lt { call, text: format!("{status:?}") }),
    }
}
