//! The embedded reference engine: ONNX models, read by tract, lowered to plans of fused nodes (`lower`, `fuse`, `plan`) and run on
//! the processor (`cpu`). [`Model`] is the demo's: small models of one tensor in and one out, run by tract as they are.
//!
//! It does no I/O, holds no thread and never falls back to anything: what it cannot run it refuses at load time, by name.

#[cfg(feature = "engine")]
pub mod cpu;
mod error;
pub mod fuse;
pub mod lower;
mod model;
#[cfg(all(test, feature = "engine"))]
mod naive;
pub mod plan;
#[cfg(all(test, feature = "engine"))]
mod plan_tests;
pub mod service;
pub mod tensor;
#[cfg(test)]
mod tests;

pub use error::EngineError;
pub use model::Model;
