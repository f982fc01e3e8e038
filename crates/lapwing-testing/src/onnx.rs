//! ONNX messages, built by hand: what the tests of several crates make small files of.

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

/// An attribute of whole numbers.
#[must_use]
pub fn ints(name: &str, values: &[i64]) -> AttributeProto {
    attribute(name, AttributeType::Ints, |made| made.ints = values.to_vec())
}

/// An attribute of numbers.
#[must_use]
pub fn floats(name: &str, values: &[f32]) -> AttributeProto {
    attribute(name, AttributeType::Floats, |made| made.floats = values.to_vec())
}

/// An attribute of texts.
#[must_use]
pub fn strings(name: &str, values: &[&str]) -> AttributeProto {
    attribute(name, AttributeType::Strings, |made| made.strings = values.iter().map(|value| value.as_bytes().to_vec()).collect())
}

/// An attribute of one whole number.
#[must_use]
pub fn int(name: &str, value: i64) -> AttributeProto {
    attribute(name, AttributeType::Int, |made| made.i = value)
}

/// An attribute of one number.
#[must_use]
pub fn float(name: &str, value: f32) -> AttributeProto {
    attribute(name, AttributeType::Float, |made| made.f = value)
}

/// An attribute of one text.
#[must_use]
pub fn word(name: &str, value: &str) -> AttributeProto {
    attribute(name, AttributeType::String, |made| made.s = value.as_bytes().to_vec())
}

/// An attribute that is a tensor.
#[must_use]
pub fn tensor(name: &str, value: TensorProto) -> AttributeProto {
    attribute(name, AttributeType::Tensor, |made| made.t = Some(value))
}

/// A constant of single precision.
#[must_use]
pub fn f32s(name: &str, dims: &[i64], values: &[f32]) -> TensorProto {
    let (data_type, float_data) = (DataType::Float as i32, values.to_vec());
    TensorProto { name: name.into(), dims: dims.to_vec(), data_type, float_data, ..Default::default() }
}

/// A constant of whole numbers of 64 bits.
#[must_use]
pub fn i64s(name: &str, dims: &[i64], values: &[i64]) -> TensorProto {
    let (data_type, int64_data) = (DataType::Int64 as i32, values.to_vec());
    TensorProto { name: name.into(), dims: dims.to_vec(), data_type, int64_data, ..Default::default() }
}

/// A node of `ai.onnx.ml`.
#[must_use]
pub fn classical(operator: &str, inputs: &[&str], outputs: &[&str], attribute: Vec<AttributeProto>) -> NodeProto {
    NodeProto { domain: "ai.onnx.ml".into(), ..general(operator, inputs, outputs, attribute) }
}

/// A node of the general operators.
#[must_use]
pub fn general(operator: &str, inputs: &[&str], outputs: &[&str], attribute: Vec<AttributeProto>) -> NodeProto {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    NodeProto { op_type: operator.into(), input: names(inputs), output: names(outputs), attribute, ..Default::default() }
}

/// An input or output of this element type, by its name or number in ONNX; axes of length 0 are open: the first is the batch, and the others
/// have a name for their place.
#[must_use]
pub fn port(name: &str, kind: impl Into<i32>, dims: &[i64]) -> ValueInfoProto {
    let dim = |(axis, length): (usize, &i64)| {
        let value = match (length, axis) {
            (0, 0) => DimParam("batch".into()),
            (0, _) => DimParam(format!("axis_{axis}")),
            _ => DimValue(*length),
        };
        Dimension { value: Some(value), ..Default::default() }
    };
    let shape = Some(TensorShapeProto { dim: dims.iter().enumerate().map(dim).collect() });
    let value = Some(TensorType(type_proto::Tensor { elem_type: kind.into(), shape }));
    ValueInfoProto { name: name.into(), r#type: Some(TypeProto { value, ..Default::default() }), ..Default::default() }
}

/// A model of opset 17 and `ai.onnx.ml` 3, whose outputs have no types.
#[must_use]
pub fn model(inputs: Vec<ValueInfoProto>, node: Vec<NodeProto>, outputs: &[&str], initializer: Vec<TensorProto>) -> ModelProto {
    let output = outputs.iter().map(|name| ValueInfoProto { name: (*name).into(), ..Default::default() }).collect();
    let set = |domain: &str, version| OperatorSetIdProto { domain: domain.into(), version };
    ModelProto {
        graph: Some(GraphProto { node, input: inputs, output, initializer, ..Default::default() }),
        opset_import: vec![set("", 17), set("ai.onnx.ml", 3)],
        ..Default::default()
    }
}
