//! y = act(x W + bias) with a residual before or after the activation, in f32 and dynamic int8, for weights that are
//! packed once. A call allocates nothing. It may cover a part of the columns, so that threads can share one product.

mod aligned;
mod driver;
mod epilogue;
pub mod int8;
mod packed;
mod shape;
mod store;
mod target;
#[cfg(test)]
pub(crate) mod tests;
mod tile;

pub(crate) use driver::{PackRows, gemm_packed, packed_scratch_len};
pub use driver::{gemm, gemm_shared, scratch_len};
pub use epilogue::{Epilogue, Residual, ResidualAt};
pub use packed::PackedWeights;
pub use shape::{GemmError, MatrixRows};
pub use target::{OutRows, SharedOut};
pub(crate) use tile::PACKED_STRIDE;
