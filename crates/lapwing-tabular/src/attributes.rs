//! The attributes of an ONNX node, read by name and type. An attribute of another type than the operator's is a fault that names it.

use lapwing_onnx::messages::attribute_proto::AttributeType;
use lapwing_onnx::messages::{AttributeProto, NodeProto, TensorProto};
use lapwing_onnx::{UnsupportedNode, operator_name};

/// Why a node, or a part of one, is not taken.
pub(crate) type Reason = String;

/// A node, and the version of the operator set that its operator is from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attributes<'a> {
    pub(crate) node: &'a NodeProto,
    pub(crate) opset: i64,
}

impl<'a> Attributes<'a> {
    fn find(self, name: &str, kind: AttributeType) -> Result<Option<&'a AttributeProto>, Reason> {
        let Some(found) = self.node.attribute.iter().find(|attribute| attribute.name == name) else { return Ok(None) };
        if !found.ref_attr_name.is_empty() {
            return Err(format!("{name} refers to the attribute {} of a function", found.ref_attr_name));
        }
        // files before version 4 of the format may leave the type out
        if found.r#type == AttributeType::Undefined as i32 || found.r#type == kind as i32 {
            Ok(Some(found))
        } else {
            Err(format!("{name} has attribute type {}, expected {} ({kind:?})", found.r#type, kind as i32))
        }
    }

    /// Whole numbers; none if the attribute is absent.
    pub(crate) fn ints(self, name: &str) -> Result<&'a [i64], Reason> {
        Ok(self.find(name, AttributeType::Ints)?.map_or(&[], |found| &found.ints))
    }

    /// Whole numbers, each within `0..bound`.
    pub(crate) fn indices(self, name: &str, bound: usize) -> Result<Vec<usize>, Reason> {
        let index = |(at, number): (usize, &i64)| match usize::try_from(*number) {
            Ok(index) if index < bound => Ok(index),
            _ => Err(format!("{name}[{at}] is {number}, outside of 0..{bound}")),
        };
        self.ints(name)?.iter().enumerate().map(index).collect()
    }

    pub(crate) fn floats(self, name: &str) -> Result<&'a [f32], Reason> {
        Ok(self.find(name, AttributeType::Floats)?.map_or(&[], |found| &found.floats))
    }

    pub(crate) fn strings(self, name: &str) -> Result<&'a [Vec<u8>], Reason> {
        Ok(self.find(name, AttributeType::Strings)?.map_or(&[], |found| &found.strings))
    }

    pub(crate) fn int(self, name: &str) -> Result<Option<i64>, Reason> {
        Ok(self.find(name, AttributeType::Int)?.map(|found| found.i))
    }

    pub(crate) fn float(self, name: &str) -> Result<Option<f32>, Reason> {
        Ok(self.find(name, AttributeType::Float)?.map(|found| found.f))
    }

    pub(crate) fn bytes(self, name: &str) -> Result<Option<&'a [u8]>, Reason> {
        Ok(self.find(name, AttributeType::String)?.map(|found| found.s.as_slice()))
    }

    /// A word of the operator's vocabulary.
    pub(crate) fn word(self, name: &str, default: &'static str) -> Result<&'a str, Reason> {
        let Some(bytes) = self.bytes(name)? else { return Ok(default) };
        std::str::from_utf8(bytes).map_err(|_| format!("{name} is not UTF-8"))
    }

    pub(crate) fn tensor(self, name: &str) -> Result<Option<&'a TensorProto>, Reason> {
        Ok(self.find(name, AttributeType::Tensor)?.and_then(|found| found.t.as_ref()))
    }

    /// The node as an error names it.
    pub(crate) fn unsupported(self, reason: Reason) -> UnsupportedNode {
        let name = if self.node.name.is_empty() { self.node.output.first() } else { Some(&self.node.name) };
        UnsupportedNode { node: name.cloned().unwrap_or_default(), operator: operator_name(self.node, Some(self.opset)), reason }
    }
}

/// Checks that lists of one table have one length.
pub(crate) fn same_length(first: (&str, usize), others: &[(&str, usize)]) -> Result<(), Reason> {
    match others.iter().find(|(_, length)| *length != first.1) {
        Some((name, length)) => Err(format!("{} has {} elements, {name} has {length}", first.0, first.1)),
        None => Ok(()),
    }
}
