//! cublasLt descriptors: created once for each shape, and destroyed with it.

use cudarc::cublaslt::sys;

use super::super::error::Result;
use super::library::check;
use super::shape::{MatmulPrecision, MatmulShape};

/// CUBLAS_OP_N and CUBLAS_OP_T, which cudarc's cublasLt bindings do not define.
const AS_IT_IS: i32 = 0;
const TRANSPOSED: i32 = 1;

/// A product's operation: precision, transposition, epilogue.
pub(crate) struct Operation(pub(crate) sys::cublasLtMatmulDesc_t);
/// A matrix layout.
pub(crate) struct Layout(pub(crate) sys::cublasLtMatrixLayout_t);
/// The limits for the algorithm search.
pub(crate) struct Preference(pub(crate) sys::cublasLtMatmulPreference_t);

/// All descriptors of one shape. cublasLt matrices are column-major: the product is computed as yᵀ [n][rows] = w [n][k]
/// · xᵀ [k][rows], where our row-major matrices are transposed matrices to the library.
pub(crate) struct Descriptors {
    pub(crate) operation: Operation,
    pub(crate) w: Layout,
    pub(crate) x: Layout,
    pub(crate) residual: Layout,
    pub(crate) y: Layout,
}

impl Descriptors {
    pub(crate) fn new(product: &MatmulShape) -> Result<Self> {
        let kind = product.precision.kind();
        let (rows, n, k) = (product.rows, product.n, product.k);
        let operation = Operation::new(product.precision.compute())?;
        operation.set(sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_TRANSA, TRANSPOSED)?;
        operation.set(sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_TRANSB, AS_IT_IS)?;
        operation.set(sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_EPILOGUE, product.epilogue())?;
        Ok(Self {
            operation,
            w: Layout::new(kind, k, n, product.w_stride)?,
            x: Layout::new(kind, k, rows, product.x_stride)?,
            residual: Layout::new(kind, n, rows, product.residual_stride.unwrap_or(product.y_stride))?,
            y: Layout::new(kind, n, rows, product.y_stride)?,
        })
    }
}

impl MatmulPrecision {
    fn kind(self) -> sys::cudaDataType {
        match self {
            Self::Fp32 | Self::Tf32 => sys::cudaDataType::CUDA_R_32F,
            Self::Fp16 => sys::cudaDataType::CUDA_R_16F,
        }
    }

    fn compute(self) -> sys::cublasComputeType_t {
        match self {
            Self::Fp32 | Self::Fp16 => sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
            Self::Tf32 => sys::cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32,
        }
    }
}

impl Operation {
    fn new(compute: sys::cublasComputeType_t) -> Result<Self> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: `handle` is valid for writing.
        let made = unsafe { sys::cublasLtMatmulDescCreate(&mut handle, compute, sys::cudaDataType::CUDA_R_32F) };
        check("cublasLtMatmulDescCreate", made).map(|()| Self(handle))
    }

    /// Sets an attribute whose size in the library is that of `T`.
    pub(crate) fn set<T: Copy>(&self, attribute: sys::cublasLtMatmulDescAttributes_t, value: T) -> Result<()> {
        // SAFETY: this owns the descriptor; the value is read before the call returns.
        check("cublasLtMatmulDescSetAttribute", unsafe {
            sys::cublasLtMatmulDescSetAttribute(self.0, attribute, std::ptr::from_ref(&value).cast(), size_of::<T>())
        })
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        // SAFETY: this owns the descriptor. The call fails only for an invalid descriptor.
        unsafe { sys::cublasLtMatmulDescDestroy(self.0) };
    }
}

impl Layout {
    fn new(kind: sys::cudaDataType, height: u32, width: u32, stride: u32) -> Result<Self> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: `handle` is valid for writing.
        let made = unsafe { sys::cublasLtMatrixLayoutCreate(&mut handle, kind, height.into(), width.into(), stride.into()) };
        check("cublasLtMatrixLayoutCreate", made).map(|()| Self(handle))
    }
}

impl Drop for Layout {
    fn drop(&mut self) {
        // SAFETY: this owns the descriptor. The call fails only for an invalid descriptor.
        unsafe { sys::cublasLtMatrixLayoutDestroy(self.0) };
    }
}

impl Preference {
    pub(crate) fn new() -> Result<Self> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: `handle` is valid for writing.
        let made = unsafe { sys::cublasLtMatmulPreferenceCreate(&mut handle) };
        check("cublasLtMatmulPreferenceCreate", made).map(|()| Self(handle))
    }

    /// Sets an attribute whose size in the library is that of `T`.
    pub(crate) fn set<T: Copy>(&self, attribute: sys::cublasLtMatmulPreferenceAttributes_t, value: T) -> Result<()> {
        // SAFETY: this owns the descriptor; the value is read before the call returns.
        check("cublasLtMatmulPreferenceSetAttribute", unsafe {
            sys::cublasLtMatmulPreferenceSetAttribute(self.0, attribute, std::ptr::from_ref(&value).cast(), size_of::<T>())
        })
    }
}

impl Drop for Preference {
    fn drop(&mut self) {
        // SAFETY: this owns the descriptor. The call fails only for an invalid descriptor.
        unsafe { sys::cublasLtMatmulPreferenceDestroy(self.0) };
    }
}
