//! The descriptions of a model's inputs and outputs.

use std::collections::HashSet;

use crate::messages::ModelProto;
use crate::messages::tensor_proto::DataType;
use crate::messages::type_proto::Value::TensorType;
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
            Ok(kind) if is_served(kind) => {}
            _ => return fails(&format!("its element type, {} in ONNX, is not supported", tensor.elem_type)),
        }
        if is_input && tensor.shape.is_none() {
            return fails("the file does not say how many axes it has");
        }
    }
    Ok(())
}

/// Whether tensors of a request may have this type.
const fn is_served(kind: DataType) -> bool {
    use DataType::{Bfloat16, Bool, Double, Float, Float16, Int8, Int16, Int32, Int64, String, Uint8, Uint16, Uint32, Uint64};
    let is_number = matches!(kind, Uint8 | Uint16 | Uint32 | Uint64 | Int8 | Int16 | Int32 | Int64);
    is_number || matches!(kind, Bool | Float16 | Bfloat16 | Float | Double | String)
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
