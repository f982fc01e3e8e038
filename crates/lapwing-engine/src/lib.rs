//! The embedded reference engine: ONNX models, read (`onnx`) and simplified by tract, lowered to plans of fused nodes (`lower`,
//! `fuse`, `plan`) and run on the processor (`cpu`). A [`Model`] runs calls by its plan, or by tract where it has none, and says so.
//!
//! It knows no sockets: who serves it calls it by what stands in `service`.

pub mod batch;
pub mod clock;
pub mod cpu;
mod error;
pub mod exec;
pub mod fuse;
#[cfg(feature = "cuda")]
pub mod gpu;
#[cfg(not(feature = "cuda"))]
mod without_cuda;
#[cfg(not(feature = "cuda"))]
pub use without_cuda as gpu;
pub mod lower;
pub mod model;
pub mod onnx;
pub mod plan;
pub mod quant;
pub mod roofline;
pub mod served;
pub mod service;
pub mod tensor;
#[cfg(test)]
mod tests;

/// Whether this build can run models on a GPU (feature `cuda`).
pub const HAS_CUDA: bool = cfg!(feature = "cuda");

pub use error::{EngineError, UnsupportedNode};
pub use exec::{Backend, Device, Precision};
pub use model::Model;
