//! What is said of a model: its file, what runs it, and its cost by shape.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::app::engine::shapes::Shape;
use lapwing_model::Measured;
use lapwing_plan::plan::BatchSize;

/// The description of a model.
#[derive(Debug, Serialize)]
pub(crate) struct About {
    pub(crate) model: String,
    pub(crate) opset: i64,
    pub(crate) producer: String,
    pub(crate) operators: BTreeMap<String, usize>,
    pub(crate) executor: &'static str,
    pub(crate) refused: Option<RefusedNode>,
    pub(crate) not_used: Vec<NotUsed>,
    pub(crate) notes: Vec<String>,
    pub(crate) verification: String,
    pub(crate) measured: Measured,
    pub(crate) batch_axis: String,
    pub(crate) onnxruntime: Option<Library>,
    pub(crate) parameters: Option<u64>,
    pub(crate) parameter_bytes: Option<u64>,
    pub(crate) inputs: Vec<Tensor>,
    pub(crate) outputs: Vec<Tensor>,
    pub(crate) shapes: Vec<Costs>,
}

/// The node for which there is no plan.
#[derive(Debug, Serialize)]
pub(crate) struct RefusedNode {
    pub(crate) node: String,
    pub(crate) operator: String,
    pub(crate) reason: String,
}

/// An executor that was tried before the one that runs the model.
#[derive(Debug, Serialize)]
pub(crate) struct NotUsed {
    pub(crate) executor: &'static str,
    pub(crate) reason: String,
}

/// The library of ONNX Runtime, or why there is none.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Library {
    pub(crate) path: Option<String>,
    pub(crate) version: Option<String>,
    pub(crate) origin: Option<&'static str>,
    pub(crate) passed_over: Vec<String>,
    pub(crate) unused_providers: Vec<String>,
    pub(crate) missing: Option<String>,
}

/// An input or output; -1 stands for a length that calls choose.
#[derive(Debug, Serialize)]
pub(crate) struct Tensor {
    pub(crate) name: String,
    pub(crate) datatype: &'static str,
    pub(crate) shape: Vec<i64>,
}

/// The cost of a batch; what is unknown without a plan is `null`.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Costs {
    pub(crate) batch: usize,
    pub(crate) length: Option<usize>,
    pub(crate) flops: Option<u64>,
    pub(crate) other_ops: Option<u64>,
    pub(crate) bytes: Option<u64>,
    pub(crate) min_bytes: Option<u64>,
    pub(crate) arena_bytes: Option<u64>,
    /// FLOPs per byte.
    pub(crate) arithmetic_intensity: Option<f64>,
    /// Operators whose work is not known, and how often each occurs: what could be missing is `null`.
    pub(crate) not_counted: BTreeMap<String, usize>,
}

pub(crate) fn size(shape: Shape) -> BatchSize {
    BatchSize::uniform(shape.batch, shape.length.unwrap_or(1))
}
