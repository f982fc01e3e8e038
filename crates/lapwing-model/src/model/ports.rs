//! What a model reads and answers, as its executor has it.

use lapwing_plan::EngineError;
use lapwing_plan::onnx::{Graph, ports};
use lapwing_plan::tensor::TensorSpec;

/// The inputs and outputs of a model, in its own order.
#[derive(Clone, Debug)]
pub(crate) struct Ports {
    pub(crate) inputs: Vec<TensorSpec>,
    pub(crate) outputs: Vec<TensorSpec>,
}

impl Ports {
    /// Those of a graph.
    ///
    /// # Errors
    ///
    /// [`EngineError::Model`] names the port whose element type is unknown.
    pub(crate) fn of(graph: &Graph) -> Result<Self, EngineError> {
        Ok(Self { inputs: ports::inputs(graph)?, outputs: ports::outputs(graph)? })
    }
}
