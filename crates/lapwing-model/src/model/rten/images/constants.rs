//! The parameters of a file's nodes that no call changes, however its nodes compute them: rten does so, once, at load.

use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use ::rten::{RunOptions, ThreadPool, Value};
use lapwing_onnx::messages::{GraphProto, ModelProto, NodeProto, ValueInfoProto};
use prost::Message;
use rten_tensor::{AsView, Layout};

use super::super::load::load;

/// Values by the names of their tensors.
#[derive(Debug, Default)]
pub(crate) struct Constants {
    /// All tensors that no call changes.
    names: HashSet<String>,
    values: HashMap<String, Value>,
}

/// Operators whose result is another each time.
const RANDOM: [&str; 6] = ["RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Dropout"];

impl Constants {
    /// Computes those that `wanted` names, of a file whose calls give `given`. Without values if rten does not compute them: it says why
    /// when it loads the file.
    pub(crate) fn of(
        model: &ModelProto,
        graph: &GraphProto,
        external: &[(String, Vec<u8>)],
        given: &HashSet<&str>,
        wanted: impl Fn(&NodeProto) -> bool,
    ) -> Self {
        let initializers = graph.initializer.iter().map(|tensor| &tensor.name).filter(|name| !given.contains(name.as_str()));
        let mut names: HashSet<String> = initializers.cloned().collect();
        let mut nodes = Vec::new();
        for node in &graph.node {
            let has_graphs = node.attribute.iter().any(|attribute| attribute.g.is_some() || !attribute.graphs.is_empty());
            let is_known = node.input.iter().all(|name| name.is_empty() || names.contains(name));
            if is_known && !has_graphs && !RANDOM.contains(&node.op_type.as_str()) {
                names.extend(node.output.iter().filter(|name| !name.is_empty()).cloned());
                nodes.push(node);
            }
        }
        let asked: HashSet<&str> = (graph.node.iter().filter(|node| wanted(node)))
            .flat_map(|node| &node.input)
            .filter(|name| names.contains(*name))
            .map(String::as_str)
            .collect();
        let mut needed = asked.clone();
        nodes.reverse();
        nodes.retain(|node| {
            let is_needed = node.output.iter().any(|name| needed.contains(name.as_str()));
            if is_needed {
                needed.extend(node.input.iter().map(String::as_str));
            }
            is_needed
        });
        let output = asked.iter().map(|name| ValueInfoProto { name: (*name).to_owned(), ..ValueInfoProto::default() }).collect();
        let part = GraphProto {
            node: nodes.into_iter().rev().cloned().collect(),
            initializer: graph.initializer.iter().filter(|tensor| needed.contains(tensor.name.as_str())).cloned().collect(),
            output,
            name: graph.name.clone(),
            ..GraphProto::default()
        };
        let is_outside = part.initializer.iter().any(|tensor| tensor.data_location == Some(1));
        let external = if is_outside { external.to_vec() } else { Vec::new() };
        let sets = model.opset_import.clone();
        let part = ModelProto { ir_version: model.ir_version, opset_import: sets, graph: Some(part), ..ModelProto::default() };
        let computed = || {
            let model = load(part.encode_to_vec(), external, false).ok()?.ok()?;
            let ids = asked.iter().map(|name| model.find_node(name)).collect::<Option<Vec<_>>>()?;
            let options = RunOptions::default().with_thread_pool(Some(Arc::new(ThreadPool::with_num_threads(1))));
            catch_unwind(AssertUnwindSafe(|| model.run(Vec::new(), &ids, Some(options)))).ok()?.ok()
        };
        let values = computed().unwrap_or_default();
        Self { values: asked.into_iter().map(str::to_owned).zip(values).collect(), names }
    }

    /// Whether no call changes a tensor.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// The shape and the elements of a constant of single precision.
    pub(crate) fn floats(&self, name: &str) -> Option<(Vec<usize>, Vec<f32>)> {
        let Value::FloatTensor(tensor) = self.values.get(name)? else { return None };
        Some((tensor.shape().to_vec(), tensor.to_vec()))
    }

    /// A constant of one number.
    pub(crate) fn number(&self, name: &str) -> Option<f32> {
        let Value::FloatTensor(tensor) = self.values.get(name)? else { return None };
        (tensor.len() == 1).then(|| tensor.iter().next().copied())?
    }

    /// The elements of a constant of whole numbers.
    pub(crate) fn wholes(&self, name: &str) -> Option<Vec<i32>> {
        let Value::Int32Tensor(tensor) = self.values.get(name)? else { return None };
        Some(tensor.to_vec())
    }
}
