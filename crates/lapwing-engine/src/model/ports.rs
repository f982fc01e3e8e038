//! The descriptions of a model's inputs and outputs, and the check of a call's tensors against them.

use tract_onnx::prelude::{DatumType, OutletId, TractError, TypedFact};

use super::call::CallWork;
use crate::EngineError;
use crate::onnx::Graph;
use crate::tensor::{Datatype, Tensor, TensorSpec};

/// The inputs, in the model's order.
pub(crate) fn inputs(graph: &Graph) -> Result<Vec<TensorSpec>, EngineError> {
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
pub(crate) fn outputs(graph: &Graph) -> Result<Vec<TensorSpec>, EngineError> {
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
pub(crate) fn datatype(kind: DatumType) -> Option<Datatype> {
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

/// Puts a call's tensors in the order of the ports, and checks each against its port.
pub(crate) fn order(ports: &[TensorSpec], tensors: &mut [Tensor]) -> Result<(), EngineError> {
    for (at, port) in ports.iter().enumerate() {
        let Some(found) = tensors.iter().skip(at).position(|tensor| tensor.name == port.name) else {
            let got: Vec<_> = tensors.iter().map(|tensor| tensor.name.as_str()).collect();
            return Err(EngineError::input(
                &port.name,
                format!("is an input of the model, but is missing; the call has {got:?}"),
            ));
        };
        tensors.swap(at, at + found);
        fits(port, &tensors[at])?;
    }
    if let Some(more) = tensors.get(ports.len()) {
        let known: Vec<_> = ports.iter().map(|port| port.name.as_str()).collect();
        return Err(EngineError::input(
            &more.name,
            format!("is no input of the model, or is repeated; its inputs are {known:?}"),
        ));
    }
    Ok(())
}

fn fits(port: &TensorSpec, tensor: &Tensor) -> Result<(), EngineError> {
    let fails = |reason: String| Err(EngineError::input(&tensor.name, reason));
    if tensor.datatype != port.datatype {
        return fails(format!("expected {}, got {}", port.datatype.name(), tensor.datatype.name()));
    }
    let is_fit = |(want, got): (&Option<usize>, &usize)| want.map_or(*got > 0, |want| want == *got);
    if tensor.shape.len() != port.shape.len() || !port.shape.iter().zip(&tensor.shape).all(is_fit) {
        return fails(format!("expected shape {}, got {:?}", shown(&port.shape), tensor.shape));
    }
    let elements = tensor.shape.iter().try_fold(1_usize, |product, length| product.checked_mul(*length));
    let bytes = elements.and_then(|elements| elements.checked_mul(tensor.datatype.bytes()));
    if bytes != Some(tensor.data.len()) {
        let expected = bytes.map_or("more bytes than can be".to_owned(), |bytes| format!("{bytes} bytes"));
        return fails(format!("shape {:?} asks for {expected}, got {}", tensor.shape, tensor.data.len()));
    }
    Ok(())
}

/// `[-1, 64]`, as the protocol writes it.
fn shown(shape: &[Option<usize>]) -> String {
    let lengths: Vec<String> = shape.iter().map(|length| length.map_or("-1".to_owned(), |length| length.to_string())).collect();
    format!("[{}]", lengths.join(", "))
}

/// The size of a call to a model without a plan: the rows of its first tensor.
pub(crate) fn rows(tensors: &[Tensor]) -> CallWork {
    let rows = tensors.first().and_then(|tensor| tensor.shape.first().copied()).unwrap_or(1);
    CallWork { rows, executed: rows, useful: rows, flops: None }
}

/// A synthetic call: floating-point numbers are 1, integers are 0, and the elements of the mask are 1. An open first axis has
/// length `rows`, other open axes have `length`.
pub(crate) fn synthetic_call(ports: &[TensorSpec], mask: Option<usize>, rows: usize, length: usize) -> Vec<Tensor> {
    let tensor = |(at, port): (usize, &TensorSpec)| {
        let open = |(axis, fixed): (usize, &Option<usize>)| fixed.unwrap_or(if axis == 0 { rows } else { length });
        let shape: Vec<usize> = port.shape.iter().enumerate().map(open).collect();
        let whole = [u8::from(mask == Some(at)), 0, 0, 0, 0, 0, 0, 0];
        let one: &[u8] = match port.datatype {
            Datatype::Fp16 => &[0, 0x3c],
            Datatype::Bf16 => &[0x80, 0x3f],
            Datatype::Fp32 => &[0, 0, 0x80, 0x3f],
            Datatype::Fp64 => &[0, 0, 0, 0, 0, 0, 0xf0, 0x3f],
            other => &whole[..other.bytes()],
        };
        let data = one.repeat(shape.iter().product()).into();
        Tensor { name: port.name.clone(), datatype: port.datatype, shape, data }
    };
    ports.iter().enumerate().map(tensor).collect()
}
