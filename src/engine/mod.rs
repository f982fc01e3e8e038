//! The embedded reference engine: a model read from ONNX and run on the CPU by tract.
//!
//! It serves models of one float32 tensor in and one out, both `[rows, width]`. It does no I/O, holds no thread and never
//! falls back to anything: what it cannot run it refuses at load time, by name.

pub mod cpu;
mod error;
pub mod fuse;
pub mod lower;
mod model;
#[cfg(test)]
mod naive;
pub mod plan;
#[cfg(test)]
mod plan_tests;
#[cfg(test)]
mod tests;

pub use error::EngineError;
pub use model::Model;
