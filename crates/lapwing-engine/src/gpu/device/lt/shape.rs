//! The shapes of products and the addresses of their matrices, with what the library asks of both.

use cudarc::cublaslt::sys;

use super::super::error::{DeviceError, Result};

/// Alignment of matrices and vectors, in bytes.
pub(crate) const ALIGNMENT: u64 = 16;

/// The precision of a cublasLt product.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MatmulPrecision {
    /// fp32 factors and fp32 sums.
    Fp32,
    /// fp32 factors rounded to TF32, fp32 sums.
    Tf32,
    /// fp16 factors, fp32 sums.
    Fp16,
}

/// y = activation(x · wᵀ + bias) or y = x · wᵀ + bias + residual. Strides are distances between rows, in elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MatmulShape {
    /// The precision; it also determines the element type of all matrices and of the bias.
    pub precision: MatmulPrecision,
    /// Rows of x, y and the residual.
    pub rows: u32,
    /// Rows of w, columns of y and the residual.
    pub n: u32,
    /// Columns of x and w.
    pub k: u32,
    /// Row stride of x.
    pub x_stride: u32,
    /// Row stride of w.
    pub w_stride: u32,
    /// Row stride of y.
    pub y_stride: u32,
    /// Row stride of the residual, if there is one.
    pub residual_stride: Option<u32>,
    /// Whether there is a bias of n elements.
    pub bias: bool,
    /// Whether ReLU is applied; not together with a residual, which the library would add before it.
    pub relu: bool,
}

/// The device addresses of a product's matrices, all multiples of 16.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MatmulOperands {
    /// `[rows][k]`.
    pub x: u64,
    /// `[n][k]`.
    pub w: u64,
    /// `[n]`, if the shape has a bias.
    pub bias: Option<u64>,
    /// `[rows][n]`, if the shape has a residual. It may equal y if the strides are equal.
    pub residual: Option<u64>,
    /// `[rows][n]`.
    pub y: u64,
}

impl MatmulShape {
    /// Checks that the library supports the shape.
    ///
    /// # Errors
    /// A size is 0, a stride is below its width, or there is both an activation and a residual.
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

    pub(crate) fn epilogue(&self) -> sys::cublasLtEpilogue_t {
        match (self.relu, self.bias) {
            (false, false) => sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_DEFAULT,
            (false, true) => sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS,
            (true, false) => sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_RELU,
            (true, true) => sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_RELU_BIAS,
        }
    }

    pub(crate) fn accepts(&self, operands: &MatmulOperands) -> Result<()> {
        let no = |text: &str| Err(DeviceError::Lt { call: "a product", text: text.to_owned() });
        if self.bias != operands.bias.is_some() || self.residual_stride.is_some() != operands.residual.is_some() {
            return no("its bias or residual is not as its shape says");
        }
        let MatmulOperands { x, w, bias, residual, y } = *operands;
        if [x, w, y, bias.unwrap_or(ALIGNMENT), residual.unwrap_or(ALIGNMENT)]
            .iter()
            .any(|at| *at == 0 || !at.is_multiple_of(ALIGNMENT))
        {
            return no("an address is 0 or not a multiple of 16");
        }
        Ok(())
    }
}
