//! Validates an ONNX file before it is imported: every tensor is produced before it is read, shapes match the data, and
//! no tensor needs more memory than a model could.

use std::collections::HashSet;
use std::path::{Component, Path};

use crate::messages::tensor_proto::DataType;
use crate::messages::tensor_shape_proto::dimension::Value::DimValue;
use crate::messages::type_proto::Value::TensorType;
use crate::messages::{GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto};

use crate::EngineError;
use crate::sizes::{self, elements};

/// The most nodes of a model, with those of its subgraphs, and the most initializers. The largest exports have some 20,000.
const MOST_PARTS: usize = 50_000;
type Checked = Result<(), EngineError>;

/// Checks what no executor may be given: more parts than the bound, and external weights that are not in `folder`.
pub(crate) fn bounds(proto: &ModelProto, folder: Option<&Path>) -> Checked {
    let graph = proto.graph.as_ref().ok_or_else(|| EngineError::part("graph", "the model has none"))?;
    parts(graph, &mut { MOST_PARTS })?;
    weights(graph, folder)
}

/// Checks where a graph's tensors lie, and those of its subgraphs.
fn weights(graph: &GraphProto, folder: Option<&Path>) -> Checked {
    let of_nodes = graph.node.iter().flat_map(|node| &node.attribute);
    let tensors = of_nodes.clone().flat_map(|attribute| attribute.t.iter().chain(&attribute.tensors)).chain(&graph.initializer);
    for tensor in tensors.filter(|tensor| tensor.data_location == Some(1)) {
        let fails = |reason: String| Err(EngineError::part(format!("initializer {}", tensor.name), reason));
        match folder {
            Some(folder) => external(tensor, folder, None).or_else(fails)?,
            None => fails("lies outside of the file, which has no folder".into())?,
        }
    }
    of_nodes.flat_map(|attribute| attribute.g.iter().chain(&attribute.graphs)).try_for_each(|graph| weights(graph, folder))
}

/// Validates a model. External weights may lie in `folder`.
pub(crate) fn check(proto: &ModelProto, folder: Option<&Path>) -> Checked {
    let graph = proto.graph.as_ref().ok_or_else(|| EngineError::part("graph", "the model has none"))?;
    let mut nodes_left = MOST_PARTS;
    parts(graph, &mut nodes_left)?;
    for tensor in &graph.initializer {
        initializer(tensor, folder)?;
    }
    graph.input.iter().try_for_each(input)?;
    order(proto, graph)
}

/// Checks that each node comes after what it reads, that everything that is read is made, and that the axes of inputs have lengths.
pub(crate) fn order(proto: &ModelProto, graph: &GraphProto) -> Checked {
    graph.input.iter().filter(|info| is_tensor(info)).try_for_each(input)?;
    nodes(proto, graph)?;
    if graph.output.is_empty() {
        return Err(EngineError::part("graph", "the model has no outputs"));
    }
    Ok(())
}

fn is_tensor(info: &ValueInfoProto) -> bool {
    matches!(info.r#type.as_ref().and_then(|kind| kind.value.as_ref()), Some(TensorType(_)))
}

/// Checks that a graph and its subgraphs have at most [`MOST_PARTS`] nodes, and each of them as many initializers.
fn parts(graph: &GraphProto, nodes_left: &mut usize) -> Checked {
    let fails = |what: &str| Err(EngineError::part("graph", format!("has more than {MOST_PARTS} {what}, which is the bound")));
    match nodes_left.checked_sub(graph.node.len()) {
        Some(left) => *nodes_left = left,
        None => return fails("nodes"),
    }
    if graph.initializer.len() > MOST_PARTS {
        return fails("initializers");
    }
    let attributes = graph.node.iter().flat_map(|node| &node.attribute);
    attributes.flat_map(|attribute| attribute.g.iter().chain(&attribute.graphs)).try_for_each(|graph| parts(graph, nodes_left))
}

pub(crate) fn input(info: &ValueInfoProto) -> Checked {
    let Some(TensorType(tensor)) = info.r#type.as_ref().and_then(|t| t.value.as_ref()) else {
        return Err(EngineError::part(format!("input {}", info.name), "has no tensor type"));
    };
    let dims = tensor.shape.iter().flat_map(|shape| &shape.dim);
    let fixed: Vec<i64> =
        dims.filter_map(|dim| if let Some(DimValue(length)) = dim.value { Some(length) } else { None }).collect();
    elements(&fixed).map(drop).map_err(|reason| EngineError::part(format!("input {}", info.name), reason))
}

fn initializer(tensor: &TensorProto, folder: Option<&Path>) -> Checked {
    let fails = |reason: String| Err(EngineError::part(format!("initializer {}", tensor.name), reason));
    let elements = match elements(&tensor.dims) {
        Ok(elements) => elements,
        Err(reason) => return fails(reason),
    };
    let Some(bytes) = DataType::try_from(tensor.data_type).ok().and_then(bytes) else {
        return fails(format!("its element type, {} in ONNX, is not supported", tensor.data_type));
    };
    if tensor.data_location == Some(1) {
        return match folder {
            Some(folder) => external(tensor, folder, Some(elements * bytes)).or_else(fails),
            None => fails("lies outside of the file, which has no folder".into()),
        };
    }
    let typed = [tensor.float_data.len(), tensor.int32_data.len(), tensor.int64_data.len(), tensor.double_data.len()];
    let typed = typed.into_iter().chain([tensor.uint64_data.len()]).max().unwrap_or(0);
    let (expected, got, unit) = match tensor.raw_data.len() {
        0 => (elements, typed as i64, "elements"),
        raw => (elements * bytes, raw as i64, "bytes"),
    };
    if expected == got { Ok(()) } else { fails(format!("its shape {:?} asks for {expected} {unit}, it has {got}", tensor.dims)) }
}

/// Checks an initializer's external data: it must lie in a file of the folder, not above it, nor behind a link that
/// leads out of it. `bytes` is how many its shape asks for, if that is known.
fn external(tensor: &TensorProto, folder: &Path, bytes: Option<i64>) -> Result<(), String> {
    let entry = |key: &str| tensor.external_data.iter().find(|entry| entry.key == key).map(|entry| entry.value.as_str());
    let number = |key: &str| {
        entry(key).map(|text| text.parse::<u64>().map_err(|_| format!("its external data has the {key} {text:?}"))).transpose()
    };
    let location = entry("location").ok_or("its external data has no location")?;
    let is_within = |path: &Path| path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if !is_within(Path::new(location)) {
        return Err(format!("lies at {location:?}, outside of the model's folder"));
    }
    let missing = |e: std::io::Error| format!("lies in {location:?}, which cannot be read: {e}");
    let (file, folder) = (folder.join(location).canonicalize().map_err(missing)?, folder.canonicalize().map_err(missing)?);
    if !file.starts_with(folder) {
        return Err(format!("lies at {location:?}, which leads out of the model's folder"));
    }
    let (offset, length) = (number("offset")?.unwrap_or(0), number("length")?);
    let size = std::fs::metadata(&file).map_err(missing)?.len();
    let needed = length.or(bytes.map(i64::unsigned_abs)).unwrap_or(0);
    if let Some(bytes) = bytes.filter(|bytes| bytes.unsigned_abs() != needed) {
        return Err(format!("its shape {:?} asks for {bytes} bytes, its external data has {needed}", tensor.dims));
    }
    match offset.checked_add(needed) {
        Some(end) if end <= size => Ok(()),
        _ => Err(format!("needs {needed} bytes from {offset} on of {location:?}, which has {size}")),
    }
}

/// Bytes per element, for types that can be imported.
const fn bytes(kind: DataType) -> Option<i64> {
    match kind {
        DataType::Bool | DataType::Uint8 | DataType::Int8 => Some(1),
        DataType::Uint16 | DataType::Int16 | DataType::Float16 => Some(2),
        DataType::Uint32 | DataType::Int32 | DataType::Float => Some(4),
        DataType::Uint64 | DataType::Int64 | DataType::Double => Some(8),
        _ => None,
    }
}

/// Checks the order of nodes: ONNX requires each node to come after its inputs. A cycle has no such order.
fn nodes(proto: &ModelProto, graph: &GraphProto) -> Checked {
    let inputs = graph.input.iter().map(|input| input.name.as_str());
    let mut made: HashSet<&str> = inputs.chain(graph.initializer.iter().map(|tensor| tensor.name.as_str())).collect();
    made.insert(""); // an optional input that is left out
    let constants = sizes::Constants::of(graph);
    for node in &graph.node {
        if let Some(missing) = node.input.iter().find(|name| !made.contains(name.as_str())) {
            let later = graph.node.iter().any(|other| other.output.contains(missing));
            let reason = if later {
                format!("reads {missing}, which is made by it or behind it: the graph has a cycle or is out of order")
            } else {
                format!("reads {missing}, which nothing makes")
            };
            return Err(EngineError::part(named(node, proto), reason));
        }
        for attribute in node.attribute.iter().filter_map(|attribute| attribute.t.as_ref()) {
            elements(&attribute.dims).map_err(|reason| EngineError::part(named(node, proto), reason))?;
        }
        sizes::check(&constants, node).map_err(|reason| EngineError::part(named(node, proto), reason))?;
        made.extend(node.output.iter().map(String::as_str));
    }
    let missing = graph.output.iter().find(|output| !made.contains(output.name.as_str()));
    missing.map_or(Ok(()), |output| Err(EngineError::part(format!("output {}", output.name), "nothing makes it")))
}

/// A node as messages name it: `node x (LSTM, ai.onnx 17)`.
pub(crate) fn named(node: &NodeProto, proto: &ModelProto) -> String {
    let name = if node.name.is_empty() { node.output.first().map_or("", String::as_str) } else { &node.name };
    let sets = proto.opset_import.iter();
    let version = sets.filter(|set| domain_of(&set.domain) == domain_of(&node.domain)).map(|set| set.version).next();
    format!("node {name} ({})", operator_name(node, version))
}

/// A node's operator as messages name it, with its set: `LSTM, ai.onnx 17`, and without a version where the file imports no such set.
#[must_use]
pub fn operator_name(node: &NodeProto, version: Option<i64>) -> String {
    let version = version.map_or_else(String::new, |version| format!(" {version}"));
    format!("{}, {}{version}", node.op_type, domain_of(&node.domain))
}

/// A domain by its name; that of ONNX's own operators may be written as nothing.
fn domain_of(domain: &str) -> &str {
    if domain.is_empty() { "ai.onnx" } else { domain }
}
