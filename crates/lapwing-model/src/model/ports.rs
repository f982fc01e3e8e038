//! What a model reads and answers, as its executor has it.

use lapwing_onnx::EngineError;
use lapwing_onnx::shaped::ShapedGraph;
use lapwing_onnx::tensor::TensorSpec;
use lapwing_onnx::{OnnxFile, ports};

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
    pub(crate) fn of(graph: &ShapedGraph) -> Result<Self, EngineError> {
        let ports::GraphPorts { inputs, outputs, .. } = ports::GraphPorts::of(graph)?;
        Ok(Self { inputs, outputs })
    }

    /// Those that a file declares.
    ///
    /// # Errors
    ///
    /// [`EngineError::Model`] names the port whose type the file does not give, or that no call can have.
    pub(crate) fn declared(file: &OnnxFile) -> Result<Self, EngineError> {
        let (inputs, outputs) = ports::declared(&file.proto)?;
        Ok(Self { inputs, outputs })
    }
}
