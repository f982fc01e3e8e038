//! Models that answer calls. A [`Model`] has tensors run by the executor that it chose: lapwing-engine where the model has a plan,
//! lapwing-tabular where it is a classical one, else ONNX Runtime where its library is found, else rten. A [`Served`](served::Served)
//! model has a queue, batches ([`batch`]) and a thread; servers call it through [`service`].
//!
//! It never computes a product itself and opens no socket: executors are below it, protocols above. Another executor is an [`Executor`], a
//! variant of the choice ([`Backend`]) and an arm of the selection; what waits, batches and reports stays as it is.
//!
//! ```
//! use lapwing_model::{Model, ModelOptions, Workspace};
//! use lapwing_onnx::tensor::Tensor;
//!
//! # fn main() -> Result<(), lapwing_onnx::EngineError> {
//! // a multilayer perceptron of three products, 7 numbers to 4
//! let onnx = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/plans/mlp-3.onnx"));
//! let model = Model::parse(onnx, &ModelOptions::default())?;
//! assert_eq!(model.executor().name(), "plan");
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

#![forbid(unsafe_code)]

pub mod batch;
mod choice;
mod model;
pub mod process;
pub mod served;
pub mod service;

pub use choice::{Backend, Device, OrtLibrary, ProviderChoice};
pub use model::{
    BatchAxis, BatchResult, BatchTrial, CallWork, Executor, ExecutorName, Measured, MeasuredCall, Model, ModelOptions, NotUsed,
    Verification, WantedOutputs, Workspace,
};

// a model that takes the engine's GPU for a stand-in would leave it unused and not say so
const _: () = assert!(cfg!(feature = "cuda") == lapwing_engine::HAS_CUDA, "lapwing-engine/cuda without lapwing-model/cuda");
