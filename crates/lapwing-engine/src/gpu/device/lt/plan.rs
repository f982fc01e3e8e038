//! Products of one shape, each with the library's algorithm for it.

use std::ffi::c_void;
use std::time::Duration;

use cudarc::cublaslt::sys;
use parking_lot::Mutex;

use super::super::buffer::DeviceBuffer;
use super::super::error::Result;
use super::super::stream::Stream;
use super::descriptors::Descriptors;
use super::library::check;
use super::shape::{MatmulOperands, MatmulShape};

/// The algorithm selected for a shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SelectedAlgorithm {
    /// The library's algorithm id.
    pub algorithm: i32,
    /// The library's tile id.
    pub tile: u32,
    /// The library's stages id.
    pub stages: u32,
    /// Number of parts into which k is split.
    pub split_k: u32,
    /// Required workspace, in bytes.
    pub workspace_bytes: usize,
    /// Median device time of one product.
    pub time: Duration,
    /// Number of algorithms that the library proposed.
    pub proposed: usize,
    /// Number of those that it then rejected.
    pub refused: usize,
}

/// A shape with the algorithm selected for it.
pub struct MatmulPlan {
    product: MatmulShape,
    /// The bias address is part of the descriptors, so they are locked while a product is enqueued.
    descriptors: Mutex<Descriptors>,
    kernel: sys::cublasLtMatmulAlgo_t,
    tuning: SelectedAlgorithm,
}

// SAFETY: descriptors are plain memory of the library, used by one thread at a time behind the lock; the other fields
// are plain values.
unsafe impl Send for MatmulPlan {}
// SAFETY: as above.
unsafe impl Sync for MatmulPlan {}

impl std::fmt::Debug for MatmulPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MatmulPlan").field("product", &self.product).field("tuning", &self.tuning).finish_non_exhaustive()
    }
}

impl MatmulPlan {
    pub(crate) fn new(
        product: MatmulShape,
        descriptors: Descriptors,
        kernel: sys::cublasLtMatmulAlgo_t,
        tuning: SelectedAlgorithm,
    ) -> Self {
        Self { product, descriptors: Mutex::new(descriptors), kernel, tuning }
    }

    /// Its shape.
    #[must_use]
    pub fn product(&self) -> MatmulShape {
        self.product
    }

    /// The selected algorithm and its time.
    #[must_use]
    pub fn tuning(&self) -> SelectedAlgorithm {
        self.tuning
    }

    /// Enqueues the product on the stream.
    ///
    /// # Safety
    /// The addresses refer to matrices of this shape that live until the work is done, the handle is the library's, the
    /// context is current, and no other work uses the workspace meanwhile.
    pub(crate) unsafe fn enqueue(
        &self,
        handle: sys::cublasLtHandle_t,
        stream: &Stream,
        operands: &MatmulOperands,
        workspace: &DeviceBuffer,
    ) -> Result<()> {
        let descriptors = self.descriptors.lock();
        // SAFETY: guaranteed by the caller.
        unsafe { enqueue(handle, stream, &self.product, &descriptors, operands, &self.kernel, workspace) }
    }
}

/// Enqueues a product on the stream, with one of the library's algorithms.
///
/// # Safety
/// As for [`MatmulPlan::enqueue`]; the library proposed the algorithm for this shape and workspace size.
pub(crate) unsafe fn enqueue(
    handle: sys::cublasLtHandle_t,
    stream: &Stream,
    product: &MatmulShape,
    descriptors: &Descriptors,
    operands: &MatmulOperands,
    kernel: &sys::cublasLtMatmulAlgo_t,
    workspace: &DeviceBuffer,
) -> Result<()> {
    product.accepts(operands)?;
    if let Some(bias) = operands.bias {
        descriptors.operation.set(sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias)?;
    }
    let at = |address: u64| std::ptr::with_exposed_provenance_mut::<c_void>(address as usize);
    let (one, beta) = (1_f32, if operands.residual.is_some() { 1_f32 } else { 0_f32 });
    // SAFETY: descriptors of this shape; both factors are host values that are read before the call returns; the caller
    // guarantees the rest.
    check("cublasLtMatmul", unsafe {
        sys::cublasLtMatmul(
            handle,
            descriptors.operation.0,
            std::ptr::from_ref(&one).cast(),
            at(operands.w),
            descriptors.w.0,
            at(operands.x),
            descriptors.x.0,
            std::ptr::from_ref(&beta).cast(),
            at(operands.residual.unwrap_or(operands.y)),
            descriptors.residual.0,
            at(operands.y),
            descriptors.y.0,
            kernel,
            at(workspace.address()),
            workspace.bytes(),
            stream.raw.handle.cast(),
        )
    })
}
