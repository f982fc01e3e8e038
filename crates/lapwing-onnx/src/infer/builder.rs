//! Visits a graph's nodes in running order, and keeps those that a call has to run.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use super::lengths::Symbols;
use super::node::{Made, made};
use super::scope::{Scope, declared};
use crate::EngineError;
use crate::check;
use crate::constant;
use crate::fold::Folding;
use crate::messages::{GraphProto, ModelProto, NodeProto, TensorProto};
use crate::shaped::{Constant, KnownValue, ShapedGraph, ShapedNode, TensorFact, TensorId};
use crate::tensor::{Datatype, text_data};

impl ShapedGraph {
    /// What is known of a model's graph. External weights lie in `folder`.
    ///
    /// # Errors
    ///
    /// [`EngineError::Model`] names the node, with its operator and operator set, that no call can run, or the tensor that cannot be read.
    pub(crate) fn of(proto: &ModelProto, folder: Option<&Path>) -> Result<Self, EngineError> {
        let graph = proto.graph.as_ref().ok_or_else(|| EngineError::part("graph", "the model has none"))?;
        check::order(proto, graph)?;
        // a file that the arithmetic of lengths is not made for must not end the process
        let built = catch_unwind(AssertUnwindSafe(|| Builder::new(proto, graph, folder).built(graph)));
        built.map_err(|_| EngineError::part("graph", "its shapes cannot be computed"))?
    }
}

/// A graph on the way.
pub(crate) struct Builder<'a> {
    pub(crate) tensors: Vec<TensorFact>,
    pub(crate) nodes: Vec<ShapedNode>,
    pub(crate) scopes: Vec<Scope<'a>>,
    pub(crate) symbols: Symbols,
    folding: Folding,
    proto: &'a ModelProto,
    pub(crate) opsets: HashMap<&'a str, i64>,
    folder: Option<&'a Path>,
    parameters: u64,
    /// How many branches of unknown conditions are around.
    pub(crate) maybe: usize,
}

impl<'a> Builder<'a> {
    fn new(proto: &'a ModelProto, graph: &GraphProto, folder: Option<&'a Path>) -> Self {
        let opsets = proto.opset_import.iter().map(|set| (plain(&set.domain), set.version)).collect();
        let elements = graph.initializer.iter().map(|tensor| tensor.dims.iter().fold(1_i64, |n, d| n.saturating_mul(*d)));
        let elements = elements.fold(0_i64, i64::saturating_add);
        Self {
            tensors: Vec::new(),
            nodes: Vec::new(),
            scopes: Vec::new(),
            symbols: Symbols::new(),
            folding: Folding::new(usize::try_from(elements).unwrap_or(0)),
            proto,
            opsets,
            folder,
            parameters: 0,
            maybe: 0,
        }
    }

    fn built(mut self, graph: &'a GraphProto) -> Result<ShapedGraph, EngineError> {
        self.enter(graph)?;
        let mut inputs = Vec::new();
        for input in &graph.input {
            if self.find(&input.name).is_some() {
                continue; // an initializer is its value
            }
            let (datatype, shape) = declared(input, true, &self.scopes, &mut self.symbols);
            inputs.push(self.add(&input.name, Made { datatype, shape, value: KnownValue::Unknown }));
        }
        self.visit(graph)?;
        let mut outputs = Vec::with_capacity(graph.output.len());
        for output in &graph.output {
            let missing = || EngineError::part(format!("output {}", output.name), "nothing makes it");
            outputs.push(self.find(&output.name).ok_or_else(missing)?);
        }
        Ok(ShapedGraph { nodes: self.nodes, tensors: self.tensors, inputs, outputs, parameters: self.parameters })
    }

    /// Opens a graph's scope, with its initializers.
    pub(crate) fn enter(&mut self, graph: &'a GraphProto) -> Result<(), EngineError> {
        self.scopes.push(Scope::of(graph));
        for tensor in &graph.initializer {
            let made = self.initializer(tensor)?;
            self.add(&tensor.name, made);
        }
        for sparse in &graph.sparse_initializer {
            let shape = sparse.dims.iter().map(|length| self.symbols.of(*length)).collect();
            let values = sparse.values.as_ref();
            let datatype = values.and_then(|values| constant::datatype(values.data_type));
            let made = Made { datatype, shape: Some(shape), value: KnownValue::Unknown };
            self.add(values.map_or("", |values| &values.name), made);
        }
        Ok(())
    }

    fn initializer(&mut self, tensor: &TensorProto) -> Result<Made, EngineError> {
        if constant::datatype(tensor.data_type).is_none() {
            let shape = tensor.dims.iter().map(|length| self.symbols.of(*length)).collect();
            return Ok(Made { datatype: None, shape: Some(shape), value: KnownValue::Unknown });
        }
        let fails = |reason| EngineError::part(format!("initializer {}", tensor.name), reason);
        Ok(self.of_file(constant::read(tensor, self.folder).map_err(fails)?))
    }

    /// A constant of the file.
    fn of_file(&mut self, constant: Constant) -> Made {
        let is_narrow = matches!(constant.datatype, Datatype::Int8 | Datatype::Uint8);
        if is_narrow || constant::is_float(constant.datatype) {
            self.parameters = self.parameters.saturating_add(constant.elements() as u64);
        }
        Made::of(constant, &mut self.symbols)
    }

    /// Visits the nodes of the graph whose scope was opened last.
    pub(crate) fn visit(&mut self, graph: &'a GraphProto) -> Result<(), EngineError> {
        graph.node.iter().try_for_each(|node| self.node(node))
    }

    fn node(&mut self, proto: &'a NodeProto) -> Result<(), EngineError> {
        let domain = plain(&proto.domain);
        let version = self.opsets.get(domain).copied().unwrap_or(1);
        let mut inputs = Vec::with_capacity(proto.input.len());
        for name in &proto.input {
            let found = self.find(name);
            if found.is_none() && !name.is_empty() {
                let reason = format!("reads {name}, which nothing makes");
                return Err(EngineError::part(check::named(proto, self.proto), reason));
            }
            inputs.push(found);
        }
        if domain.is_empty() && proto.op_type == "Constant" {
            return self.constant(proto);
        }
        if domain.is_empty() && proto.op_type == "If" && self.taken_branch(proto, &inputs)? {
            return Ok(());
        }
        let mut node = ShapedNode {
            name: self.name(proto),
            operator: proto.op_type.clone(),
            domain: domain.to_owned(),
            version,
            inputs,
            // what a node makes has no number yet
            outputs: vec![None; proto.output.len()],
            attributes: proto.attribute.clone(),
        };
        let mut all = match proto.op_type.as_str() {
            "If" | "Loop" | "Scan" if domain.is_empty() => self.control_flow(proto, &node)?,
            _ => match made(&node, &self.tensors, &mut self.symbols, &mut self.folding) {
                Ok(all) => all,
                // a branch that is never taken may be wrong
                Err(_) if self.maybe > 0 => proto.output.iter().map(|_| Made::default()).collect(),
                Err(reason) => return Err(EngineError::part(check::named(proto, self.proto), reason)),
            },
        };
        all.resize_with(proto.output.len(), Made::default);
        let is_constant = !all.is_empty() && all.iter().all(|made| matches!(made.value, KnownValue::Constant(_)));
        for (at, (name, mut made)) in proto.output.iter().zip(all).enumerate() {
            if name.is_empty() {
                continue;
            }
            if made.shape.is_none() || made.datatype.is_none() {
                let info = self.scopes.last().and_then(|scope| scope.declared(name));
                let (datatype, shape) = info.map_or((None, None), |info| declared(info, false, &self.scopes, &mut self.symbols));
                made.datatype = made.datatype.or(datatype);
                made.shape = made.shape.or(shape);
            }
            node.outputs[at] = Some(self.add(name, made));
        }
        if !is_constant {
            self.nodes.push(node);
        }
        Ok(())
    }

    /// A node's name. Those of a graph are unique; those of a branch that is taken come behind its node's.
    pub(crate) fn name(&self, proto: &NodeProto) -> String {
        let own = if proto.name.is_empty() { proto.output.first().map_or("", String::as_str) } else { &proto.name };
        let around = self.scopes.iter().filter_map(|scope| scope.prefix.as_deref());
        around.chain([own]).collect::<Vec<_>>().join("/")
    }

    fn constant(&mut self, proto: &'a NodeProto) -> Result<(), EngineError> {
        let Some(name) = proto.output.first() else { return Ok(()) };
        let made = match given(proto, self.folder) {
            Ok(Some(constant)) => self.of_file(constant),
            Ok(None) => Made::default(),
            Err(reason) => return Err(EngineError::part(check::named(proto, self.proto), reason)),
        };
        self.add(name, made);
        Ok(())
    }

    pub(crate) fn add(&mut self, name: &'a str, made: Made) -> TensorId {
        let id = TensorId(self.tensors.len());
        self.tensors.push(TensorFact { name: name.to_owned(), datatype: made.datatype, shape: made.shape, value: made.value });
        if let Some(scope) = self.scopes.last_mut() {
            scope.tensors.insert(name, id);
        }
        id
    }

    pub(crate) fn find(&self, name: &str) -> Option<TensorId> {
        if name.is_empty() {
            return None;
        }
        self.scopes.iter().rev().find_map(|scope| scope.tensors.get(name).copied())
    }
}

/// The value of a `Constant`; `None` if it is of a type that no call can have.
fn given(proto: &NodeProto, folder: Option<&Path>) -> Result<Option<Constant>, String> {
    let find = |name: &str| proto.attribute.iter().find(|attribute| attribute.name == name);
    if let Some(tensor) = find("value").and_then(|attribute| attribute.t.as_ref()) {
        return if constant::datatype(tensor.data_type).is_some() { constant::read(tensor, folder).map(Some) } else { Ok(None) };
    }
    let floats = |shape: &[usize], given: &[f32]| Constant::of_floats(Datatype::Fp32, shape, given.iter().map(|x| f64::from(*x)));
    let ints = |shape: &[usize], given: &[i64]| Constant::of_ints(Datatype::Int64, shape, given.iter().copied());
    let texts = |shape: &[usize], given: &[Vec<u8>]| {
        Some(Constant { datatype: Datatype::Bytes, shape: shape.to_vec(), data: text_data(given) })
    };
    Ok(if let Some(one) = find("value_float") {
        floats(&[], &[one.f])
    } else if let Some(one) = find("value_int") {
        ints(&[], &[one.i])
    } else if let Some(all) = find("value_floats") {
        floats(&[all.floats.len()], &all.floats)
    } else if let Some(all) = find("value_ints") {
        ints(&[all.ints.len()], &all.ints)
    } else if let Some(one) = find("value_string") {
        texts(&[], std::slice::from_ref(&one.s))
    } else if let Some(all) = find("value_strings") {
        texts(&[all.strings.len()], &all.strings)
    } else {
        None
    })
}

fn plain(domain: &str) -> &str {
    if domain == "ai.onnx" { "" } else { domain }
}
