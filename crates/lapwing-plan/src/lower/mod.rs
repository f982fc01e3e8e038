//! Lowers a model to a plan. tract reads the ONNX file, infers shapes and simplifies; its graph is walked once, and
//! every tensor is interpreted as a matrix with a row for each sequence or token. A tensor that has no such form makes
//! the model unsupported, and the error names its node. Names and sizes are never used to guess what a model is.

mod attention;
mod axes;
mod form;
mod layout;
mod linear;
mod lookups;
mod maps;

use std::collections::HashMap;
use std::sync::Arc;

use tract_onnx::prelude::{DatumType, OutletId, TDim, Tensor, TypedFact, TypedModel, TypedNode};
use tract_onnx::tract_core::internal::DimLike;
use tract_onnx::tract_core::ops::array::{CumSum, Gather, MultiBroadcastTo, Range, Slice, TypedConcat};
use tract_onnx::tract_core::ops::binary::TypedBinOp;
use tract_onnx::tract_core::ops::cast::Cast;
use tract_onnx::tract_core::ops::change_axes::AxisOp;
use tract_onnx::tract_core::ops::einsum::EinSum;
use tract_onnx::tract_core::ops::element_wise::ElementWiseOp;
use tract_onnx::tract_core::ops::konst::Const;
use tract_onnx::tract_core::ops::logic::Iff;
use tract_onnx::tract_core::ops::nn::{Reduce, RmsNorm, Softmax};
use tract_onnx::tract_core::ops::source::TypedSource;

use self::form::{Axis, Matrix, Scores};
use crate::plan::{ElementType, Node, Op, Plan, PlanPort, Rows, Value, ValueId, Weight, WeightId};
use lapwing_onnx::UnsupportedNode;

/// The form of a tensor of the model.
#[derive(Clone, Debug)]
enum TensorForm {
    /// A constant, the same for every batch.
    Const(Arc<Tensor>),
    /// A value of the plan.
    Matrix(Matrix),
    /// A constant that is sliced along the tokens: the tensor, the axis, and the first index.
    ByPosition(Arc<Tensor>, usize, usize),
    /// The token's position in its sequence plus `from`, along `axis` of `rank` axes.
    Positions { from: usize, axis: usize, rank: usize },
    /// The number of tokens of the sequence, or its reciprocal.
    Count { is_reciprocal: bool },
    /// Scores inside an attention.
    Scores(Scores),
}

/// Lowers a simplified graph. Nodes that no output depends on are left out.
///
/// # Errors
///
/// [`UnsupportedNode`] names the first unsupported node.
pub fn lower(model: &TypedModel) -> Result<Plan, UnsupportedNode> {
    let mut lowering = Lowering::new(model)?;
    // in the model's order, not in that of their first use
    for outlet in &model.inputs {
        let node = model.node(outlet.node);
        if let Some(made) = lowering.source(node).map_err(|reason| refused(node, reason))? {
            lowering.known.insert(*outlet, made);
        }
    }
    let order = model.eval_order().map_err(|e| refused_model(format!("{e:#}")))?;
    for id in order {
        let node = model.node(id);
        if node.op.is::<TypedSource>() {
            continue;
        }
        let made = lowering.node(node).map_err(|reason| refused(node, reason))?;
        if let Some(made) = made {
            lowering.known.insert(OutletId::new(id, 0), made);
        }
    }
    for outlet in &model.outputs {
        let node = model.node(outlet.node);
        let name = model.outlet_label(*outlet).unwrap_or(&node.name).to_owned();
        lowering.output(*outlet, name).map_err(|reason| refused(node, reason))?;
    }
    Ok(lowering.plan)
}

fn refused(node: &TypedNode, reason: String) -> UnsupportedNode {
    UnsupportedNode { node: node.name.clone(), operator: node.op.name().into_owned(), reason }
}

fn refused_model(reason: String) -> UnsupportedNode {
    UnsupportedNode { node: "model".into(), operator: "graph".into(), reason }
}

/// The state of one walk over the graph.
struct Lowering<'m> {
    model: &'m TypedModel,
    plan: Plan,
    known: HashMap<OutletId, TensorForm>,
    /// The symbolic dimension of the tokens; `None` in a model without sequences.
    token: Option<TDim>,
    batch: TDim,
}

/// The form of a node's result, or why the node is not supported.
type Lowered = Result<Option<TensorForm>, String>;

impl<'m> Lowering<'m> {
    fn new(model: &'m TypedModel) -> Result<Self, UnsupportedNode> {
        let (mut batch, mut token) = (None, None);
        for input in &model.inputs {
            let node = model.node(input.node);
            let fact = model.outlet_fact(*input).map_err(|e| refused(node, format!("{e:#}")))?;
            for (axis, dim) in fact.shape.iter().enumerate() {
                let slot = match axis {
                    0 => &mut batch,
                    1 if dim.to_i64().is_err() => &mut token,
                    _ if dim.to_i64().is_err() => return Err(refused(node, format!("axis {axis} has no fixed length"))),
                    _ => continue,
                };
                if dim.to_i64().is_ok() {
                    return Err(refused(node, format!("axis 0 has the fixed length {dim}; it must be the batch's")));
                }
                match slot {
                    None => *slot = Some(dim.clone()),
                    Some(known) if known == dim => {}
                    Some(known) => return Err(refused(node, format!("axis {axis} is {dim}, that of another input is {known}"))),
                }
            }
        }
        let batch = batch.ok_or_else(|| refused_model("no input has a batch axis".into()))?;
        if token.as_ref() == Some(&batch) {
            return Err(refused_model(format!("batch and tokens have the same length {batch}")));
        }
        Ok(Self { model, plan: Plan::default(), known: HashMap::new(), token, batch })
    }

    fn node(&mut self, node: &TypedNode) -> Lowered {
        let op = &node.op;
        if let Some(op) = op.downcast_ref::<Const>() {
            return Ok(Some(TensorForm::Const(op.val().clone())));
        }
        if let Some(op) = op.downcast_ref::<EinSum>() {
            return self.einsum(node, op);
        }
        if let Some(op) = op.downcast_ref::<TypedBinOp>() {
            return self.binary(node, op);
        }
        if let Some(op) = op.downcast_ref::<ElementWiseOp>() {
            return self.unary(node, op);
        }
        if let Some(op) = op.downcast_ref::<Cast>() {
            return self.cast(node, op);
        }
        if op.is::<Iff>() {
            return self.choose(node);
        }
        if let Some(op) = op.downcast_ref::<AxisOp>() {
            return self.change_axes(node, op);
        }
        if let Some(op) = op.downcast_ref::<Slice>() {
            return self.slice(node, op);
        }
        if let Some(op) = op.downcast_ref::<Gather>() {
            return self.gather(node, op);
        }
        if let Some(op) = op.downcast_ref::<CumSum>() {
            return self.running(node, op);
        }
        if op.is::<Range>() {
            return self.range(node);
        }
        if let Some(op) = op.downcast_ref::<MultiBroadcastTo>() {
            return self.broadcast(node, op);
        }
        if let Some(op) = op.downcast_ref::<TypedConcat>() {
            return self.concat(node, op);
        }
        if let Some(op) = op.downcast_ref::<Reduce>() {
            return self.reduce(node, op);
        }
        if let Some(op) = op.downcast_ref::<RmsNorm>() {
            return self.rms_norm(node, op);
        }
        if let Some(op) = op.downcast_ref::<Softmax>() {
            return self.softmax(node, op);
        }
        Err("the plan has no such operator".into())
    }

    // === helpers for all operators ===

    fn source(&mut self, node: &TypedNode) -> Lowered {
        let fact = &node.outputs[0].fact;
        let kind = match fact.datum_type {
            DatumType::F32 => ElementType::F32,
            DatumType::I64 => ElementType::I64,
            DatumType::I32 => ElementType::I32,
            DatumType::Bool => ElementType::Bool,
            other => return Err(format!("inputs of type {other:?} are not taken")),
        };
        let mut axes = Vec::new();
        let mut sizes = Vec::new();
        for dim in fact.shape.iter() {
            axes.push(match dim.to_usize() {
                Ok(length) => {
                    sizes.push(length);
                    Axis::Column(sizes.len() - 1)
                }
                Err(_) if *dim == self.batch => Axis::Batch,
                Err(_) => Axis::Token,
            });
        }
        let rows = if axes.contains(&Axis::Token) { Rows::Token } else { Rows::Batch };
        let value = self.value(rows, sizes.iter().product(), kind);
        self.plan.inputs.push(PlanPort { name: node.name.clone(), value, features: sizes.clone() });
        Ok(Some(TensorForm::Matrix(Matrix { value, axes, sizes }.squeezed())))
    }

    fn output(&mut self, outlet: OutletId, name: String) -> Result<(), String> {
        let fact = self.model.outlet_fact(outlet).map_err(|e| format!("{e:#}"))?.clone();
        if fact.datum_type != DatumType::F32 {
            return Err(format!("the output is of {:?}, and plans make float32", fact.datum_type));
        }
        let matrix = match self.known.get(&outlet) {
            Some(TensorForm::Matrix(matrix)) => matrix.clone(),
            Some(TensorForm::Const(_)) => return Err("the output is the same for every batch".into()),
            _ => return Err("the output is no matrix with a row for each sequence or token".into()),
        };
        if !matrix.is_plain() {
            return Err("the output's axes are turned".into());
        }
        let features = self.features(&fact)?;
        if fact.shape.iter().next() != Some(&self.batch) || features.iter().product::<usize>() != matrix.width() {
            return Err(format!("the output's shape {:?} does not begin with the batch", fact.shape));
        }
        if matrix.rows() == Rows::Token && fact.shape.get(1) != self.token.as_ref() {
            return Err(format!("the output's shape {:?} does not have the tokens behind the batch", fact.shape));
        }
        // an output that is also an input, or a second output, is copied: each output has its own memory
        let is_taken = self.plan.inputs.iter().chain(&self.plan.outputs).any(|port| port.value == matrix.value);
        let value = if is_taken { self.copied(&matrix, &name) } else { matrix.value };
        self.plan.outputs.push(PlanPort { name, value, features });
        Ok(())
    }

    /// The lengths of a tensor's axes after batch and token.
    fn features(&self, fact: &TypedFact) -> Result<Vec<usize>, String> {
        let is_row = |dim: &&TDim| **dim != self.batch && Some(*dim) != self.token.as_ref();
        fact.shape.iter().filter(is_row).map(|dim| dim.to_usize().map_err(|_| format!("an axis of length {dim}"))).collect()
    }

    fn value(&mut self, rows: Rows, width: usize, kind: ElementType) -> ValueId {
        self.plan.values.push(Value { rows, width, kind });
        ValueId(self.plan.values.len() - 1)
    }

    fn weight(&mut self, name: &str, rows: usize, width: usize, data: Vec<f32>) -> WeightId {
        self.plan.weights.push(Weight { name: name.to_owned(), rows, width, data: data.into() });
        WeightId(self.plan.weights.len() - 1)
    }

    /// Adds a node and returns its value.
    fn push(&mut self, name: &str, rows: Rows, width: usize, op: Op) -> ValueId {
        let output = self.value(rows, width, ElementType::F32);
        self.plan.nodes.push(Node { name: name.to_owned(), op, output });
        output
    }

    /// The form of the node's input at `slot`.
    fn input(&self, node: &TypedNode, slot: usize) -> Result<&TensorForm, String> {
        let outlet = node.inputs.get(slot).ok_or_else(|| format!("has no input {slot}"))?;
        self.known.get(outlet).ok_or_else(|| format!("input {slot} is not the first output of its node"))
    }

    /// The matrix at the node's input `slot`.
    fn matrix(&self, node: &TypedNode, slot: usize) -> Result<Matrix, String> {
        match self.input(node, slot)? {
            TensorForm::Matrix(matrix) => Ok(matrix.clone()),
            TensorForm::Const(_) => Err(format!("input {slot} is the same for every batch")),
            TensorForm::ByPosition(..) => Err(format!("input {slot} is cut by position, and no table")),
            TensorForm::Positions { .. } => {
                Err(format!("input {slot} is the tokens' places themselves, as for relative positions"))
            }
            TensorForm::Count { .. } => Err(format!("input {slot} is the number of tokens")),
            TensorForm::Scores(_) => Err(format!("input {slot} has a row and a column for each token")),
        }
    }
}

/// The elements of a tensor as float32.
fn floats(tensor: &Tensor) -> Result<Vec<f32>, String> {
    let tensor = tensor.cast_to_dt(DatumType::F32).map_err(|e| format!("{e:#}"))?;
    let view = tensor.to_plain_array_view::<f32>().map_err(|e| format!("{e:#}"))?;
    Ok(view.iter().copied().collect())
}

/// The dimension in a tensor of one element.
fn dimension(tensor: &Tensor) -> Option<TDim> {
    let tensor = tensor.cast_to_dt(DatumType::TDim).ok()?;
    let view = tensor.to_plain_array_view::<TDim>().ok()?;
    view.iter().next().filter(|_| view.len() == 1).cloned()
}

/// The only element of a tensor, if it has exactly one.
fn scalar(tensor: &Tensor) -> Option<f32> {
    if tensor.len() != 1 {
        return None;
    }
    floats(tensor).ok()?.first().copied()
}
