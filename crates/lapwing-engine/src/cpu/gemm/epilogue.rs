//! The epilogue of a product: bias, residual, activation. The cheap parts run in the registers of the tile. An
//! activation that computes an exponential runs over the tile right after it was stored, while it is in the first-level
//! cache.

use super::super::math;
use super::super::simd::{Kernel, Simd};
use super::shape::MatrixRows;
use lapwing_plan::plan::Activation;

/// Whether the tile applies the activation in registers.
pub(crate) const fn is_cheap(activation: Activation) -> bool {
    matches!(activation, Activation::None | Activation::Relu)
}

/// Whether the residual is added before or after the activation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResidualAt {
    /// act(x W + bias + residual).
    BeforeActivation,
    /// act(x W + bias) + residual.
    AfterActivation,
}

/// A matrix of the output's shape that is added to the output.
#[derive(Debug, Clone, Copy)]
pub struct Residual<'a> {
    /// As many rows as the input, as many columns as the weights.
    pub rows: MatrixRows<'a>,
    /// Where it is added.
    pub at: ResidualAt,
}

/// The epilogue of a product. The default does nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Epilogue<'a> {
    /// One value per column of the weights.
    pub bias: Option<&'a [f32]>,
    /// The activation.
    pub activation: Activation,
    /// The residual.
    pub residual: Option<Residual<'a>>,
}

/// Applies the activation, then a residual that is added after it, to a stored block of `rows` x `columns`.
#[derive(Clone, Copy)]
pub(crate) struct ActivationPass {
    pub(crate) activation: Activation,
    pub(crate) out: *mut f32,
    pub(crate) out_stride: usize,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    /// Null if there is none.
    pub(crate) residual: *const f32,
    pub(crate) residual_stride: usize,
}

/// An activation of one vector, as a type, so that the loop around it is compiled once for each activation.
trait Map {
    unsafe fn map<S: Simd>(x: S::V) -> S::V;
}

macro_rules! maps {
    ($($name:ident: $function:path;)*) => {$(
        struct $name;
        impl Map for $name {
            #[inline(always)]
            unsafe fn map<S: Simd>(x: S::V) -> S::V {
                // SAFETY: arithmetic only; the caller guarantees the level.
                unsafe { $function(x) }
            }
        }
    )*};
}

maps! {
    Gelu: math::gelu_erf::<S>;
    GeluTanh: math::gelu_tanh::<S>;
    Sigmoid: math::sigmoid::<S>;
    Tanh: math::tanh::<S>;
    Silu: math::silu::<S>;
}

impl Kernel for ActivationPass {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: the driver checked every length behind these pointers.
        unsafe {
            match self.activation {
                Activation::Gelu => self.over::<S, Gelu>(),
                Activation::GeluTanh => self.over::<S, GeluTanh>(),
                Activation::Sigmoid => self.over::<S, Sigmoid>(),
                Activation::Tanh => self.over::<S, Tanh>(),
                Activation::Silu => self.over::<S, Silu>(),
                Activation::None | Activation::Relu => {}
            }
        }
    }
}

impl ActivationPass {
    #[inline(always)]
    unsafe fn over<S: Simd, M: Map>(self) {
        let mut row = 0;
        while row < self.rows {
            let mut column = 0;
            while column < self.columns {
                let lanes = (self.columns - column).min(S::LANES);
                // SAFETY: row and column lie in the block, and the last vector of a row is masked to its end.
                unsafe {
                    let p = self.out.add(row * self.out_stride + column);
                    let full = lanes == S::LANES;
                    let mut y = M::map::<S>(if full { S::load(p) } else { S::load_n(p, lanes) });
                    if !self.residual.is_null() {
                        let r = self.residual.add(row * self.residual_stride + column);
                        y = S::add(y, if full { S::load(r) } else { S::load_n(r, lanes) });
                    }
                    if full {
                        S::store(p, y)
                    } else {
                        S::store_n(p, lanes, y)
                    };
                }
                column += S::LANES;
            }
            row += 1;
        }
    }
}
