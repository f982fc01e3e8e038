//! ONNX files: decoded, checked for what would lead any executor astray, and as a graph whose shapes are known; the tensors of calls.
//!
//! It runs nothing, and opens no file but the model's own and its external weights.

#![forbid(unsafe_code)]

mod check;
mod constant;
mod error;
mod file;
mod fold;
mod infer;
pub mod messages;
mod normal;
pub mod ports;
pub mod shaped;
mod sizes;
mod stated;
pub mod tensor;
#[cfg(test)]
mod tests;
mod view;
mod work;

pub use self::check::operator_name;
pub use self::error::{EngineError, UnsupportedNode};
pub use self::file::{ModelSource, OnnxFile};
pub use self::infer::{computed, evaluate};
pub use self::normal::{NodeOrder, node_order};
pub use self::stated::{AxisLengths, StatedShape};
pub use self::work::GraphWork;
