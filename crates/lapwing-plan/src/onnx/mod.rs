//! ONNX files: read, validated against inputs that would break the importer, and passed to tract, which infers shapes
//! and simplifies.

mod check;
mod cost;
mod message;
mod normal;
mod open;
pub mod ports;
mod sizes;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use tract_onnx::pb::{GraphProto, ModelProto};
use tract_onnx::prelude::{Framework, InferenceModelExt, TractResult, TypedModel};

use self::normal::AxisNames;
pub use self::open::DynamicGraph;
use crate::EngineError;

/// A model in tract's form, simplified but not yet optimised for tract's own kernels. Clones share the weights.
#[derive(Clone, Debug)]
pub struct Graph {
    /// The typed graph; for an open graph, with all open axes of one length.
    pub typed: TypedModel,
    /// The open form, if shapes can be inferred for concrete lengths only.
    pub open: Option<DynamicGraph>,
    /// How often each operator occurs in the file, by name, most frequent first.
    pub operators: Vec<(String, usize)>,
    /// The version of the ONNX operator set.
    pub opset: i64,
    /// The program that wrote the file; may be empty.
    pub producer: String,
}

impl Graph {
    /// Reads a file. External weights must lie in its folder.
    ///
    /// # Errors
    ///
    /// [`EngineError::File`] if it cannot be read; [`EngineError::Model`] names the faulty part.
    pub fn read(path: &Path) -> Result<Self, EngineError> {
        let fails = |reason: String| EngineError::File { path: path.display().to_string(), reason };
        let bytes = std::fs::read(path).map_err(|e| fails(e.to_string()))?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let folder = folder.to_str().ok_or_else(|| fails("the folder's name is not UTF-8".into()))?;
        Self::parse(&bytes, Some(folder))
    }

    /// Parses a model. External weights, if there are any, must lie in `folder`.
    ///
    /// # Errors
    ///
    /// [`EngineError::Model`] names the faulty part.
    pub fn parse(bytes: &[u8], folder: Option<&str>) -> Result<Self, EngineError> {
        let unreadable = |e: tract_onnx::prelude::TractError| EngineError::part("file", format!("is no ONNX model: {e:#}"));
        let mut proto = tract_onnx::onnx().proto_model_for_read(&mut &*bytes).map_err(unreadable)?;
        if let Some(graph) = &mut proto.graph {
            normal::order_nodes(graph);
            normal::name_axes(graph, AxisNames::Apart);
        }
        check::check(&proto, folder.map(Path::new))?;
        proto.graph.iter_mut().for_each(name_apart);
        let opset =
            proto.opset_import.iter().find(|set| matches!(set.domain.as_str(), "" | "ai.onnx")).map_or(0, |set| set.version);
        let operators = operators(&proto);
        // the importer indexes and unwraps in places; a bad file must not end the process
        let typed = catch_unwind(AssertUnwindSafe(|| import(&mut proto, folder)));
        let typed = typed.map_err(|payload| message::panicked(&*payload))?;
        let (typed, open) = typed.map_err(|e| message::explain(&format!("{e:#}"), &proto))?;
        Ok(Self { typed, open, operators, opset, producer: proto.producer_name })
    }
}

/// Makes node names unique: in ONNX a node may have the name of a tensor, or of another node; tract has a single
/// namespace.
fn name_apart(graph: &mut GraphProto) {
    let tensors = graph.initializer.iter().map(|tensor| &tensor.name).chain(graph.input.iter().map(|input| &input.name));
    let mut taken: HashSet<String> = tensors.cloned().collect();
    // the last number that each name was given: a file may have one name many times
    let mut numbers: HashMap<String, usize> = HashMap::new();
    for node in &mut graph.node {
        let named = if node.name.is_empty() { node.output.first().cloned().unwrap_or_default() } else { node.name.clone() };
        let mut name = named.clone();
        let mut times = numbers.get(&named).copied().unwrap_or(1);
        while !taken.insert(name.clone()) {
            times += 1;
            name = format!("{named}#{times}");
        }
        if times > 1 {
            numbers.insert(named, times);
            node.name = name;
        }
    }
}

/// Shapes are inferred for named lengths if that is possible at all: as the file has them; then without what it says of tensors that
/// nodes make; then as if the inputs had their axes in common; at last for concrete lengths only.
fn import(proto: &mut ModelProto, folder: Option<&str>) -> TractResult<(TypedModel, Option<DynamicGraph>)> {
    let infer = |proto: &ModelProto| {
        let model = tract_onnx::onnx().parse(proto, folder)?.model;
        let typed = model.clone().into_typed().and_then(TypedModel::into_decluttered);
        TractResult::Ok((model, typed))
    };
    if let (_, Ok(typed)) = infer(proto)? {
        return Ok((typed, None));
    }
    proto.graph.iter_mut().for_each(normal::forget_shapes);
    let (model, error) = match infer(proto)? {
        (_, Ok(typed)) => return Ok((typed, None)),
        (model, Err(error)) => (model, error),
    };
    let is_shared = proto.graph.as_mut().is_some_and(|graph| normal::name_axes(graph, AxisNames::Shared));
    if is_shared && let Ok((_, Ok(typed))) = infer(proto) {
        return Ok((typed, None));
    }
    DynamicGraph::new(model, format!("{error:#}")).map(|(typed, open)| (typed, Some(open))).ok_or(error)
}

fn operators(proto: &ModelProto) -> Vec<(String, usize)> {
    let mut counts = std::collections::BTreeMap::new();
    for node in proto.graph.iter().flat_map(|graph| &graph.node) {
        *counts.entry(node.op_type.clone()).or_insert(0_usize) += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    counts
}
