//! The embedded reference engine: ONNX models, read (`onnx`) and simplified by tract, lowered to plans of fused nodes (`lower`,
//! `fuse`, `plan`) and run on the processor (`cpu`). A [`Model`] runs calls by its plan, or by tract where it has none, and says so.
//!
//! It knows no sockets: who serves it calls it by what stands in `service`.

pub mod batch;
pub mod clock;
pub mod cpu;
mod error;
pub mod fuse;
#[cfg(feature = "cuda")]
pub mod gpu;
pub mod lower;
pub mod model;
pub mod onnx;
pub mod plan;
mod precision;
pub mod quant;
pub mod roofline;
pub mod served;
pub mod service;
mod standing;
pub mod tensor;
#[cfg(test)]
mod tests;

pub use error::EngineError;
pub use model::Model;
pub use precision::Precision;
