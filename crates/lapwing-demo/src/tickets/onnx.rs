//! ONNX files written in code: the few messages of onnx.proto that the demo's model needs, and a builder of graphs.
//!
//! Tensors are float32 or int64; ids and names of fields are those of <https://github.com/onnx/onnx/blob/main/onnx/onnx.proto>.

use prost::Message;

/// The version of the file's form, and of the operators.
const IR_VERSION: i64 = 8;
const OPSET: i64 = 17;

#[derive(Clone, PartialEq, Message)]
struct ModelProto {
    #[prost(int64, tag = "1")]
    ir_version: i64,
    #[prost(string, tag = "2")]
    producer_name: String,
    #[prost(message, optional, tag = "7")]
    graph: Option<GraphProto>,
    #[prost(message, repeated, tag = "8")]
    opset_import: Vec<OperatorSetIdProto>,
}

#[derive(Clone, PartialEq, Message)]
struct OperatorSetIdProto {
    #[prost(int64, tag = "2")]
    version: i64,
}

#[derive(Clone, PartialEq, Message)]
struct GraphProto {
    #[prost(message, repeated, tag = "1")]
    node: Vec<NodeProto>,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(message, repeated, tag = "5")]
    initializer: Vec<TensorProto>,
    #[prost(message, repeated, tag = "11")]
    input: Vec<ValueInfoProto>,
    #[prost(message, repeated, tag = "12")]
    output: Vec<ValueInfoProto>,
}

#[derive(Clone, PartialEq, Message)]
struct NodeProto {
    #[prost(string, repeated, tag = "1")]
    input: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    output: Vec<String>,
    #[prost(string, tag = "3")]
    name: String,
    #[prost(string, tag = "4")]
    op_type: String,
    #[prost(message, repeated, tag = "5")]
    attribute: Vec<AttributeProto>,
}

/// An attribute of a node; its type is 2 for one integer and 7 for several.
#[derive(Clone, PartialEq, Message)]
struct AttributeProto {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(int64, tag = "3")]
    i: i64,
    #[prost(int64, repeated, tag = "8")]
    ints: Vec<i64>,
    #[prost(int32, tag = "20")]
    r#type: i32,
}

#[derive(Clone, PartialEq, Message)]
struct TensorProto {
    #[prost(int64, repeated, tag = "1")]
    dims: Vec<i64>,
    #[prost(int32, tag = "2")]
    data_type: i32,
    #[prost(string, tag = "8")]
    name: String,
    #[prost(bytes = "vec", tag = "9")]
    raw_data: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct ValueInfoProto {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, optional, tag = "2")]
    r#type: Option<TypeProto>,
}

#[derive(Clone, PartialEq, Message)]
struct TypeProto {
    #[prost(message, optional, tag = "1")]
    tensor_type: Option<TensorType>,
}

#[derive(Clone, PartialEq, Message)]
struct TensorType {
    #[prost(int32, tag = "1")]
    elem_type: i32,
    #[prost(message, optional, tag = "2")]
    shape: Option<TensorShapeProto>,
}

#[derive(Clone, PartialEq, Message)]
struct TensorShapeProto {
    #[prost(message, repeated, tag = "1")]
    dim: Vec<Dimension>,
}

/// An axis: its length, or a name where a call chooses it.
#[derive(Clone, PartialEq, Message)]
struct Dimension {
    #[prost(int64, optional, tag = "1")]
    dim_value: Option<i64>,
    #[prost(string, optional, tag = "2")]
    dim_param: Option<String>,
}

/// A type of elements, by its number in ONNX.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Element {
    Float32 = 1,
    Int64 = 7,
}

/// An axis of an input or output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AxisLength {
    Fixed(usize),
    /// A call chooses; axes of one name have one length.
    Named(&'static str),
}

/// An input or output of a graph.
pub(crate) type PortSpec<'a> = (&'a str, Element, &'a [AxisLength]);

/// A graph that grows by a node at a time. Methods return the name of the tensor that they add.
#[derive(Debug, Default)]
pub(crate) struct GraphBuilder {
    nodes: Vec<NodeProto>,
    constants: Vec<TensorProto>,
}

impl GraphBuilder {
    /// A constant of float32; `values` fill `dims`.
    pub(crate) fn floats(&mut self, dims: &[usize], values: &[f32]) -> String {
        self.constant(dims, Element::Float32, values.iter().flat_map(|value| value.to_le_bytes()).collect())
    }

    /// A list of int64.
    pub(crate) fn integers(&mut self, values: &[i64]) -> String {
        self.constant(&[values.len()], Element::Int64, values.iter().flat_map(|value| value.to_le_bytes()).collect())
    }

    fn constant(&mut self, dims: &[usize], element: Element, raw_data: Vec<u8>) -> String {
        let name = format!("constant_{}", self.constants.len());
        let dims = dims.iter().map(|length| to_i64(*length)).collect();
        self.constants.push(TensorProto { dims, data_type: element as i32, name: name.clone(), raw_data });
        name
    }

    /// A node without attributes.
    pub(crate) fn node(&mut self, operator: &str, inputs: &[&str]) -> String {
        self.node_with(operator, inputs, Vec::new())
    }

    /// A node with one attribute, an integer.
    pub(crate) fn node_with_integer(&mut self, operator: &str, inputs: &[&str], name: &str, i: i64) -> String {
        self.node_with(operator, inputs, vec![AttributeProto { name: name.to_owned(), i, r#type: 2, ..Default::default() }])
    }

    /// A node with one attribute, a list of integers.
    pub(crate) fn node_with_integers(&mut self, operator: &str, inputs: &[&str], name: &str, ints: &[i64]) -> String {
        let (name, ints) = (name.to_owned(), ints.to_vec());
        self.node_with(operator, inputs, vec![AttributeProto { name, ints, r#type: 7, ..Default::default() }])
    }

    fn node_with(&mut self, operator: &str, inputs: &[&str], attribute: Vec<AttributeProto>) -> String {
        let output = format!("{}_{}", operator.to_lowercase(), self.nodes.len());
        self.nodes.push(NodeProto {
            input: inputs.iter().map(|input| (*input).to_owned()).collect(),
            output: vec![output.clone()],
            name: output.clone(),
            op_type: operator.to_owned(),
            attribute,
        });
        output
    }

    /// Gives a tensor a name of its own, under which it can be an output.
    pub(crate) fn rename(&mut self, tensor: &str, name: &str) {
        if let Some(output) = self.nodes.iter_mut().flat_map(|node| &mut node.output).find(|output| *output == tensor) {
            name.clone_into(output);
        }
    }

    /// The file.
    pub(crate) fn finish(self, name: &str, inputs: &[PortSpec<'_>], outputs: &[PortSpec<'_>]) -> Vec<u8> {
        let graph = GraphProto {
            node: self.nodes,
            name: name.to_owned(),
            initializer: self.constants,
            input: inputs.iter().map(value_info).collect(),
            output: outputs.iter().map(value_info).collect(),
        };
        let producer_name = "lapwing demo".to_owned();
        let opset_import = vec![OperatorSetIdProto { version: OPSET }];
        ModelProto { ir_version: IR_VERSION, producer_name, graph: Some(graph), opset_import }.encode_to_vec()
    }
}

fn value_info((name, element, axes): &PortSpec<'_>) -> ValueInfoProto {
    let dimension = |axis: &AxisLength| match axis {
        AxisLength::Fixed(length) => Dimension { dim_value: Some(to_i64(*length)), dim_param: None },
        AxisLength::Named(name) => Dimension { dim_value: None, dim_param: Some((*name).to_owned()) },
    };
    let shape = Some(TensorShapeProto { dim: axes.iter().map(dimension).collect() });
    let tensor_type = Some(TensorType { elem_type: *element as i32, shape });
    ValueInfoProto { name: (*name).to_owned(), r#type: Some(TypeProto { tensor_type }) }
}

fn to_i64(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}
