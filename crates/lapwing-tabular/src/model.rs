//! A model of a file, and runs of it.

use lapwing_onnx::messages::ModelProto;
use lapwing_onnx::tensor::{Tensor, TensorSpec};
use lapwing_onnx::{EngineError, UnsupportedNode};

use crate::graph::{Opsets, Program, load, part};
use crate::operator::{Scratch, TabularCost};
use crate::probe;
use crate::run::run;
use crate::value::{from_tensor, into_tensor};

/// A model of operators that are all known.
#[derive(Debug)]
pub struct TabularModel {
    program: Program,
    inputs: Vec<TensorSpec>,
    outputs: Vec<TensorSpec>,
    cost: probe::LinearCost,
}

/// Memory of a model's runs, kept from one to the next. It fits every model.
#[derive(Debug, Default)]
pub struct TabularState {
    scratch: Scratch,
}

impl TabularModel {
    /// Makes a model of an ONNX file. It is run with synthetic inputs meanwhile: for the types of all values, and for the lengths of its
    /// outputs.
    ///
    /// # Errors
    ///
    /// The first node, initializer, input or output that is not taken, and why: it is unknown, or broken, or larger than its bound.
    pub fn from_proto(proto: &ModelProto) -> Result<Self, UnsupportedNode> {
        let graph = proto.graph.as_ref().ok_or_else(|| part("graph", "the model has none"))?;
        if !proto.functions.is_empty() {
            return Err(part("graph", "the model has functions of its own"));
        }
        let ports = probe::inputs(graph)?;
        if graph.output.is_empty() {
            return Err(part("graph", "the model has no outputs"));
        }
        let names = || ports.iter().map(|port| port.name.as_str());
        let examples = probe::examples(&ports, 2)?;
        let program = load(graph, &Opsets::of(proto), names().zip(examples).collect())?;
        let probed = probe::probe(&program, &ports)?;
        let shapes = graph.output.iter().zip(probed.outputs);
        let outputs = shapes.map(|(info, (datatype, shape))| TensorSpec { name: info.name.clone(), datatype, shape }).collect();
        Ok(Self { program, inputs: ports, outputs, cost: probed.cost })
    }

    /// The inputs that a call gives, in the file's order.
    #[must_use]
    pub fn inputs(&self) -> &[TensorSpec] {
        &self.inputs
    }

    /// The outputs, in the file's order. A `ZipMap` is a matrix of its values.
    #[must_use]
    pub fn outputs(&self) -> &[TensorSpec] {
        &self.outputs
    }

    /// The work of a run of `rows` rows, where other open axes have the length of the trial's.
    #[must_use]
    pub fn cost(&self, rows: usize) -> TabularCost {
        self.cost.of(rows as u64)
    }

    /// Runs the model for `inputs` in the order of [`Self::inputs`]. The result has the outputs that are `wanted` (one each, in the order
    /// of [`Self::outputs`]; those beyond the list are not).
    ///
    /// # Errors
    ///
    /// [`EngineError::Input`] if an input does not fit, [`EngineError::Run`] names the node that does not take what it reads.
    pub fn run(&self, state: &mut TabularState, inputs: &[Tensor], wanted: &[bool]) -> Result<Vec<Tensor>, EngineError> {
        self.check(inputs)?;
        let values = inputs.iter().map(from_tensor).collect::<Result<Vec<_>, _>>()?;
        let wanted: Vec<bool> = (0..self.outputs.len()).map(|at| wanted.get(at) == Some(&true)).collect();
        let made = run(&self.program, values, &wanted, &mut state.scratch, &mut |_, _, _| {});
        let made = made.map_err(|reason| EngineError::Run { reason })?;
        let specs = self.outputs.iter().zip(&wanted).filter(|(_, wanted)| **wanted).map(|(spec, _)| spec);
        Ok(specs.zip(&made).map(|(spec, value)| into_tensor(&spec.name, value)).collect())
    }

    fn check(&self, inputs: &[Tensor]) -> Result<(), EngineError> {
        if inputs.len() != self.inputs.len() {
            return Err(EngineError::input("inputs", format!("expected {}, got {}", self.inputs.len(), inputs.len())));
        }
        for (port, tensor) in self.inputs.iter().zip(inputs) {
            if tensor.name != port.name || tensor.datatype != port.datatype {
                let reason = format!("expected {} of type {}", port.name, port.datatype.name());
                return Err(EngineError::input(&tensor.name, format!("{reason}, got {}", tensor.datatype.name())));
            }
            let fits = |(wanted, got): (&Option<usize>, &usize)| wanted.is_none_or(|wanted| wanted == *got);
            if tensor.shape.len() != port.shape.len() || !port.shape.iter().zip(&tensor.shape).all(fits) {
                let reason = format!("expected shape {:?} (None is open), got {:?}", port.shape, tensor.shape);
                return Err(EngineError::input(&tensor.name, reason));
            }
        }
        Ok(())
    }
}
