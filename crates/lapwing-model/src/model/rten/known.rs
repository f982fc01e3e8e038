//! What a graph says of its tensors before it runs: constants, truths, ranks.

use std::collections::{HashMap, HashSet};

use lapwing_onnx::messages::tensor_proto::DataType;
use lapwing_onnx::messages::type_proto::Value::TensorType;
use lapwing_onnx::messages::{AttributeProto, GraphProto, NodeProto, TensorProto, ValueInfoProto};

/// What is known of tensors by name, in a graph and those around it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    constants: HashMap<String, TensorProto>,
    truths: HashSet<String>,
    /// Numbers that a call gives.
    given: HashSet<String>,
    ranks: HashMap<String, usize>,
}

/// Operators whose results are truths.
const TESTS: [&str; 10] = ["Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual", "And", "Or", "Xor", "Not", "IsNaN"];
/// Operators that only move the elements of their first input.
const MOVES: [&str; 11] =
    ["Identity", "Reshape", "Unsqueeze", "Squeeze", "Expand", "Transpose", "Slice", "Gather", "Flatten", "Tile", "Concat"];

impl Known {
    /// Adds what a graph says before its nodes.
    pub(crate) fn enter(&mut self, graph: &GraphProto) {
        for tensor in &graph.initializer {
            self.constant(&tensor.name, tensor);
        }
        self.given.extend(graph.input.iter().filter(|port| is_float(port)).map(|port| port.name.clone()));
        for port in graph.input.iter().chain(&graph.value_info).chain(&graph.output) {
            self.port(port);
        }
    }

    fn port(&mut self, port: &ValueInfoProto) {
        let Some(TensorType(tensor)) = port.r#type.as_ref().and_then(|kind| kind.value.as_ref()) else { return };
        if tensor.elem_type == DataType::Bool as i32 {
            self.truths.insert(port.name.clone());
        }
        if let Some(shape) = &tensor.shape {
            self.ranks.insert(port.name.clone(), shape.dim.len());
        }
    }

    fn constant(&mut self, name: &str, tensor: &TensorProto) {
        if tensor.data_type == DataType::Bool as i32 {
            self.truths.insert(name.to_owned());
        }
        self.ranks.insert(name.to_owned(), tensor.dims.len());
        self.constants.insert(name.to_owned(), light(tensor));
    }

    /// Adds what a node makes.
    pub(crate) fn pass(&mut self, node: &NodeProto) {
        let Some(output) = node.output.first() else { return };
        if !is_onnx(node) {
            return;
        }
        let of = |at: usize| node.input.get(at).is_some_and(|name| self.truths.contains(name));
        let is_truth = match node.op_type.as_str() {
            "Constant" => {
                if let Some(tensor) = attribute(node, "value").and_then(|attribute| attribute.t.as_ref()) {
                    self.constant(output, tensor);
                }
                return;
            }
            "Cast" => integer(node, "to") == Some(DataType::Bool as i64),
            "CastLike" => of(1),
            "Where" => of(1) && of(2),
            "IsInf" => true,
            kind if TESTS.contains(&kind) => true,
            kind => MOVES.contains(&kind) && of(0),
        };
        if is_truth {
            self.truths.insert(output.clone());
        }
    }

    /// Whether a tensor holds truths, as far as the file shows it.
    pub(crate) fn is_truth(&self, name: &str) -> bool {
        self.truths.contains(name)
    }

    /// Whether a tensor holds floating-point numbers that a call gives, which may have any size.
    pub(crate) fn is_given(&self, name: &str) -> bool {
        self.given.contains(name)
    }

    /// A tensor's number of axes.
    pub(crate) fn rank(&self, name: &str) -> Option<usize> {
        self.ranks.get(name).copied()
    }

    /// A constant; without its elements if they are typed numbers of single precision and many, or of double.
    pub(crate) fn constant_of(&self, name: &str) -> Option<&TensorProto> {
        self.constants.get(name)
    }
}

/// A tensor that shares its bytes, without many typed numbers of single and double precision.
fn light(tensor: &TensorProto) -> TensorProto {
    const MOST: usize = 16;
    TensorProto {
        dims: tensor.dims.clone(),
        data_type: tensor.data_type,
        int32_data: tensor.int32_data.clone(),
        int64_data: tensor.int64_data.clone(),
        float_data: if tensor.float_data.len() <= MOST { tensor.float_data.clone() } else { Vec::new() },
        raw_data: tensor.raw_data.clone(),
        data_location: tensor.data_location,
        ..TensorProto::default()
    }
}

fn is_float(port: &ValueInfoProto) -> bool {
    let Some(TensorType(tensor)) = port.r#type.as_ref().and_then(|kind| kind.value.as_ref()) else { return false };
    [DataType::Float, DataType::Double, DataType::Float16].iter().any(|kind| tensor.elem_type == *kind as i32)
}

/// The elements of a constant of single precision, as far as they are known.
pub(crate) fn floats(tensor: &TensorProto) -> impl Iterator<Item = f32> {
    let raw = tensor.raw_data.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
    raw.chain(tensor.float_data.iter().copied())
}

/// Whether a node is one of ONNX's own domain.
pub(crate) fn is_onnx(node: &NodeProto) -> bool {
    matches!(node.domain.as_str(), "" | "ai.onnx")
}

pub(crate) fn attribute<'a>(node: &'a NodeProto, name: &str) -> Option<&'a AttributeProto> {
    node.attribute.iter().find(|attribute| attribute.name == name)
}

pub(crate) fn integer(node: &NodeProto, name: &str) -> Option<i64> {
    attribute(node, name).map(|attribute| attribute.i)
}

pub(crate) fn text<'a>(node: &'a NodeProto, name: &str) -> Option<&'a str> {
    attribute(node, name).and_then(|attribute| std::str::from_utf8(&attribute.s).ok())
}
