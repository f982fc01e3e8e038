//! A model's graph as far as it is known without running it: the type, the shape and, of constants and lengths, the value of every
//! tensor. Plans are lowered from it, and the work of a call is counted with it.
//!
//! A length is an expression over the names of the inputs' open axes. What could not be inferred is unknown, never guessed.

use std::sync::Arc;

use bytes::Bytes;
use half::{bf16, f16};
pub use rten_shape_inference::SymExpr as Length;

use crate::messages::{AttributeProto, TensorProto};
use crate::tensor::{Datatype, widened};

/// The most elements of a constant that is kept for counting: lengths, axes and indices.
const LARGEST_KEPT: usize = 1024;

/// A tensor of a [`ShapedGraph`], by its place in [`ShapedGraph::tensors`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TensorId(pub usize);

/// A graph whose nodes are in running order. What only constants determine is no node any more, but a constant.
#[derive(Clone, Debug, Default)]
pub struct ShapedGraph {
    /// The nodes that remain.
    pub nodes: Vec<ShapedNode>,
    /// All tensors.
    pub tensors: Vec<TensorFact>,
    /// The inputs of a call, without those that an initializer gives a value, in the file's order.
    pub inputs: Vec<TensorId>,
    /// The outputs, in the file's order.
    pub outputs: Vec<TensorId>,
    /// The number of elements of the file's constants that are floating-point numbers, or of 8 bits, as quantized weights are.
    pub parameters: u64,
}

/// One node.
#[derive(Clone, Debug)]
pub struct ShapedNode {
    /// Its name, which is unique in the graph.
    pub name: String,
    /// Its operator, without the domain.
    pub operator: String,
    /// The operator's domain; empty for ONNX's own.
    pub domain: String,
    /// The version of the operator set that the file states for the domain.
    pub version: i64,
    /// What it reads; `None` for an optional input that is left out.
    pub inputs: Vec<Option<TensorId>>,
    /// What it makes; `None` for an optional output that is left out.
    pub outputs: Vec<Option<TensorId>>,
    /// Its attributes.
    pub attributes: Vec<AttributeProto>,
}

/// What is known of a tensor.
#[derive(Clone, Debug)]
pub struct TensorFact {
    /// Its name in the file.
    pub name: String,
    /// The type of its elements.
    pub datatype: Option<Datatype>,
    /// The lengths of its axes; `None` where not even their number is known.
    pub shape: Option<Vec<Length>>,
    /// Its value.
    pub value: KnownValue,
}

/// What is known of a tensor's elements.
#[derive(Clone, Debug, Default)]
pub enum KnownValue {
    /// Nothing: it depends on a call.
    #[default]
    Unknown,
    /// They are constants.
    Constant(Arc<Constant>),
    /// They are constants that are not kept: [`ShapedGraph::without_weights`].
    Weight,
    /// They are lengths of the call's axes: a scalar (no axes) or a vector of whole numbers.
    Lengths(Vec<Length>),
}

/// A constant tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct Constant {
    /// The type of its elements.
    pub datatype: Datatype,
    /// The lengths of its axes.
    pub shape: Vec<usize>,
    /// Its elements, little-endian, in row-major order; a truth value is one byte.
    pub data: Bytes,
}

impl Constant {
    /// The number of elements.
    #[must_use]
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// The same numbers in single precision, if they are of half. The lowest number stays the lowest: it stands for all that a mask excludes.
    fn in_single_precision(&self) -> Self {
        let Some(data) = widened(self.datatype, &self.data) else { return self.clone() };
        let lowest = if self.datatype == Datatype::Fp16 { f16::MIN.to_f32() } else { bf16::MIN.to_f32() };
        let data = if *data == lowest.to_le_bytes() { Bytes::copy_from_slice(&f32::MIN.to_le_bytes()) } else { data };
        Self { datatype: Datatype::Fp32, shape: self.shape.clone(), data }
    }
}

impl ShapedGraph {
    /// What is known of a tensor.
    #[must_use]
    pub fn tensor(&self, id: TensorId) -> &TensorFact {
        &self.tensors[id.0]
    }

    /// The same graph for counting: constants of more than a few elements are only known to be some.
    #[must_use]
    pub fn without_weights(&self) -> Self {
        let lightened = |fact: &TensorFact| match &fact.value {
            KnownValue::Constant(constant) if constant.elements() > LARGEST_KEPT => {
                let length = |length: &usize| i32::try_from(*length).map(Length::Value);
                let shape = constant.shape.iter().map(length).collect::<Result<_, _>>().ok();
                TensorFact { shape, value: KnownValue::Weight, ..fact.clone() }
            }
            _ => fact.clone(),
        };
        let attributes = |node: &ShapedNode| {
            let small = |attribute: &&AttributeProto| attribute.t.is_none();
            node.attributes.iter().filter(small).cloned().collect()
        };
        let nodes = self.nodes.iter().map(|node| ShapedNode { attributes: attributes(node), ..node.clone() });
        Self { nodes: nodes.collect(), tensors: self.tensors.iter().map(lightened).collect(), ..self.clone() }
    }

    /// The same graph with all that is of half precision (fp16, bf16) in single; `None` if nothing is. What it computes is no less precise,
    /// and sums beyond the largest number of half precision stay finite.
    #[must_use]
    pub fn in_single_precision(&self) -> Option<Self> {
        let is_half = |fact: &TensorFact| fact.datatype.is_some_and(Datatype::is_half);
        if !self.tensors.iter().any(is_half) {
            return None;
        }
        let widened = |fact: &TensorFact| {
            if !is_half(fact) {
                return fact.clone();
            }
            let value = match &fact.value {
                KnownValue::Constant(constant) => KnownValue::Constant(Arc::new(constant.in_single_precision())),
                other => other.clone(),
            };
            TensorFact { datatype: Some(Datatype::Fp32), value, ..fact.clone() }
        };
        Some(Self { tensors: self.tensors.iter().map(widened).collect(), ..self.clone() })
    }

    /// Whether a tensor is a constant.
    #[must_use]
    pub fn is_constant(&self, id: TensorId) -> bool {
        matches!(self.tensor(id).value, KnownValue::Constant(_) | KnownValue::Weight)
    }

    /// The constant at this tensor, if it is one.
    #[must_use]
    pub fn constant(&self, id: TensorId) -> Option<&Arc<Constant>> {
        if let KnownValue::Constant(constant) = &self.tensor(id).value { Some(constant) } else { None }
    }
}

impl ShapedNode {
    fn attribute(&self, name: &str) -> Option<&AttributeProto> {
        self.attributes.iter().find(|attribute| attribute.name == name)
    }

    /// A whole number.
    #[must_use]
    pub fn int(&self, name: &str) -> Option<i64> {
        self.attribute(name).map(|attribute| attribute.i)
    }

    /// Whole numbers.
    #[must_use]
    pub fn ints(&self, name: &str) -> Option<&[i64]> {
        self.attribute(name).map(|attribute| &attribute.ints[..])
    }

    /// Numbers.
    #[must_use]
    pub fn floats(&self, name: &str) -> Option<&[f32]> {
        self.attribute(name).map(|attribute| &attribute.floats[..])
    }

    /// How many words there are.
    #[must_use]
    pub fn texts(&self, name: &str) -> usize {
        self.attribute(name).map_or(0, |attribute| attribute.strings.len())
    }

    /// A tensor.
    #[must_use]
    pub fn tensor(&self, name: &str) -> Option<&TensorProto> {
        self.attribute(name).and_then(|attribute| attribute.t.as_ref())
    }

    /// A number.
    #[must_use]
    pub fn float(&self, name: &str) -> Option<f32> {
        self.attribute(name).map(|attribute| attribute.f)
    }

    /// A word.
    #[must_use]
    pub fn word(&self, name: &str) -> Option<&str> {
        self.attribute(name).and_then(|attribute| std::str::from_utf8(&attribute.s).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_of_half_precision_widens_and_the_lowest_number_stays_the_lowest() {
        let fact = |name: &str, datatype, value| TensorFact { name: name.into(), datatype: Some(datatype), shape: None, value };
        let constant = |datatype, data: Vec<u8>| {
            let shape = vec![data.len() / Datatype::least_bytes(datatype)];
            KnownValue::Constant(Constant { datatype, shape, data: data.into() }.into())
        };
        let tensors = vec![
            fact("x", Datatype::Fp16, KnownValue::Unknown),
            fact(
                "w",
                Datatype::Fp16,
                constant(Datatype::Fp16, [f16::ONE, f16::MIN].iter().flat_map(|x| x.to_le_bytes()).collect()),
            ),
            fact("mask", Datatype::Fp16, constant(Datatype::Fp16, f16::MIN.to_le_bytes().into())),
            fact("low", Datatype::Bf16, constant(Datatype::Bf16, bf16::MIN.to_le_bytes().into())),
            fact("axes", Datatype::Int64, constant(Datatype::Int64, 1_i64.to_le_bytes().into())),
        ];
        let graph = ShapedGraph { tensors, inputs: vec![TensorId(0)], ..ShapedGraph::default() };
        let single = graph.in_single_precision().unwrap();
        let kinds: Vec<_> = single.tensors.iter().map(|fact| fact.datatype.unwrap()).collect();
        assert_eq!(kinds, [Datatype::Fp32, Datatype::Fp32, Datatype::Fp32, Datatype::Fp32, Datatype::Int64]);
        let numbers = |at: usize| -> Vec<f32> {
            single.constant(TensorId(at)).unwrap().data.as_chunks::<4>().0.iter().map(|x| f32::from_le_bytes(*x)).collect()
        };
        assert_eq!((numbers(1), numbers(2), numbers(3)), (vec![1.0, -65_504.0], vec![f32::MIN], vec![f32::MIN]));
        assert!(single.in_single_precision().is_none(), "nothing of it is of half precision any more");
    }
}
