//! Models built by hand, an interpreter of trees by the letter of ONNX's specification, and what both answer.

mod bounds;
mod naive;
mod pipelines;
mod trees;
