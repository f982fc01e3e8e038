//! Lapwing's embedded reference engine. It reads ONNX models, simplifies them with tract, lowers them to plans of fused nodes and
//! runs the plans on the CPU or on NVIDIA GPUs. A [`Model`] runs calls by its plan, or by tract where it has no plan, and reports
//! which. The engine opens no sockets: a server calls it through [`service`].
//!
//! ```
//! use lapwing_engine::Model;
//! use lapwing_engine::model::{ModelOptions, Workspace};
//! use lapwing_engine::tensor::Tensor;
//!
//! # fn main() -> Result<(), lapwing_engine::EngineError> {
//! // a multilayer perceptron of three products, 7 numbers to 4
//! let onnx = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/plans/mlp-3.onnx"));
//! let model = Model::parse(onnx, &ModelOptions::default())?;
//! assert_eq!(model.executor(), "plan");
//!
//! let mut call = [Tensor::f32("in", &[2, 7], &[0.5; 14])];
//! let work = model.accept(&mut call)?; // checks the shapes and orders the inputs
//! assert_eq!(work.rows, 2);
//! let result = model.run(&mut Workspace::default(), &[&call])?;
//! let output = &result.outputs[0][0];
//! assert_eq!((output.name.as_str(), &output.shape[..]), ("out", &[2, 4][..]));
//! let numbers: Vec<f32> = output.to_f32();
//! assert_eq!(numbers[..4], numbers[4..]); // equal rows have equal outputs
//! # Ok(())
//! # }
//! ```
//!
//! In the order in which a model becomes a run: [`onnx`] reads, [`lower`] and [`fuse`] make a [`plan`] of it, [`cpu`] and [`gpu`]
//! execute it, [`model`] is all of that behind one call, [`batch`] and [`served`] run waiting calls together.

pub mod batch;
pub mod clock;
pub mod cpu;
mod error;
pub mod exec;
pub mod fuse;
#[cfg(feature = "cuda")]
pub mod gpu;
pub mod lower;
pub mod model;
pub mod onnx;
pub mod plan;
pub mod process;
pub mod quant;
pub mod roofline;
pub mod served;
pub mod service;
pub mod tensor;
#[cfg(test)]
mod tests;
#[cfg(not(feature = "cuda"))]
pub mod without_cuda;

pub use error::{EngineError, UnsupportedNode};
pub use exec::{Backend, Device, Precision};
pub use model::Model;
#[cfg(not(feature = "cuda"))]
pub use without_cuda as gpu;

/// Whether this build can run models on a GPU (feature `cuda`).
pub const HAS_CUDA: bool = cfg!(feature = "cuda");
