//! The general ONNX operators that converters of classical models put around those of `ai.onnx.ml`, on values of up to eight axes.
//! They are simple, and every size is bounded.

mod axes;
mod binary;
mod cast;
mod index;
mod join;
mod reduce;
mod shape;
mod unary;

pub(crate) use self::binary::{binary, choose};
pub(crate) use self::cast::cast;
pub(crate) use self::index::{gather, slice, top_k};
pub(crate) use self::join::{concat, constant, constant_of_shape, split};
pub(crate) use self::reduce::{arg, reduce, softmax};
pub(crate) use self::shape::{expand, flatten, identity, reshape, shape_of, squeeze, transpose, unsqueeze};
pub(crate) use self::unary::{clip, unary};
