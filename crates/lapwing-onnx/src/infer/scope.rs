//! The names of a graph, and what the file declares of them.

use std::collections::{HashMap, HashSet};

use super::lengths::{Symbols, named};
use crate::constant::datatype;
use crate::messages::tensor_shape_proto::dimension::Value::{DimParam, DimValue};
use crate::messages::type_proto::Value::TensorType;
use crate::messages::{GraphProto, ValueInfoProto};
use crate::shaped::{Length, TensorId};
use crate::tensor::Datatype;

/// The names of one graph.
pub(crate) struct Scope<'a> {
    pub(crate) tensors: HashMap<&'a str, TensorId>,
    infos: HashMap<&'a str, &'a ValueInfoProto>,
    /// The names of the inputs' open axes.
    axes: HashSet<&'a str>,
    /// What comes before the names of nodes, for a branch that is taken.
    pub(crate) prefix: Option<String>,
}

impl<'a> Scope<'a> {
    pub(crate) fn of(graph: &'a GraphProto) -> Self {
        let infos = graph.value_info.iter().chain(&graph.output).map(|info| (info.name.as_str(), info)).collect();
        let dims = graph.input.iter().filter_map(tensor_type).flat_map(|tensor| &tensor.shape).flat_map(|shape| &shape.dim);
        let axes =
            dims.filter_map(|dim| if let Some(DimParam(name)) = &dim.value { Some(name.as_str()) } else { None }).collect();
        Self { tensors: HashMap::new(), infos, axes, prefix: None }
    }

    pub(crate) fn declared(&self, name: &str) -> Option<&'a ValueInfoProto> {
        self.infos.get(name).copied()
    }
}

fn tensor_type(info: &ValueInfoProto) -> Option<&crate::messages::type_proto::Tensor> {
    match info.r#type.as_ref()?.value.as_ref()? {
        TensorType(tensor) => Some(tensor),
        _ => None,
    }
}

/// What the file declares of a tensor. The open axes of an input have names; what is named elsewhere is unknown if it is none of them.
pub(crate) fn declared(
    info: &ValueInfoProto,
    is_input: bool,
    scopes: &[Scope<'_>],
    symbols: &mut Symbols,
) -> (Option<Datatype>, Option<Vec<Length>>) {
    let Some(tensor) = tensor_type(info) else { return (None, None) };
    let is_known = |name: &str| is_input || scopes.iter().any(|scope| scope.axes.contains(name));
    let shape = tensor.shape.as_ref().filter(|shape| shape.dim.len() <= 32).map(|shape| {
        let length = |dim: &crate::messages::tensor_shape_proto::Dimension| match &dim.value {
            Some(DimValue(length)) if *length > 0 => symbols.of(*length),
            Some(DimParam(name)) if is_known(name) => named(name),
            _ => symbols.fresh(),
        };
        shape.dim.iter().map(length).collect()
    });
    (datatype(tensor.elem_type), shape)
}
