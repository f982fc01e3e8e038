//! The descriptions of a model's inputs and outputs.

use std::collections::HashSet;

use crate::messages::tensor_proto::DataType;
use crate::messages::tensor_shape_proto::Dimension;
use crate::messages::tensor_shape_proto::dimension::Value::DimValue;
use crate::messages::type_proto::Value::TensorType;
use crate::messages::{ModelProto, ValueInfoProto};
use tract_onnx::prelude::{DatumType, OutletId, TractError, TypedFact};

use crate::EngineError;
use crate::Graph;
use crate::tensor::{Datatype, TensorSpec};

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
            return fails("the file does not say how many axes it has");
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

/// The inputs, in the model's order.
///
/// # Errors
///
/// [`EngineError::Model`] names the port whose element type is unknown.
pub fn inputs(graph: &Graph) -> Result<Vec<TensorSpec>, EngineError> {
    let model = &graph.typed;
    let port = |(at, outlet): (usize, &OutletId)| {
        let name = model.node(outlet.node).name.clone();
        let part = format!("input {name}");
        let fails = |e: TractError| EngineError::part(&part, format!("{e:#}"));
        let made = port(part.clone(), name, model.outlet_fact(*outlet).map_err(fails)?)?;
        let open = graph.open.as_ref().map(|open| open.input(at)).transpose().map_err(fails)?;
        Ok(TensorSpec { shape: open.unwrap_or(made.shape), ..made })
    };
    model.inputs.iter().enumerate().map(port).collect()
}

/// The outputs, in the model's order.
///
/// # Errors
///
/// [`EngineError::Model`] names the port whose element type is unknown.
pub fn outputs(graph: &Graph) -> Result<Vec<TensorSpec>, EngineError> {
    let model = &graph.typed;
    // a model may support a single length only; the outputs then have the shapes for that length
    let open = graph.open.as_ref().and_then(|open| open.outputs().ok());
    let port = |(at, outlet): (usize, &OutletId)| {
        let name = model.outlet_label(*outlet).unwrap_or(&model.node(outlet.node).name).to_owned();
        let part = format!("output {name}");
        let fails = |e: TractError| EngineError::part(&part, format!("{e:#}"));
        let made = port(part.clone(), name, model.outlet_fact(*outlet).map_err(fails)?)?;
        let shape = open.as_ref().and_then(|open| open.get(at).cloned()).unwrap_or(made.shape);
        Ok(TensorSpec { shape, ..made })
    };
    model.outputs.iter().enumerate().map(port).collect()
}

fn port(part: String, name: String, fact: &TypedFact) -> Result<TensorSpec, EngineError> {
    let datatype = datatype(fact.datum_type)
        .ok_or_else(|| EngineError::part(part, format!("its element type, {:?}, is not supported", fact.datum_type)))?;
    let shape = fact.shape.iter().map(|dim| dim.to_i64().ok().and_then(|length| usize::try_from(length).ok())).collect();
    Ok(TensorSpec { name, datatype, shape })
}

/// The protocol's type for one of tract's; `None` if there is none.
#[must_use]
pub fn datatype(kind: DatumType) -> Option<Datatype> {
    Some(match kind {
        DatumType::Bool => Datatype::Bool,
        DatumType::U8 => Datatype::Uint8,
        DatumType::U16 => Datatype::Uint16,
        DatumType::U32 => Datatype::Uint32,
        DatumType::U64 => Datatype::Uint64,
        DatumType::I8 => Datatype::Int8,
        DatumType::I16 => Datatype::Int16,
        DatumType::I32 => Datatype::Int32,
        DatumType::I64 | DatumType::TDim => Datatype::Int64,
        DatumType::F16 => Datatype::Fp16,
        DatumType::F32 => Datatype::Fp32,
        DatumType::F64 => Datatype::Fp64,
        _ => return None,
    })
}
