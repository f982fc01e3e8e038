//! Classical models as a plan over rows: trees, linear models, support vectors, and what prepares their columns, as scikit-learn,
//! LightGBM and XGBoost export them to ONNX's `ai.onnx.ml`.
//!
//! [`TabularModel::from_proto`] takes a model whose operators it all knows, or names the first node that it does not take. Results are
//! those of ONNX Runtime, also where ONNX leaves them open: labels and ties exactly, sums of trees to the last bit. Strings are taken and
//! made as [`Datatype::Bytes`](lapwing_onnx::tensor::Datatype::Bytes); a `ZipMap` becomes a matrix with a column for each key.
//!
//! It reads no file, opens no socket, starts no thread and reads no clock. A file that is broken is refused with a reason; sizes that a
//! file or a call can choose are bounded.
//!
//! ```
//! use lapwing_onnx::tensor::Tensor;
//! use lapwing_tabular::{TabularModel, TabularState};
//! # use lapwing_onnx::messages::{attribute_proto::AttributeType, tensor_shape_proto, type_proto, *};
//! # use lapwing_onnx::messages::tensor_shape_proto::dimension::Value::DimValue;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let floats = |name: &str, floats: &[f32]| AttributeProto {
//! #     name: name.into(), r#type: AttributeType::Floats as i32, floats: floats.to_vec(), ..Default::default()
//! # };
//! # let dim = tensor_shape_proto::Dimension { value: Some(DimValue(2)), ..Default::default() };
//! # let shape = Some(TensorShapeProto { dim: vec![Default::default(), dim] });
//! # let kind = TypeProto { value: Some(type_proto::Value::TensorType(type_proto::Tensor { elem_type: 1, shape })), ..Default::default() };
//! # let node = NodeProto {
//! #     op_type: "Scaler".into(), domain: "ai.onnx.ml".into(), input: vec!["x".into()], output: vec!["y".into()],
//! #     attribute: vec![floats("offset", &[1.0, 2.0]), floats("scale", &[2.0, 0.5])], ..Default::default()
//! # };
//! # let graph = GraphProto {
//! #     node: vec![node], input: vec![ValueInfoProto { name: "x".into(), r#type: Some(kind), ..Default::default() }],
//! #     output: vec![ValueInfoProto { name: "y".into(), ..Default::default() }], ..Default::default()
//! # };
//! # let proto = ModelProto { graph: Some(graph), ..Default::default() };
//! // a scaler of two columns: (x - [1, 2]) * [2, 0.5]
//! let model = TabularModel::from_proto(&proto)?;
//! let mut state = TabularState::default();
//! let outputs = model.run(&mut state, &[Tensor::f32("x", &[1, 2], &[2.0, 6.0])], &[true])?;
//! assert_eq!(outputs[0].to_f32(), [2.0, 2.0]);
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

mod attributes;
mod encode;
mod ensemble;
mod graph;
mod labels;
mod lanes;
mod linear;
mod model;
mod operator;
mod operators;
mod probe;
mod product;
mod run;
mod scale;
mod scores;
mod select;
mod svm;
mod tensors;
#[cfg(test)]
mod tests;
mod value;

pub use self::model::{TabularModel, TabularState};
pub use self::operator::TabularCost;
