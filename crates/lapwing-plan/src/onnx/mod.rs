//! ONNX files: read, validated against inputs that would break the importer, and passed to tract, which infers shapes
//! and simplifies.

mod check;
mod cost;
mod dequantize;
mod file;
mod graph;
mod message;
mod normal;
mod open;
pub mod ports;
mod sizes;
#[cfg(test)]
mod tests;

pub use self::file::{ModelSource, OnnxFile};
pub use self::graph::Graph;
pub use self::normal::{NodeOrder, node_order};
pub use self::open::DynamicGraph;
