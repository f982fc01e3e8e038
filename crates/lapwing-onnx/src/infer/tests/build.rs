//! Small models, written as text.

use crate::messages::attribute_proto::AttributeType;
use crate::messages::tensor_proto::DataType;
use crate::messages::tensor_shape_proto::{Dimension, dimension};
use crate::messages::type_proto::Value::TensorType;
use crate::messages::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, TensorShapeProto, TypeProto,
    ValueInfoProto, type_proto,
};
use crate::shaped::ShapedGraph;

/// `x: batch 3 224` as a tensor of single precision.
pub(crate) fn input(text: &str) -> ValueInfoProto {
    typed(text, DataType::Float)
}

pub(crate) fn typed(text: &str, kind: DataType) -> ValueInfoProto {
    let (name, dims) = text.split_once(':').unwrap();
    let dim = dims.split_whitespace().map(|dim| {
        let value = match dim.parse() {
            Ok(length) => dimension::Value::DimValue(length),
            Err(_) => dimension::Value::DimParam(dim.into()),
        };
        Dimension { value: Some(value), ..Default::default() }
    });
    let tensor = type_proto::Tensor { elem_type: kind as i32, shape: Some(TensorShapeProto { dim: dim.collect() }) };
    let kind = TypeProto { value: Some(TensorType(tensor)), ..Default::default() };
    ValueInfoProto { name: name.trim().into(), r#type: Some(kind), ..Default::default() }
}

pub(crate) fn ints(name: &str, dims: &[i64], numbers: &[i64]) -> TensorProto {
    TensorProto {
        name: name.into(),
        dims: dims.to_vec(),
        data_type: DataType::Int64 as i32,
        int64_data: numbers.to_vec(),
        ..Default::default()
    }
}

pub(crate) fn floats(name: &str, dims: &[i64], numbers: &[f32]) -> TensorProto {
    TensorProto {
        name: name.into(),
        dims: dims.to_vec(),
        data_type: DataType::Float as i32,
        float_data: numbers.to_vec(),
        ..Default::default()
    }
}

/// Zeros.
pub(crate) fn weight(name: &str, dims: &[i64]) -> TensorProto {
    floats(name, dims, &vec![0.0; dims.iter().product::<i64>() as usize])
}

pub(crate) fn attribute(name: &str, ints: &[i64]) -> AttributeProto {
    let r#type = AttributeType::Ints as i32;
    AttributeProto { name: name.into(), ints: ints.to_vec(), i: ints.first().copied().unwrap_or(0), r#type, ..Default::default() }
}

/// `y z = Split x w`. A dot stands for what is left out.
pub(crate) fn node(text: &str, attributes: &[(&str, &[i64])]) -> NodeProto {
    let (outputs, call) = text.split_once('=').unwrap();
    let names = |text: &str| text.split_whitespace().map(|name| if name == "." { String::new() } else { name.into() }).collect();
    let (operator, inputs) = call.trim().split_once(' ').unwrap_or((call.trim(), ""));
    let (domain, op_type) = operator.rsplit_once('.').unwrap_or(("", operator));
    let given = attributes.iter().map(|(name, ints)| attribute(name, ints)).collect();
    NodeProto {
        name: String::new(),
        op_type: op_type.into(),
        domain: domain.into(),
        input: names(inputs),
        output: names(outputs),
        attribute: given,
        ..Default::default()
    }
}

pub(crate) fn model(opset: i64, inputs: &[ValueInfoProto], weights: &[TensorProto], nodes: &[NodeProto]) -> ModelProto {
    let output = ValueInfoProto { name: nodes.last().unwrap().output[0].clone(), ..Default::default() };
    let graph = GraphProto {
        node: nodes.to_vec(),
        input: inputs.to_vec(),
        initializer: weights.to_vec(),
        output: vec![output],
        ..Default::default()
    };
    let set = |domain: &str, version| OperatorSetIdProto { domain: domain.into(), version };
    ModelProto { graph: Some(graph), opset_import: vec![set("", opset), set("com.microsoft", 1)], ..Default::default() }
}

pub(crate) fn graph(model: &ModelProto) -> ShapedGraph {
    ShapedGraph::of(model, None).unwrap()
}

/// The shapes of the last node's outputs, or the message.
pub(crate) fn last(model: &ModelProto) -> String {
    let graph = match ShapedGraph::of(model, None) {
        Ok(graph) => graph,
        Err(error) => return error.to_string(),
    };
    let shown =
        |name: &String| match graph.tensors.iter().rev().find(|fact| fact.name == *name).and_then(|fact| fact.shape.as_ref()) {
            Some(shape) => crate::infer::lengths::shown(shape),
            None => "?".to_owned(),
        };
    let outputs = &model.graph.as_ref().unwrap().node.last().unwrap().output;
    outputs.iter().filter(|name| !name.is_empty()).map(shown).collect::<Vec<_>>().join(" ")
}
