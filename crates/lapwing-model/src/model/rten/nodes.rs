//! Nodes, constants and attributes that are put in the place of others.

use lapwing_onnx::messages::attribute_proto::AttributeType;
use lapwing_onnx::messages::tensor_proto::DataType;
use lapwing_onnx::messages::{AttributeProto, NodeProto, TensorProto};

/// The nodes that stand for one node.
pub(crate) type Nodes = Vec<NodeProto>;

/// A part of a node; the last has the node's own name.
pub(crate) fn made(kind: &str, of: &NodeProto, part: &str, reads: &[&str], makes: &str) -> NodeProto {
    NodeProto {
        name: if part.is_empty() { of.name.clone() } else { format!("{}/{part}", of.name) },
        op_type: kind.to_owned(),
        input: reads.iter().map(ToString::to_string).collect(),
        output: vec![makes.to_owned()],
        ..NodeProto::default()
    }
}

/// A constant of one number.
pub(crate) fn scalar(of: &NodeProto, part: &str, value: f32, makes: &str) -> NodeProto {
    constant(
        of,
        part,
        TensorProto { data_type: DataType::Float as i32, float_data: vec![value], ..TensorProto::default() },
        makes,
    )
}

/// A constant.
pub(crate) fn constant(of: &NodeProto, part: &str, tensor: TensorProto, makes: &str) -> NodeProto {
    let value = AttributeProto {
        name: "value".into(),
        r#type: AttributeType::Tensor as i32,
        t: Some(tensor),
        ..AttributeProto::default()
    };
    NodeProto { attribute: vec![value], ..made("Constant", of, part, &[], makes) }
}

pub(crate) fn whole(name: &str, i: i64) -> AttributeProto {
    AttributeProto { name: name.to_owned(), r#type: AttributeType::Int as i32, i, ..AttributeProto::default() }
}

pub(crate) fn wholes(name: &str, ints: &[i64]) -> AttributeProto {
    AttributeProto { name: name.to_owned(), r#type: AttributeType::Ints as i32, ints: ints.to_vec(), ..AttributeProto::default() }
}

pub(crate) fn real(name: &str, f: f32) -> AttributeProto {
    AttributeProto { name: name.to_owned(), r#type: AttributeType::Float as i32, f, ..AttributeProto::default() }
}

pub(crate) fn word(name: &str, s: &str) -> AttributeProto {
    AttributeProto { name: name.to_owned(), r#type: AttributeType::String as i32, s: s.into(), ..AttributeProto::default() }
}

/// A constant of whole numbers.
pub(crate) fn wholes_of(values: &[i64]) -> TensorProto {
    TensorProto {
        data_type: DataType::Int64 as i32,
        dims: vec![values.len() as i64],
        int64_data: values.to_vec(),
        ..TensorProto::default()
    }
}
