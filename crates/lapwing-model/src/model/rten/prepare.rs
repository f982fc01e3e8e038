//! A file as rten is given it: the same model, written so that rten computes what ONNX says. The shapes that a file gives for what its nodes
//! make are left out, because they may be wrong.

use std::collections::HashMap;
use std::path::Path;

use super::constants;
use super::external::External;
use super::known::Known;
use super::nodes::Opset;
use super::rewrite;
use lapwing_onnx::messages::tensor_proto::DataType;
use lapwing_onnx::messages::type_proto::Value::TensorType;
use lapwing_onnx::messages::{AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto};
use lapwing_onnx::{EngineError, ModelSource, OnnxFile, operator_name};

/// What rten is given of a file.
pub(crate) struct Prepared {
    pub(crate) model: ModelProto,
    /// Files of weights, under the names by which `model` asks for them.
    pub(crate) external: Vec<(String, Vec<u8>)>,
    /// Operator and set by the name of the node.
    pub(crate) operators: HashMap<String, String>,
    /// What a user has to know of the way in which it is computed.
    pub(crate) notes: Vec<String>,
}

/// The longest chain of nodes, each reading from the one before. rten goes along it by calls within calls when it orders the nodes of a
/// run, and a thread's stack of 2 MiB ends the process between 4,000 and 6,000 of them (debug build). Exports that people ship have
/// some hundreds.
const LONGEST_CHAIN: usize = 3000;

/// Prepares a file.
///
/// # Errors
///
/// [`EngineError::Model`] names the node or the constant that rten would take for another, or the weights that cannot be read.
pub(crate) fn prepare(file: &OnnxFile) -> Result<Prepared, EngineError> {
    let mut proto = file.proto.clone();
    let folder = match &file.source {
        ModelSource::File(path) => path.parent().filter(|folder| !folder.as_os_str().is_empty()).or(Some(Path::new("."))),
        ModelSource::Memory(_) => None,
    };
    let operators = named_operators(&proto);
    let notes = notes(&proto);
    let opset = Opset(file.opset);
    let mut external = External::of(folder);
    if let Some(graph) = &mut proto.graph {
        chain_is_held(graph)?;
        each_tensor(graph, &mut |tensor| external.take(tensor))?;
        constants::check(graph, &external)?;
        graph_of(graph, &Known::default(), opset)?;
    }
    rewrite::raise_opset(&mut proto);
    let external = external.into_files();
    Ok(Prepared { model: proto, external, operators, notes })
}

/// Rewrites a graph and those in its nodes.
fn graph_of(graph: &mut GraphProto, around: &Known, opset: Opset) -> Result<(), EngineError> {
    let mut known = around.clone();
    known.enter(graph);
    let mut nodes = Vec::with_capacity(graph.node.len());
    for mut node in std::mem::take(&mut graph.node) {
        for inner in subgraphs(&mut node) {
            graph_of(inner, &known, opset)?;
        }
        known.pass(&node);
        rewrite::node(node, &known, opset, &mut nodes)?;
    }
    graph.node = nodes;
    graph.value_info.clear();
    for output in &mut graph.output {
        if let Some(TensorType(tensor)) = output.r#type.as_mut().and_then(|kind| kind.value.as_mut()) {
            tensor.shape = None;
        }
    }
    for tensor in &mut graph.initializer {
        constants::widen(tensor);
    }
    for port in graph.input.iter_mut().chain(&mut graph.output) {
        if let Some(TensorType(tensor)) = port.r#type.as_mut().and_then(|kind| kind.value.as_mut()) {
            tensor.elem_type = constants::held_as(tensor.elem_type);
        }
    }
    Ok(())
}

/// Checks that no chain of nodes is longer than [`LONGEST_CHAIN`], in a graph and in those of its nodes.
fn chain_is_held(graph: &GraphProto) -> Result<(), EngineError> {
    let mut lengths: HashMap<&str, usize> = HashMap::new();
    for node in &graph.node {
        let inner = node.attribute.iter().flat_map(|attribute| attribute.g.iter().chain(&attribute.graphs));
        inner.clone().try_for_each(chain_is_held)?;
        // an inner graph reads from outside, too
        let outside = inner.flat_map(|graph| &graph.node).flat_map(|node| &node.input);
        let before = node.input.iter().chain(outside).filter_map(|name| lengths.get(name.as_str())).max();
        let length = before.map_or(1, |before| before + 1);
        if length > LONGEST_CHAIN {
            let reason = format!("ends a chain of more than {LONGEST_CHAIN} nodes, which is what rten's threads can follow");
            return Err(EngineError::part(format!("node {} ({})", node.name, node.op_type), reason));
        }
        lengths.extend(node.output.iter().map(|made| (made.as_str(), length)));
    }
    Ok(())
}

fn subgraphs(node: &mut NodeProto) -> impl Iterator<Item = &mut GraphProto> {
    node.attribute.iter_mut().flat_map(|attribute| attribute.g.iter_mut().chain(&mut attribute.graphs))
}

/// Every tensor of a graph, its nodes' attributes, and their subgraphs.
pub(crate) fn each_tensor(
    graph: &mut GraphProto,
    visit: &mut impl FnMut(&mut TensorProto) -> Result<(), EngineError>,
) -> Result<(), EngineError> {
    graph.initializer.iter_mut().try_for_each(&mut *visit)?;
    for AttributeProto { t, tensors, g, graphs, .. } in graph.node.iter_mut().flat_map(|node| &mut node.attribute) {
        t.iter_mut().chain(tensors).try_for_each(&mut *visit)?;
        for inner in g.iter_mut().chain(graphs) {
            each_tensor(inner, visit)?;
        }
    }
    Ok(())
}

/// Operator and set of each node, for messages.
fn named_operators(proto: &ModelProto) -> HashMap<String, String> {
    fn of(graph: &GraphProto, sets: &HashMap<&str, i64>, into: &mut HashMap<String, String>) {
        for node in &graph.node {
            let domain = if node.domain.is_empty() { "ai.onnx" } else { &node.domain };
            into.insert(node.name.clone(), operator_name(node, sets.get(domain).copied()));
            let attributes = node.attribute.iter();
            attributes.flat_map(|attribute| attribute.g.iter().chain(&attribute.graphs)).for_each(|inner| of(inner, sets, into));
        }
    }
    let sets = proto.opset_import.iter();
    let sets = sets.map(|set| (if set.domain.is_empty() { "ai.onnx" } else { set.domain.as_str() }, set.version)).collect();
    let mut operators = HashMap::new();
    if let Some(graph) = &proto.graph {
        of(graph, &sets, &mut operators);
    }
    operators
}

/// Notes on precision.
fn notes(proto: &ModelProto) -> Vec<String> {
    let Some(graph) = &proto.graph else { return Vec::new() };
    let ports = graph.input.iter().chain(&graph.output).filter_map(|port| port.r#type.as_ref()?.value.as_ref());
    let ports = ports.filter_map(|value| if let TensorType(tensor) = value { Some(tensor.elem_type) } else { None });
    let casts = graph.node.iter().filter(|node| node.op_type == "Cast").flat_map(|node| &node.attribute);
    let casts = casts.filter_map(|attribute| i32::try_from(attribute.i).ok());
    let mut kinds = graph.initializer.iter().map(|tensor| tensor.data_type).chain(ports).chain(casts);
    let has_double = kinds.any(|kind| kind == DataType::Double as i32);
    if has_double { vec!["numbers of double precision (FP64) are computed in single".to_owned()] } else { Vec::new() }
}
