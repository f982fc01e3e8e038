//! The descriptions of a model's inputs and outputs.

use tract_onnx::prelude::{DatumType, OutletId, TractError, TypedFact};

use super::Graph;
use crate::EngineError;
use crate::tensor::{Datatype, TensorSpec};

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
