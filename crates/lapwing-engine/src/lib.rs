//! Lapwing's reference engine: runs plans of fused nodes on the CPU ([`cpu`]) or on NVIDIA GPUs ([`gpu`]), and measures what the
//! machine could do (`peaks` of both). [`onnxruntime`] runs files by ONNX Runtime's library, where it is found.
//!
//! It takes plain values, has its own [`clock`], and knows neither tokio nor hyper. It never reads a model (lapwing-plan does), chooses
//! what runs one or batches calls (lapwing-model does). It is the one crate with `unsafe` code: in kernels, and in calls of the driver and of ONNX Runtime.
//!
//! ```
//! use lapwing_engine::cpu::{CpuExecutor, CpuOptions, CpuState};
//! use lapwing_plan::exec::{Batch, Input};
//! use lapwing_plan::lower::lower;
//! use lapwing_onnx::shaped::ShapedGraph;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // a multilayer perceptron of three products, 7 numbers to 4
//! let onnx = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/plans/mlp-3.onnx"));
//! let mut plan = lower(&*ShapedGraph::parse(onnx, None)?)?;
//! lapwing_plan::fuse::fuse(&mut plan);
//! let executor = CpuExecutor::new(plan, CpuOptions::default())?;
//!
//! let (mut state, mut outputs) = (CpuState::default(), Vec::new());
//! let rows = Batch { offsets: &[0, 1, 2], past: &[], inputs: &[Input::F32(&[0.5; 14])] };
//! executor.run(&mut state, &rows, &mut outputs)?;
//! assert_eq!(outputs[0].len(), 8);
//! assert_eq!(outputs[0][..4], outputs[0][4..]); // equal rows have equal outputs
//! # Ok(())
//! # }
//! ```

pub mod clock;
pub mod cpu;
#[cfg(feature = "cuda")]
pub mod gpu;
#[cfg(feature = "onnxruntime")]
pub mod onnxruntime;
pub mod placement;
#[cfg(test)]
mod tests;
#[cfg(not(feature = "cuda"))]
pub mod without_cuda;
#[cfg(not(feature = "onnxruntime"))]
pub mod without_onnxruntime;

#[cfg(not(feature = "cuda"))]
pub use without_cuda as gpu;
#[cfg(not(feature = "onnxruntime"))]
pub use without_onnxruntime as onnxruntime;

/// Whether this build can run models on a GPU (feature `cuda`).
pub const HAS_CUDA: bool = cfg!(feature = "cuda");
/// Whether this build can run models by ONNX Runtime's library (feature `onnxruntime`).
pub const HAS_ONNXRUNTIME: bool = cfg!(feature = "onnxruntime");
