//! What a model is and what a run of it costs: the graphs of ONNX files as plans of fused nodes, before anything runs.
//!
//! [`lower`] and [`fuse`] make a [`plan`] of a graph; [`exec`] is what every executor of plans takes, [`quant`] finds the ranges of
//! 8-bit products, and [`roofline`] compares a time with what the machine allows.
//!
//! It never runs a plan, touches no device, reads no clock and opens no socket. A model that cannot become a plan names the node.
//!
//! ```
//! use lapwing_plan::fuse::fuse;
//! use lapwing_plan::lower::lower;
//! use lapwing_onnx::OnnxFile;
//! use lapwing_plan::plan::BatchSize;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // a multilayer perceptron of three products, 7 numbers to 4
//! let onnx = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/plans/mlp-3.onnx"));
//! let mut plan = lower(&*OnnxFile::parse(onnx.to_vec().into())?.graph()?)?;
//! fuse(&mut plan);
//! assert_eq!((plan.inputs[0].name.as_str(), plan.outputs[0].name.as_str()), ("in", "out"));
//! let flops = |rows| plan.total(BatchSize::uniform(rows, 1)).cost.flops;
//! assert_eq!(flops(32), 32 * flops(1)); // counted from the nodes, not measured
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

pub mod exec;
pub mod fuse;
pub mod lower;
pub mod plan;
pub mod quant;
pub mod roofline;

pub use exec::Precision;
