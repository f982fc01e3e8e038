//! Products of one shape, and the kernel of the library that does them.

use std::ffi::c_void;

use cudarc::cublaslt::sys;
use parking_lot::Mutex;

use super::super::block::Block;
use super::super::error::{DeviceError, Result};
use super::super::stream::Stream;
use super::check;
use super::descriptors::Descriptors;
use super::tune::Tuning;

/// Where matrices and vectors begin: at multiples of this, in bytes.
pub(super) const ALIGNMENT: u64 = 16;

/// How the library multiplies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProductPrecision {
    /// 32-bit numbers, multiplied as such.
    Fp32,
    /// 32-bit numbers, the factors rounded to TF32, summed in 32 bits.
    Tf32,
    /// 16-bit numbers, summed in 32 bits.
    Fp16,
}

/// y = activation(x · wᵀ + bias) or y = x · wᵀ + bias + residual. Strides are the distance of rows, in elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Product {
    /// Of all matrices; the bias is of the matrices' kind too.
    pub precision: ProductPrecision,
    /// Rows of x, y and the residual.
    pub rows: u32,
    /// Rows of w, columns of y and the residual.
    pub n: u32,
    /// Columns of x and w.
    pub k: u32,
    /// Of x.
    pub x_stride: u32,
    /// Of w.
    pub w_stride: u32,
    /// Of y.
    pub y_stride: u32,
    /// Of the residual, where there is one.
    pub residual_stride: Option<u32>,
    /// Whether there is a bias, of n numbers.
    pub bias: bool,
    /// Whether what is below zero becomes zero: not with a residual, which the library would add before.
    pub relu: bool,
}

/// Where a product's matrices are: addresses on the device, multiples of 16.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operands {
    /// `[rows][k]`.
    pub x: u64,
    /// `[n][k]`.
    pub w: u64,
    /// `[n]`, where the shape has a bias.
    pub bias: Option<u64>,
    /// `[rows][n]`, where the shape has a residual. It may be y itself where the strides are equal.
    pub residual: Option<u64>,
    /// `[rows][n]`.
    pub y: u64,
}

impl Product {
    /// That it is a shape which the library can be asked for.
    ///
    /// # Errors
    /// A size is 0, a stride is below its width, or there are both an activation and a residual.
    pub fn check(&self) -> Result<()> {
        let no = |text: String| Err(DeviceError::Lt { call: "a product", text });
        if self.rows == 0 || self.n == 0 || self.k == 0 {
            return no(format!("{} × {} × {}: a size is 0", self.rows, self.n, self.k));
        }
        let residual = self.residual_stride.unwrap_or(self.n);
        for (what, stride, width) in [
            ("x", self.x_stride, self.k),
            ("w", self.w_stride, self.k),
            ("y", self.y_stride, self.n),
            ("the residual", residual, self.n),
        ] {
            if stride < width {
                return no(format!("the stride {stride} of {what} is below its width {width}"));
            }
        }
        if self.relu && self.residual_stride.is_some() {
            return no("an activation is not done before a residual is added".to_owned());
        }
        Ok(())
    }

    pub(super) fn epilogue(&self) -> sys::cublasLtEpilogue_t {
        match (self.relu, self.bias) {
            (false, false) => sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_DEFAULT,
            (false, true) => sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS,
            (true, false) => sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_RELU,
            (true, true) => sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_RELU_BIAS,
        }
    }

    fn accepts(&self, operands: &Operands) -> Result<()> {
        let no = |text: &str| Err(DeviceError::Lt { call: "a product", text: text.to_owned() });
        if self.bias != operands.bias.is_some() || self.residual_stride.is_some() != operands.residual.is_some() {
            return no("its bias or residual is not as its shape says");
        }
        let Operands { x, w, bias, residual, y } = *operands;
        if [x, w, y, bias.unwrap_or(ALIGNMENT), residual.unwrap_or(ALIGNMENT)]
            .iter()
            .any(|at| *at == 0 || !at.is_multiple_of(ALIGNMENT))
        {
            return no("an address is 0 or not a multiple of 16");
        }
        Ok(())
    }
}

/// A shape with the kernel that was picked for it.
pub struct Plan {
    product: Product,
    /// The address of the bias is part of them: who gives a product holds them.
    descriptors: Mutex<Descriptors>,
    kernel: sys::cublasLtMatmulAlgo_t,
    tuning: Tuning,
}

// SAFETY: descriptors are plain memory of the library's, used by one thread at a time behind the lock; all else is numbers.
unsafe impl Send for Plan {}
// SAFETY: as above.
unsafe impl Sync for Plan {}

impl std::fmt::Debug for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plan").field("product", &self.product).field("tuning", &self.tuning).finish_non_exhaustive()
    }
}

impl Plan {
    pub(super) fn new(product: Product, descriptors: Descriptors, kernel: sys::cublasLtMatmulAlgo_t, tuning: Tuning) -> Self {
        Self { product, descriptors: Mutex::new(descriptors), kernel, tuning }
    }

    /// Its shape.
    #[must_use]
    pub fn product(&self) -> Product {
        self.product
    }

    /// What was picked, and how quick it was.
    #[must_use]
    pub fn tuning(&self) -> Tuning {
        self.tuning
    }

    /// Gives the product to the stream.
    ///
    /// # Safety
    /// The addresses lead to matrices of this shape that live until the work is done, the handle is the library's, the context
    /// current, and the workspace used by no other work meanwhile.
    pub(super) unsafe fn enqueue(
        &self,
        handle: sys::cublasLtHandle_t,
        stream: &Stream,
        operands: &Operands,
        workspace: &Block,
    ) -> Result<()> {
        let descriptors = self.descriptors.lock();
        // SAFETY: the caller's promise.
        unsafe { enqueue(handle, stream, &self.product, &descriptors, operands, &self.kernel, workspace) }
    }
}

/// Gives a product to the stream, by a kernel of the library's.
///
/// # Safety
/// As for [`Plan::enqueue`]; the kernel is one that the library proposed for this shape and this size of workspace.
pub(super) unsafe fn enqueue(
    handle: sys::cublasLtHandle_t,
    stream: &Stream,
    product: &Product,
    descriptors: &Descriptors,
    operands: &Operands,
    kernel: &sys::cublasLtMatmulAlgo_t,
    workspace: &Block,
) -> Result<()> {
    product.accepts(operands)?;
    if let Some(bias) = operands.bias {
        descriptors.operation.set(sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias)?;
    }
    let at = |address: u64| std::ptr::with_exposed_provenance_mut::<c_void>(address as usize);
    let (one, beta) = (1_f32, if operands.residual.is_some() { 1_f32 } else { 0_f32 });
    // SAFETY: descriptors of this shape; both factors are numbers of the host, read before this returns; the rest is the caller's.
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
