//! The work of a call, counted from the graph with the call's shapes, whoever runs it.
//!
//! It is counted as a plan's is: a multiply-add of a matrix product, convolution, recurrent cell or attention is two FLOPs; added biases,
//! activations, norms, softmax, sums and maps are counted separately, one for each element and step. The bytes of a node are those of
//! each distinct tensor that it reads or writes, once, as the graph holds them (a weight that the graph dequantizes before anything else
//! has the width that it is dequantized to); of a table that is looked up in, the rows that are read. What only arranges the same elements
//! in another shape, and what computes lengths, does no work.

mod counted;
mod others;
mod products;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use self::counted::{Counted, product};
use crate::EngineError;
use crate::infer::{Concrete, evaluate};
use crate::shaped::{KnownValue, Length, ShapedGraph, ShapedNode, TensorId};
use crate::tensor::Datatype;

/// The work of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GraphWork {
    /// Floating-point operations of products: two for each multiply-add.
    pub flops: u64,
    /// All others.
    pub other_ops: u64,
    /// Bytes that the nodes read and write.
    pub bytes: u64,
    /// The least that any execution reads and writes: weights, inputs and outputs, once.
    pub min_bytes: u64,
    /// The operators that are not counted, and how often each occurs.
    pub uncounted: BTreeMap<String, usize>,
    /// Whether products may be among what is not counted.
    pub misses_products: bool,
}

impl ShapedGraph {
    /// The work of a call whose inputs have these shapes, in the graph's order.
    ///
    /// # Errors
    ///
    /// [`EngineError::Input`] names the input that does not fit; [`EngineError::Model`] the node that these lengths do not fit.
    pub fn work(&self, shapes: &[Vec<usize>]) -> Result<GraphWork, EngineError> {
        if shapes.len() != self.inputs.len() {
            return Err(EngineError::input("inputs", format!("expected {}, got {}", self.inputs.len(), shapes.len())));
        }
        let concrete = Concrete::of(self, shapes)?;
        let mut work = GraphWork::default();
        let mut weights: BTreeMap<TensorId, u64> = BTreeMap::new();
        for node in &self.nodes {
            let facts = node.outputs.iter().flatten().map(|id| concrete.fact(*id));
            if is_view(node) || facts.clone().all(|fact| !matches!(fact.value, KnownValue::Unknown)) {
                continue;
            }
            let shapes = |ids: &[Option<TensorId>]| ids.iter().map(|id| id.and_then(|id| concrete.shape(id))).collect();
            let counted = Counted { node, inputs: shapes(&node.inputs), outputs: shapes(&node.outputs) };
            let made = products::operations(&counted).or_else(|| others::operations(&counted));
            let bytes = self.node_bytes(&counted, &concrete, &mut weights);
            match made.zip(bytes) {
                Some((made, bytes)) => {
                    work.flops = work.flops.saturating_add(made.flops);
                    work.other_ops = work.other_ops.saturating_add(made.others);
                    work.bytes = work.bytes.saturating_add(bytes);
                }
                None => {
                    work.misses_products |= !others::is_known(node);
                    *work.uncounted.entry(node.operator.clone()).or_insert(0) += 1;
                }
            }
        }
        let ports = self.inputs.iter().chain(&self.outputs).filter_map(|id| concrete.shape(*id).map(|shape| (id, shape)));
        let carried = ports.map(|(id, shape)| product(&shape).saturating_mul(width(self.tensor(*id).datatype)));
        work.min_bytes = carried.chain(weights.into_values()).fold(0, u64::saturating_add);
        Ok(work)
    }

    /// The bytes of each distinct tensor of a node; `weights` keeps the most that any node reads of each constant.
    fn node_bytes(&self, counted: &Counted<'_>, concrete: &Concrete<'_>, weights: &mut BTreeMap<TensorId, u64>) -> Option<u64> {
        let node = counted.node;
        let ids: BTreeSet<TensorId> = node.inputs.iter().chain(&node.outputs).flatten().copied().collect();
        let mut bytes = 0_u64;
        for id in ids {
            let shape = concrete.shape(id)?;
            let mut elements = product(&shape);
            let is_weight = self.is_constant(id);
            if is_weight && node.operator == "Gather" && node.inputs.first() == Some(&Some(id)) {
                elements = elements.min(counted.made()?);
            }
            let touched = elements.saturating_mul(width(self.tensor(id).datatype));
            if is_weight {
                let most = weights.entry(id).or_insert(0);
                *most = touched.max(*most);
            }
            bytes = bytes.saturating_add(touched);
        }
        Some(bytes)
    }

    /// The shapes of the inputs for a call of `rows` rows, each of `length` tokens if axes after the first are open, and of a past as long
    /// if some are caches; `None` if an axis is an expression that these do not give a length, or if an input has no rank.
    #[must_use]
    pub fn input_shapes(&self, rows: usize, length: usize) -> Option<Vec<Vec<usize>>> {
        let mut names: HashMap<String, i64> = HashMap::new();
        let shapes = || self.inputs.iter().map(|id| self.tensor(*id).shape.as_deref());
        for (axis, open) in shapes().flatten().flat_map(|shape| shape.iter().enumerate()) {
            if let Length::Var(symbol) = open {
                let count = i64::try_from(if axis == 0 { rows } else { length }).ok()?;
                names.entry(symbol.name.clone()).or_insert(count);
            }
        }
        if let Some(context) = self.context_axis() {
            names.insert(context, i64::try_from(length.checked_mul(2)?).ok()?);
        }
        // names that stand in expressions only are lengths too
        for part in shapes().flatten().flatten().flat_map(Length::iter) {
            if let Length::Var(symbol) = part {
                names.entry(symbol.name.clone()).or_insert(i64::try_from(length).ok()?);
            }
        }
        let lengths = |shape: &[Length]| {
            shape.iter().map(|length| evaluate(length, &names).and_then(|length| usize::try_from(length).ok())).collect()
        };
        shapes().map(|shape| lengths(shape?)).collect()
    }

    /// The name of an axis that is as long as past and tokens together: that of the mask of a model with a cache, if nothing but its
    /// place says so (`total`, or what an exporter numbers).
    fn context_axis(&self) -> Option<String> {
        let axes = |of: fn(&str) -> bool| {
            let inputs = self.inputs.iter().map(|id| self.tensor(*id)).filter(move |input| of(&input.name));
            let axes = inputs.filter_map(|input| input.shape.as_deref()).flat_map(|shape| shape.iter().skip(1));
            axes.filter_map(|length| if let Length::Var(symbol) = length { Some(&symbol.name) } else { None })
        };
        let is_mask: fn(&str) -> bool = |name| name.contains("mask");
        let is_past: fn(&str) -> bool = |name| name.starts_with("past");
        axes(is_past).next()?;
        let others = |name: &&String| !axes(|name| !name.contains("mask")).any(|other| other == *name);
        axes(is_mask).find(others).cloned()
    }

    /// FLOPs of products for a call of `rows` rows, each of `length` tokens if axes after the first are open; a multiply-add is two.
    /// `None` if products may be missing from the count: loops, operators that are not known, lengths that depend on a call's values.
    #[must_use]
    pub fn flops(&self, rows: usize, length: usize) -> Option<u64> {
        let work = self.work(&self.input_shapes(rows, length)?).ok()?;
        (!work.misses_products).then_some(work.flops)
    }
}

/// Bytes of an element. Those of strings are not counted; a type that no call can have is as narrow as it may be.
fn width(datatype: Option<Datatype>) -> u64 {
    datatype.map_or(1, |kind| kind.bytes().unwrap_or(0)) as u64
}

/// Whether a node gives the same elements another shape.
fn is_view(node: &ShapedNode) -> bool {
    matches!(node.operator.as_str(), "Reshape" | "Squeeze" | "Unsqueeze" | "Flatten" | "Identity" | "Dropout" | "Shape" | "Size")
}
