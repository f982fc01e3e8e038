//! An ONNX file, decoded and checked for what any executor could be led astray by; shapes are inferred when it is asked for the graph.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use crate::messages::tensor_proto::DataType;
use crate::messages::type_proto::Value::TensorType;
use crate::messages::{AttributeProto, GraphProto, ModelProto, NodeProto, ValueInfoProto};
use bytes::Bytes;
use prost::Message;

use crate::EngineError;
use crate::check;
use crate::normal;
use crate::ports;
use crate::shaped::ShapedGraph;
use crate::stated::{self, StatedShape};

/// Where the bytes of a model are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelSource {
    /// In a file; external weights lie in its folder.
    File(PathBuf),
    /// In memory.
    Memory(Bytes),
}

/// A decoded ONNX file.
#[derive(Debug)]
pub struct OnnxFile {
    /// Where it was read from.
    pub source: ModelSource,
    /// How often each operator occurs, by name, most frequent first.
    pub operators: Vec<(String, usize)>,
    /// The version of the ONNX operator set.
    pub opset: i64,
    /// The program that wrote the file; may be empty.
    pub producer: String,
    /// The messages of the file; its nodes are in order, and their names unique; its inputs' open axes have names.
    pub proto: ModelProto,
    folder: Option<String>,
    graph: OnceLock<Result<Arc<ShapedGraph>, EngineError>>,
}

impl OnnxFile {
    /// Reads a file. External weights must lie in its folder.
    ///
    /// # Errors
    ///
    /// [`EngineError::File`] if it cannot be read; [`EngineError::Model`] if it is no ONNX model, has more parts than the bound, or weights
    /// outside of its folder.
    pub fn read(path: &Path) -> Result<Self, EngineError> {
        let fails = |reason: String| EngineError::File { path: path.display().to_string(), reason };
        let bytes = Bytes::from(std::fs::read(path).map_err(|e| fails(e.to_string()))?);
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let folder = folder.to_str().ok_or_else(|| fails("the folder's name is not UTF-8".into()))?;
        Self::decode(bytes, ModelSource::File(path.to_owned()), Some(folder.to_owned()))
    }

    /// Reads a model from memory, which has no external weights.
    ///
    /// # Errors
    ///
    /// As for [`Self::read`].
    pub fn parse(bytes: Bytes) -> Result<Self, EngineError> {
        Self::decode(bytes.clone(), ModelSource::Memory(bytes), None)
    }

    fn decode(bytes: Bytes, source: ModelSource, folder: Option<String>) -> Result<Self, EngineError> {
        let unreadable = |e: prost::DecodeError| EngineError::part("file", format!("is no ONNX model: {e}"));
        let mut proto = ModelProto::decode(bytes).map_err(unreadable)?;
        check::bounds(&proto, folder.as_deref().map(Path::new))?;
        let operators = operators(&proto);
        if let Some(graph) = &mut proto.graph {
            normal::order_nodes(graph);
            normal::name_axes(graph);
            name_apart(graph);
        }
        let opset =
            proto.opset_import.iter().find(|set| matches!(set.domain.as_str(), "" | "ai.onnx")).map_or(0, |set| set.version);
        let producer = proto.producer_name.clone();
        Ok(Self { source, operators, opset, producer, proto, folder, graph: OnceLock::new() })
    }

    /// The same file with shapes of inputs as a user states them, where it leaves axes open or gives an input no shape.
    ///
    /// # Errors
    ///
    /// [`EngineError::Model`] names the input that the model does not have, whose shape in the file is another, or that would be too large.
    pub fn with_shapes(mut self, stated: &[StatedShape]) -> Result<Self, EngineError> {
        if let Some(graph) = self.proto.graph.as_mut().filter(|_| !stated.is_empty()) {
            stated::state(graph, stated)?;
            // an executor that reads the file's own bytes does not check them
            graph.input.iter().try_for_each(check::input)?;
            normal::name_axes(graph);
            self.graph = OnceLock::new();
        }
        Ok(self)
    }

    /// The part of the file that makes these tensors, with all of its inputs, as a file in memory.
    ///
    /// # Errors
    ///
    /// [`EngineError::Model`] if the file's weights lie in other files, or the part is no model.
    pub fn ending_with(&self, tensors: &[&str]) -> Result<Self, EngineError> {
        let mut proto = self.proto.clone();
        let facts = self.graph()?;
        if let Some(graph) = &mut proto.graph {
            let port = |name: &&str| {
                let declared = graph.output.iter().find(|port| port.name == **name);
                declared.cloned().or_else(|| facts.tensors.iter().find(|fact| fact.name == **name).map(ports::port))
            };
            graph.output = tensors.iter().filter_map(port).collect();
            normal::keep_needed(graph);
        }
        let bytes = Bytes::from(proto.encode_to_vec());
        Self::decode(bytes.clone(), ModelSource::Memory(bytes), None)
    }

    /// The graph with what is known of its tensors, which is found once.
    ///
    /// # Errors
    ///
    /// [`EngineError::Model`] names the node that no call can run.
    pub fn graph(&self) -> Result<Arc<ShapedGraph>, EngineError> {
        let folder = self.folder.as_deref().map(Path::new);
        self.graph.get_or_init(|| ShapedGraph::of(&self.proto, folder).map(Arc::new)).clone()
    }

    /// The graph for any number of rows, where the file fixes the first axis of all inputs at one length, as exporters do that are not told
    /// which axes are open. `None` if that axis is open, or not the same everywhere. What is right for any number of rows is right for the
    /// file's.
    ///
    /// # Errors
    ///
    /// [`EngineError::Model`] names the node that cannot be run with other numbers of rows.
    #[must_use]
    pub fn graph_of_any_rows(&self) -> Option<Result<Arc<ShapedGraph>, EngineError>> {
        self.proto.graph.as_ref().and_then(normal::fixed_rows)?;
        let mut proto = self.proto.clone();
        proto.graph.as_mut().map(normal::open_rows)?;
        let folder = self.folder.as_deref().map(Path::new);
        Some(ShapedGraph::of(&proto, folder).map(Arc::new))
    }

    /// Checks what an executor that reads the file may rely on: shapes that fit their data, tensors that are made before they are read, and
    /// none larger than a model's.
    ///
    /// # Errors
    ///
    /// [`EngineError::Model`] names the part that is at fault.
    pub fn check(&self) -> Result<(), EngineError> {
        check::check(&self.proto, self.folder.as_deref().map(Path::new))
    }

    /// Whether it has activations in 8 bits.
    #[must_use]
    pub fn quantizes(&self) -> bool {
        self.operators.iter().any(|(operator, _)| matches!(operator.as_str(), "QuantizeLinear" | "DynamicQuantizeLinear"))
    }

    /// The format of its numbers: `fp16` or `bf16` if weights, constants, casts, inputs or outputs are of half precision, else `fp32`.
    #[must_use]
    pub fn number_format(&self) -> &'static str {
        let has = |kind: DataType| {
            let is_kind = |number: i32| number == kind as i32;
            let of_port = |port: &ValueInfoProto| {
                let kind = port.r#type.as_ref().and_then(|kind| kind.value.as_ref());
                matches!(kind, Some(TensorType(tensor)) if is_kind(tensor.elem_type))
            };
            let of_attribute = |node: &NodeProto, attribute: &AttributeProto| {
                let is_cast = node.op_type == "Cast" && attribute.name == "to" && attribute.i == i64::from(kind as i32);
                is_cast || attribute.t.as_ref().is_some_and(|tensor| is_kind(tensor.data_type))
            };
            self.proto.graph.as_ref().is_some_and(|graph| {
                graph.initializer.iter().any(|tensor| is_kind(tensor.data_type))
                    || graph.input.iter().chain(&graph.output).any(of_port)
                    || graph.node.iter().any(|node| node.attribute.iter().any(|attribute| of_attribute(node, attribute)))
            })
        };
        match (has(DataType::Float16), has(DataType::Bfloat16)) {
            (true, _) => "fp16",
            (_, true) => "bf16",
            _ => "fp32",
        }
    }
}

impl ShapedGraph {
    /// Reads a file. External weights must lie in its folder.
    ///
    /// # Errors
    ///
    /// [`EngineError::File`] if it cannot be read; [`EngineError::Model`] names the faulty part.
    pub fn read(path: &Path) -> Result<Arc<Self>, EngineError> {
        OnnxFile::read(path)?.graph()
    }

    /// Parses a model. External weights, if there are any, must lie in `folder`.
    ///
    /// # Errors
    ///
    /// [`EngineError::Model`] names the faulty part.
    pub fn parse(bytes: &[u8], folder: Option<&str>) -> Result<Arc<Self>, EngineError> {
        OnnxFile::decode(Bytes::copy_from_slice(bytes), ModelSource::Memory(Bytes::new()), folder.map(str::to_owned))?.graph()
    }
}

/// Makes node names unique: in ONNX a node may have the name of a tensor, or of another node, and what reports one has
/// to say which.
pub(crate) fn name_apart(graph: &mut GraphProto) {
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

fn operators(proto: &ModelProto) -> Vec<(String, usize)> {
    let mut counts = BTreeMap::new();
    for node in proto.graph.iter().flat_map(|graph| &graph.node) {
        *counts.entry(node.op_type.clone()).or_insert(0_usize) += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    counts
}
