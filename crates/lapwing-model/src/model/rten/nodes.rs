//! Nodes, constants and attributes that are put in the place of others.

use lapwing_onnx::messages::attribute_proto::AttributeType;
use lapwing_onnx::messages::tensor_proto::DataType;
use lapwing_onnx::messages::{AttributeProto, NodeProto, TensorProto};

/// The version of ONNX's own operators.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opset(pub(crate) i64);

/// The nodes that stand for one node.
pub(crate) type Nodes = Vec<NodeProto>;

/// The nodes that are made for one node.
pub(crate) struct Parts<'a> {
    pub(crate) node: &'a NodeProto,
    pub(crate) nodes: Nodes,
    count: usize,
}

impl<'a> Parts<'a> {
    pub(crate) const fn of(node: &'a NodeProto) -> Self {
        Self { node, nodes: Vec::new(), count: 0 }
    }

    /// The name of an input; empty if it is not given.
    pub(crate) fn input(&self, at: usize) -> &'a str {
        self.node.input.get(at).map_or("", String::as_str)
    }

    pub(crate) fn output(&self) -> &'a str {
        self.node.output.first().map_or("", String::as_str)
    }

    /// A node with attributes; its result's name.
    pub(crate) fn made(&mut self, kind: &str, reads: &[&str], attributes: &[AttributeProto]) -> String {
        self.count += 1;
        let (part, makes) = (self.count.to_string(), format!("{}/{}", self.output(), self.count));
        self.nodes.push(NodeProto { attribute: attributes.to_vec(), ..made(kind, self.node, &part, reads, &makes) });
        makes
    }

    /// The last node, which has the name and the output of the whole.
    pub(crate) fn last(&mut self, kind: &str, reads: &[&str], attributes: &[AttributeProto]) -> bool {
        self.nodes.push(NodeProto { attribute: attributes.to_vec(), ..made(kind, self.node, "", reads, self.output()) });
        true
    }

    /// A constant's name.
    pub(crate) fn stored(&mut self, tensor: TensorProto) -> String {
        self.count += 1;
        let name = format!("{}/{}", self.output(), self.count);
        self.nodes.push(constant(self.node, &self.count.to_string(), tensor, &name));
        name
    }
}

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
    constant(of, part, real_of(value), makes)
}

/// One number.
pub(crate) fn real_of(value: f32) -> TensorProto {
    TensorProto { data_type: DataType::Float as i32, float_data: vec![value], ..TensorProto::default() }
}

/// One whole number.
pub(crate) fn whole_of(value: i64) -> TensorProto {
    TensorProto { data_type: DataType::Int64 as i32, int64_data: vec![value], ..TensorProto::default() }
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
