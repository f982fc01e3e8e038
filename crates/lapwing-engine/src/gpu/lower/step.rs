//! The steps of a program: launches of our kernels, and products.

use crate::gpu::args::{Address, KernelArgs, MatrixRef};
use crate::gpu::kernel::Kernel;
use lapwing_plan::plan::Activation;

/// A kernel launch.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// The index of its node in the plan.
    pub node: usize,
    /// The kernel.
    pub kernel: &'static Kernel,
    /// Grid dimensions in blocks.
    pub grid: (u32, u32),
    /// Dynamic shared memory per block, in bytes.
    pub shared: u32,
    /// Its arguments.
    pub args: KernelArgs,
}

/// A step of a program.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// A launch of one of our kernels.
    Launch(Launch),
    /// A product that cublasLt may compute.
    Product(Product),
}

impl Step {
    /// The launches of our own kernels: of a product, the one instead of the library's and the one behind it.
    pub fn launches(&self) -> impl Iterator<Item = &Launch> {
        let launches = match self {
            Self::Launch(launch) => [Some(launch), None],
            Self::Product(product) => [Some(&*product.own), product.then.as_deref()],
        };
        launches.into_iter().flatten()
    }

    /// The index of its node in the plan.
    #[must_use]
    pub const fn node(&self) -> usize {
        match self {
            Self::Launch(launch) => launch.node,
            Self::Product(product) => product.node,
        }
    }
}

/// A product `y = activation(x · wᵀ + bias) + residual` of up to `rows` rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Product {
    /// The index of its node in the plan.
    pub node: usize,
    /// The most rows.
    pub rows: usize,
    /// Columns of x.
    pub k: usize,
    /// Columns of y.
    pub n: usize,
    /// The left operand.
    pub x: MatrixRef,
    /// The right operand, `[n][k]`.
    pub w: MatrixRef,
    /// A row of n elements.
    pub bias: Option<Address>,
    /// The activation.
    pub activation: Activation,
    /// Added last.
    pub residual: Option<MatrixRef>,
    /// The result.
    pub y: MatrixRef,
    /// The launch of our own kernel.
    pub own: Box<Launch>,
    /// What activates the library's result in place, if it has no such activation.
    pub then: Option<Box<Launch>>,
}
