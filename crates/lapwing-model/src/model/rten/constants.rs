//! The constants of a file, of which rten holds all whole numbers in 32 bits and all others in single precision.

use std::collections::HashSet;

use super::external::External;
use super::known::{integer, is_onnx};
use lapwing_onnx::EngineError;
use lapwing_onnx::messages::tensor_proto::DataType;
use lapwing_onnx::messages::{GraphProto, NodeProto, TensorProto};

/// The type as which rten takes one that it does not have; its own stay.
pub(crate) fn held_as(kind: i32) -> i32 {
    match DataType::try_from(kind) {
        Ok(DataType::Bfloat16) => DataType::Float as i32,
        Ok(DataType::Int16 | DataType::Uint16) => DataType::Int32 as i32,
        _ => kind,
    }
}

/// Writes a constant of a type that rten does not have in the one that holds it exactly.
pub(crate) fn widen(tensor: &mut TensorProto) {
    let wide: fn([u8; 2]) -> [u8; 4] = match DataType::try_from(tensor.data_type) {
        Ok(DataType::Bfloat16) => |[low, high]| [0, 0, low, high],
        Ok(DataType::Int16) => |bytes| i32::from(i16::from_le_bytes(bytes)).to_le_bytes(),
        Ok(DataType::Uint16) => |bytes| i32::from(u16::from_le_bytes(bytes)).to_le_bytes(),
        _ => return,
    };
    if tensor.data_location == Some(1) {
        return;
    }
    let raw: Vec<u8> = match &tensor.raw_data[..] {
        [] => tensor.int32_data.iter().flat_map(|bits| wide((*bits as u16).to_le_bytes())).collect(),
        raw => raw.as_chunks::<2>().0.iter().flat_map(|bytes| wide(*bytes)).collect(),
    };
    tensor.int32_data.clear();
    tensor.raw_data = raw.into();
    tensor.data_type = held_as(tensor.data_type);
}

/// Checks that rten holds what the constants of a graph say. The end of a slice may be beyond: it means the last element.
///
/// # Errors
///
/// [`EngineError::Model`] names the constant, the element, and its value.
pub(crate) fn check(graph: &GraphProto, external: &External<'_>) -> Result<(), EngineError> {
    let all = all_nodes(graph);
    let inner = all.iter().flat_map(|node| &node.attribute).flat_map(|attribute| attribute.g.iter().chain(&attribute.graphs));
    for tensor in std::iter::once(graph).chain(inner).flat_map(|graph| &graph.initializer) {
        constant(&tensor.name, tensor, external, &all)?;
    }
    for node in &all {
        for tensor in node.attribute.iter().filter_map(|attribute| attribute.t.as_ref()) {
            constant(node.output.first().map_or("", String::as_str), tensor, external, &all)?;
        }
        let numbers = node.attribute.iter().filter(|attribute| matches!(attribute.name.as_str(), "value_int" | "value_ints"));
        for attribute in numbers.filter(|_| node.op_type == "Constant") {
            let name = node.output.first().map_or("", String::as_str);
            let first = attribute.ints.iter().chain([&attribute.i]).find(|x| i32::try_from(**x).is_err());
            if let Some(x) = first.filter(|_| !is_bound(name, &all, &mut HashSet::new())) {
                return Err(too_large(name, 0, &x.to_string()));
            }
        }
    }
    Ok(())
}

fn all_nodes(graph: &GraphProto) -> Vec<&NodeProto> {
    let mut nodes: Vec<&NodeProto> = Vec::with_capacity(graph.node.len());
    for node in &graph.node {
        nodes.push(node);
        let attributes = node.attribute.iter();
        attributes
            .flat_map(|attribute| attribute.g.iter().chain(&attribute.graphs))
            .for_each(|inner| nodes.extend(all_nodes(inner)));
    }
    nodes
}

fn constant(name: &str, tensor: &TensorProto, external: &External<'_>, nodes: &[&NodeProto]) -> Result<(), EngineError> {
    let raw = if tensor.data_location == Some(1) { external.bytes(tensor).unwrap_or_default() } else { &tensor.raw_data };
    match DataType::try_from(tensor.data_type) {
        Ok(DataType::Int64) => {
            let numbers = raw.as_chunks::<8>().0.iter().map(|bytes| i64::from_le_bytes(*bytes));
            let numbers = numbers.chain(tensor.int64_data.iter().copied());
            match numbers.enumerate().find(|(_, x)| i32::try_from(*x).is_err()) {
                Some((at, x)) if !is_bound(name, nodes, &mut HashSet::new()) => Err(too_large(name, at, &x.to_string())),
                _ => Ok(()),
            }
        }
        Ok(DataType::Double) => {
            let numbers = raw.as_chunks::<8>().0.iter().map(|bytes| f64::from_le_bytes(*bytes));
            let mut numbers = numbers.chain(tensor.double_data.iter().copied()).enumerate();
            match numbers.find(|(_, x)| x.is_finite() && (*x as f32).is_infinite()) {
                Some((at, x)) => Err(EngineError::part(
                    format!("initializer {name}"),
                    format!("its element {at} is {x:e}: rten holds numbers of double precision in single"),
                )),
                None => Ok(()),
            }
        }
        Ok(DataType::Uint32 | DataType::Uint64 | DataType::String) => Err(EngineError::part(
            format!("initializer {name}"),
            format!("its element type, {} in ONNX, is none of rten's", tensor.data_type),
        )),
        _ => Ok(()),
    }
}

fn too_large(name: &str, at: usize, value: &str) -> EngineError {
    EngineError::part(
        format!("initializer {name}"),
        format!("its element {at} is {value}: rten holds whole numbers of 64 bits in 32"),
    )
}

/// Whether a tensor is read only as a bound, for which the largest number of 32 bits means the same.
fn is_bound(name: &str, nodes: &[&NodeProto], seen: &mut HashSet<String>) -> bool {
    if !seen.insert(name.to_owned()) {
        return true;
    }
    nodes.iter().filter(|node| is_onnx(node)).all(|node| {
        let mut places = node.input.iter().enumerate().filter(|(_, input)| *input == name).map(|(at, _)| at);
        places.all(|at| match node.op_type.as_str() {
            "Slice" => at == 1 || at == 2,
            "Loop" => at == 0,
            "Unsqueeze" | "Squeeze" | "Concat" | "Identity" | "Reshape" => {
                node.output.iter().all(|output| is_bound(output, nodes, seen))
            }
            "Cast" => {
                let is_whole = integer(node, "to").is_some_and(|to| to == DataType::Int64 as i64 || to == DataType::Int32 as i64);
                is_whole && node.output.iter().all(|output| is_bound(output, nodes, seen))
            }
            _ => false,
        })
    })
}
