//! The int8 product: weights as signed bytes with one scale per column, activations as unsigned bytes with a scale and
//! a zero point per row. Sums are exact 32-bit integers at every level (no saturating step), so all levels give
//! identical results before the epilogue.

mod chains;
mod dot;
mod driver;
mod packed;
mod quantize;
#[cfg(test)]
mod tests;
mod tile;

pub(crate) use chains::int8 as int8_chains;
pub use dot::LevelI8;
pub use driver::{gemm_i8, gemm_i8_shared};
pub use lapwing_plan::exec::RowQuant;
pub use packed::{I8Error, PackedWeightsI8};
pub use quantize::{QuantizedRows, quantize_rows, words_len};
