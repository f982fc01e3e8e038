//! ONNX messages, built by hand.

use lapwing_onnx::messages::attribute_proto::AttributeType;
use lapwing_onnx::messages::tensor_proto::DataType;
use lapwing_onnx::messages::tensor_shape_proto::Dimension;
use lapwing_onnx::messages::tensor_shape_proto::dimension::Value::{DimParam, DimValue};
use lapwing_onnx::messages::type_proto::Value::TensorType;
use lapwing_onnx::messages::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, TensorShapeProto, TypeProto,
    ValueInfoProto, type_proto,
};

/// An attribute of this type, with its value in it.
fn attribute(name: &str, kind: AttributeType, set: impl FnOnce(&mut AttributeProto)) -> AttributeProto {
    let mut made = AttributeProto { name: name.into(), r#type: kind as i32, ..Default::default() };
    set(&mut made);
    made
}

pub(crate) fn ints(name: &str, values: &[i64]) -> AttributeProto {
    attribute(name, AttributeType::Ints, |made| made.ints = values.to_vec())
}

pub(crate) fn floats(name: &str, values: &[f32]) -> AttributeProto {
    attribute(name, AttributeType::Floats, |made| made.floats = values.to_vec())
}

pub(crate) fn strings(name: &str, values: &[&str]) -> AttributeProto {
    attribute(name, AttributeType::Strings, |made| made.strings = values.iter().map(|value| value.as_bytes().to_vec()).collect())
}

pub(crate) fn int(name: &str, value: i64) -> AttributeProto {
    attribute(name, AttributeType::Int, |made| made.i = value)
}

pub(crate) fn float(name: &str, value: f32) -> AttributeProto {
    attribute(name, AttributeType::Float, |made| made.f = value)
}

pub(crate) fn word(name: &str, value: &str) -> AttributeProto {
    attribute(name, AttributeType::String, |made| made.s = value.as_bytes().to_vec())
}

pub(crate) fn tensor(name: &str, value: TensorProto) -> AttributeProto {
    attribute(name, AttributeType::Tensor, |made| made.t = Some(value))
}

pub(crate) fn f32s(name: &str, dims: &[i64], values: &[f32]) -> TensorProto {
    let (data_type, float_data) = (DataType::Float as i32, values.to_vec());
    TensorProto { name: name.into(), dims: dims.to_vec(), data_type, float_data, ..Default::default() }
}

pub(crate) fn i64s(name: &str, dims: &[i64], values: &[i64]) -> TensorProto {
    let (data_type, int64_data) = (DataType::Int64 as i32, values.to_vec());
    TensorProto { name: name.into(), dims: dims.to_vec(), data_type, int64_data, ..Default::default() }
}

/// A node of `ai.onnx.ml`.
pub(crate) fn classical(operator: &str, inputs: &[&str], outputs: &[&str], attribute: Vec<AttributeProto>) -> NodeProto {
    NodeProto { domain: "ai.onnx.ml".into(), ..general(operator, inputs, outputs, attribute) }
}

/// A node of the general operators.
pub(crate) fn general(operator: &str, inputs: &[&str], outputs: &[&str], attribute: Vec<AttributeProto>) -> NodeProto {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    NodeProto { op_type: operator.into(), input: names(inputs), output: names(outputs), attribute, ..Default::default() }
}

/// An input of this type; an axis of length 0 is open.
pub(crate) fn input(name: &str, kind: DataType, dims: &[i64]) -> ValueInfoProto {
    let dim = |length: &i64| {
        let value = if *length == 0 { DimParam("n".into()) } else { DimValue(*length) };
        Dimension { value: Some(value), ..Default::default() }
    };
    let shape = Some(TensorShapeProto { dim: dims.iter().map(dim).collect() });
    let value = Some(TensorType(type_proto::Tensor { elem_type: kind as i32, shape }));
    ValueInfoProto { name: name.into(), r#type: Some(TypeProto { value, ..Default::default() }), ..Default::default() }
}

/// A model of opset 17 and `ai.onnx.ml` 3.
pub(crate) fn model(
    inputs: Vec<ValueInfoProto>,
    node: Vec<NodeProto>,
    outputs: &[&str],
    initializer: Vec<TensorProto>,
) -> ModelProto {
    let output = outputs.iter().map(|name| ValueInfoProto { name: (*name).into(), ..Default::default() }).collect();
    let set = |domain: &str, version| OperatorSetIdProto { domain: domain.into(), version };
    ModelProto {
        graph: Some(GraphProto { node, input: inputs, output, initializer, ..Default::default() }),
        opset_import: vec![set("", 17), set("ai.onnx.ml", 3)],
        ..Default::default()
    }
}
