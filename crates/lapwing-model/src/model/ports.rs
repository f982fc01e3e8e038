//! What a model reads and answers, as its executor has it.

use lapwing_onnx::EngineError;
use lapwing_onnx::shaped::ShapedGraph;
use lapwing_onnx::tensor::{Datatype, TensorSpec};
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

    /// The same ports with those of half precision in single; `None` if none is of half.
    pub(crate) fn in_single_precision(&self) -> Option<Self> {
        let is_half = |port: &TensorSpec| port.datatype.is_half();
        let single = |port: &TensorSpec| {
            let datatype = if is_half(port) { Datatype::Fp32 } else { port.datatype };
            TensorSpec { datatype, ..port.clone() }
        };
        let Self { inputs, outputs } = self;
        inputs
            .iter()
            .chain(outputs)
            .any(is_half)
            .then(|| Self { inputs: inputs.iter().map(single).collect(), outputs: outputs.iter().map(single).collect() })
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
