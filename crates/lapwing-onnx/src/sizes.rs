//! Checks what operators make whose sizes are constants of the file: they are filled when the graph is read, however large they are.

use std::collections::{HashMap, HashSet};

use crate::messages::tensor_proto::DataType;
use crate::messages::{AttributeProto, GraphProto, NodeProto, TensorProto};

/// The most elements of one tensor: 16 GiB of float32.
const MOST: i64 = 1 << 32;
/// The most axes of a tensor.
const MOST_AXES: usize = 32;

/// The tensors that a file gives: initializers, and the values of `Constant` nodes.
pub(crate) struct Constants<'a>(HashMap<&'a str, &'a TensorProto>);

impl<'a> Constants<'a> {
    pub(crate) fn of(graph: &'a GraphProto) -> Self {
        let made = graph.node.iter().filter(|node| node.op_type == "Constant").filter_map(|node| {
            let value = node.attribute.iter().find_map(|attribute| attribute.t.as_ref())?;
            Some((node.output.first()?.as_str(), value))
        });
        Self(graph.initializer.iter().map(|tensor| (tensor.name.as_str(), tensor)).chain(made).collect())
    }
}

/// Checks one node.
///
/// # Errors
///
/// What is larger than it may be.
pub(crate) fn check(constants: &Constants<'_>, node: &NodeProto) -> Result<(), String> {
    let constant = |at: usize| node.input.get(at).and_then(|name| constants.0.get(name.as_str()).copied());
    let numbers = |at: usize| constant(at).map(integers).unwrap_or_default();
    match node.op_type.as_str() {
        "ConstantOfShape" => lengths(&numbers(0)),
        "Expand" | "Reshape" => lengths(&numbers(1)),
        // repeats, one for each axis
        "Tile" => lengths(&numbers(1)),
        "Pad" => {
            let pads = if node.input.len() > 1 { numbers(1) } else { listed(node, "pads") };
            // two for each axis: before it, and behind it
            let half = pads.len() / 2;
            let added = (0..half).map(|axis| pads[axis].saturating_add(pads[axis + half]).max(1));
            lengths(&added.collect::<Vec<_>>())
        }
        "Resize" | "Upsample" => {
            lengths(&numbers(3))?;
            let attribute = attribute(node, "scales").map(|scales| scales.floats.clone());
            let given = (1..3).filter_map(constant).map(floats).chain(attribute);
            given
                .map(|scales| scales.into_iter().map(|scale| scale.ceil() as i64).collect::<Vec<_>>())
                .try_for_each(|s| lengths(&s))
        }
        "OneHot" => lengths(&numbers(1)),
        "Range" => {
            let ends = [numbers(0), numbers(1), numbers(2)];
            match (ends[0].first(), ends[1].first(), ends[2].first()) {
                (Some(start), Some(limit), Some(delta)) if *delta != 0 => {
                    let length = limit.saturating_sub(*start).checked_div(*delta).unwrap_or(i64::MAX);
                    lengths(&[length])
                }
                _ => Ok(()),
            }
        }
        "Transpose" => permutation(&listed(node, "perm")),
        _ => Ok(()),
    }
}

/// The number of elements of a tensor with these lengths.
pub(crate) fn elements(dims: &[i64]) -> Result<i64, String> {
    if dims.len() > MOST_AXES {
        return Err(format!("has {} axes; the bound is {MOST_AXES}", dims.len()));
    }
    if let Some(dim) = dims.iter().find(|dim| **dim < 0) {
        return Err(format!("has an axis of length {dim} in {dims:?}"));
    }
    let product = dims.iter().try_fold(1_i64, |product, dim| product.checked_mul(*dim));
    product.filter(|product| *product <= MOST).ok_or_else(|| format!("its shape {dims:?} has more than {MOST} elements"))
}

/// Checks the product of lengths; those below 1 say that an axis stays as it is.
fn lengths(lengths: &[i64]) -> Result<(), String> {
    elements(&lengths.iter().copied().filter(|length| *length > 0).collect::<Vec<_>>()).map(drop)
}

/// Checks that each axis is there once.
fn permutation(axes: &[i64]) -> Result<(), String> {
    let known = 0..i64::try_from(axes.len()).unwrap_or(i64::MAX);
    let mut seen = HashSet::new();
    match axes.iter().find(|axis| !known.contains(axis) || !seen.insert(**axis)) {
        Some(axis) => Err(format!("perm: {axis} in {axes:?} is no axis, or there twice")),
        None => Ok(()),
    }
}

fn attribute<'a>(node: &'a NodeProto, name: &str) -> Option<&'a AttributeProto> {
    node.attribute.iter().find(|attribute| attribute.name == name)
}

fn listed(node: &NodeProto, name: &str) -> Vec<i64> {
    attribute(node, name).map(|attribute| attribute.ints.clone()).unwrap_or_default()
}

/// Elements of INT64 or INT32; none of other types.
fn integers(tensor: &TensorProto) -> Vec<i64> {
    let raw = &tensor.raw_data;
    if tensor.data_type == DataType::Int64 as i32 {
        let raw = raw.as_chunks::<8>().0.iter().map(|bytes| i64::from_le_bytes(*bytes));
        return raw.chain(tensor.int64_data.iter().copied()).collect();
    }
    if tensor.data_type == DataType::Int32 as i32 {
        let raw = raw.as_chunks::<4>().0.iter().map(|bytes| i32::from_le_bytes(*bytes).into());
        return raw.chain(tensor.int32_data.iter().map(|number| i64::from(*number))).collect();
    }
    Vec::new()
}

/// Elements of FLOAT; none of other types.
fn floats(tensor: &TensorProto) -> Vec<f32> {
    if tensor.data_type != DataType::Float as i32 {
        return Vec::new();
    }
    let raw = tensor.raw_data.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
    raw.chain(tensor.float_data.iter().copied()).collect()
}
