//! The descriptions of a model's inputs and outputs.

use std::collections::HashSet;

use crate::messages::tensor_proto::DataType;
use crate::messages::tensor_shape_proto::Dimension;
use crate::messages::tensor_shape_proto::dimension::Value::DimValue;
use crate::messages::type_proto::Value::TensorType;
use crate::messages::{ModelProto, TensorShapeProto, TypeProto, ValueInfoProto, type_proto};

use crate::EngineError;
use crate::shaped::{Length, ShapedGraph, TensorFact, TensorId};
use crate::tensor::{Datatype, TensorSpec};

/// What is said of an input without a shape, and what to try.
const UNRANKED: &str = "the file does not say how many axes it has; --shape INPUT=LENGTHS (engine.shapes) states it";

/// Checks that the inputs and outputs of a file are tensors of types that a call can have, as far as the file says.
///
/// # Errors
///
/// [`EngineError::Model`] names the port of another type, or the input whose rank the file does not give.
pub fn check(proto: &ModelProto) -> Result<(), EngineError> {
    let Some(graph) = &proto.graph else { return Ok(()) };
    let with_default: HashSet<&str> = graph.initializer.iter().map(|tensor| tensor.name.as_str()).collect();
    let inputs = graph.input.iter().filter(|port| !with_default.contains(port.name.as_str()));
    for (port, is_input) in inputs.map(|port| (port, true)).chain(graph.output.iter().map(|port| (port, false))) {
        let fails =
            |reason: &str| Err(EngineError::part(format!("{} {}", if is_input { "input" } else { "output" }, port.name), reason));
        // what has no type, or another than a tensor's, is left to whoever loads the file
        let Some(TensorType(tensor)) = port.r#type.as_ref().and_then(|kind| kind.value.as_ref()) else { continue };
        match DataType::try_from(tensor.elem_type) {
            Ok(DataType::Undefined) if !is_input => {}
            Ok(kind) if served(kind).is_some() => {}
            _ => return fails(&format!("its element type, {} in ONNX, is not supported", tensor.elem_type)),
        }
        if is_input && tensor.shape.is_none() {
            return fails(UNRANKED);
        }
    }
    Ok(())
}

/// The inputs and outputs that a file declares, in its order; inputs with a default are none.
///
/// # Errors
///
/// [`EngineError::Model`] names the port that is no tensor, whose element type is not given or not served, or the input whose rank is not
/// given.
pub fn declared(proto: &ModelProto) -> Result<(Vec<TensorSpec>, Vec<TensorSpec>), EngineError> {
    check(proto)?;
    let Some(graph) = &proto.graph else { return Err(EngineError::part("graph", "the model has none")) };
    let with_default: HashSet<&str> = graph.initializer.iter().map(|tensor| tensor.name.as_str()).collect();
    let spec = |what: &str, port: &ValueInfoProto| {
        let fails = |reason: &str| EngineError::part(format!("{what} {}", port.name), reason);
        let Some(TensorType(tensor)) = port.r#type.as_ref().and_then(|kind| kind.value.as_ref()) else {
            return Err(fails("the file does not say that it is a tensor; only tensors can be served"));
        };
        let datatype = DataType::try_from(tensor.elem_type).ok().and_then(served);
        let datatype = datatype.ok_or_else(|| fails("the file does not give its element type"))?;
        let length = |dim: &Dimension| match dim.value {
            Some(DimValue(length)) => usize::try_from(length).ok().filter(|length| *length > 0),
            _ => None,
        };
        let shape = tensor.shape.iter().flat_map(|shape| &shape.dim).map(length).collect();
        Ok(TensorSpec { name: port.name.clone(), datatype, shape })
    };
    let inputs = graph.input.iter().filter(|port| !with_default.contains(port.name.as_str()));
    let inputs = inputs.map(|port| spec("input", port)).collect::<Result<_, _>>()?;
    Ok((inputs, graph.output.iter().map(|port| spec("output", port)).collect::<Result<_, _>>()?))
}

/// A tensor of a graph as a file declares an output: with what is known of it.
pub(crate) fn port(fact: &TensorFact) -> ValueInfoProto {
    let numbers = DataType::Float as i32..=DataType::Bfloat16 as i32;
    let is_kind = |number: &i32| DataType::try_from(*number).ok().and_then(served) == fact.datatype;
    let elem_type = fact.datatype.and_then(|_| numbers.into_iter().find(is_kind)).unwrap_or(DataType::Undefined as i32);
    let dim = |length: &Length| {
        let value = fixed(length).and_then(|length| i64::try_from(length).ok()).map(DimValue);
        Dimension { value, ..Dimension::default() }
    };
    let shape = fact.shape.as_ref().map(|shape| TensorShapeProto { dim: shape.iter().map(dim).collect() });
    let kind = TypeProto { value: Some(TensorType(type_proto::Tensor { elem_type, shape })), ..TypeProto::default() };
    ValueInfoProto { name: fact.name.clone(), r#type: Some(kind), ..ValueInfoProto::default() }
}

/// The protocol's type for one of ONNX's; `None` if there is none.
const fn served(kind: DataType) -> Option<Datatype> {
    Some(match kind {
        DataType::Bool => Datatype::Bool,
        DataType::Uint8 => Datatype::Uint8,
        DataType::Uint16 => Datatype::Uint16,
        DataType::Uint32 => Datatype::Uint32,
        DataType::Uint64 => Datatype::Uint64,
        DataType::Int8 => Datatype::Int8,
        DataType::Int16 => Datatype::Int16,
        DataType::Int32 => Datatype::Int32,
        DataType::Int64 => Datatype::Int64,
        DataType::Float16 => Datatype::Fp16,
        DataType::Bfloat16 => Datatype::Bf16,
        DataType::Float => Datatype::Fp32,
        DataType::Double => Datatype::Fp64,
        DataType::String => Datatype::Bytes,
        _ => return None,
    })
}

/// The inputs and outputs of a graph, in its own order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphPorts {
    /// The inputs: as the file says.
    pub inputs: Vec<TensorSpec>,
    /// The outputs: as inferred, else as the file declares them. A length is `None` where it changes with a call.
    pub outputs: Vec<TensorSpec>,
    /// The places of the outputs of which not even the number of axes is known before a call: their shapes are empty, which says nothing.
    pub unranked: Vec<usize>,
}

impl GraphPorts {
    /// Those of a graph.
    ///
    /// # Errors
    ///
    /// [`EngineError::Model`] names the port whose element type is unknown, or none that a call can have, and the input of unknown rank.
    pub fn of(graph: &ShapedGraph) -> Result<Self, EngineError> {
        let spec = |what: &str, id: &TensorId| {
            let fact = graph.tensor(*id);
            let part = || format!("{what} {}", fact.name);
            let unknown = || EngineError::part(part(), "it is no tensor of an element type that a call can have");
            let datatype = fact.datatype.ok_or_else(unknown)?;
            let shape = fact.shape.iter().flatten().map(fixed).collect();
            Ok(TensorSpec { name: fact.name.clone(), datatype, shape })
        };
        for id in &graph.inputs {
            if graph.tensor(*id).shape.is_none() {
                let part = format!("input {}", graph.tensor(*id).name);
                return Err(EngineError::part(part, UNRANKED));
            }
        }
        let outputs = graph.outputs.iter().enumerate();
        let unranked = outputs.filter(|(_, id)| graph.tensor(**id).shape.is_none()).map(|(place, _)| place).collect();
        Ok(Self {
            inputs: graph.inputs.iter().map(|id| spec("input", id)).collect::<Result<_, _>>()?,
            outputs: graph.outputs.iter().map(|id| spec("output", id)).collect::<Result<_, _>>()?,
            unranked,
        })
    }
}

fn fixed(length: &Length) -> Option<usize> {
    if let Length::Value(number) = length { usize::try_from(*number).ok() } else { None }
}
