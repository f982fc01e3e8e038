//! Lowers a model to a plan. The graph is walked once, and every tensor is interpreted as a matrix with a row for each sequence or
//! token. A tensor that has no such form makes the model unsupported, and the error names its node. Names and sizes are never used to
//! guess what a model is.

mod activations;
mod attention;
mod axes;
mod constant;
mod distances;
mod extent;
mod form;
mod layout;
mod linear;
mod lookups;
mod maps;
mod merged;
mod norms;
mod ports;
mod reduce;
mod reshape;
mod rotation;
mod tokens;

use std::collections::HashMap;
use std::sync::Arc;

use lapwing_onnx::UnsupportedNode;
use lapwing_onnx::shaped::{Constant, KnownValue, ShapedGraph, ShapedNode, TensorId};
use lapwing_onnx::tensor::Datatype;

use self::extent::{AxisNames, Extent, Values, held};
use self::form::{Axis, Distances, Matrix, Pairs, Places, Rotation, Scores};
use crate::plan::{ElementType, Node, Op, Plan, Rows, Value, ValueId, Weight, WeightId};

/// The form of a tensor of the model.
#[derive(Clone, Debug)]
enum TensorForm {
    /// A constant, the same for every batch. Where the model spreads it over batch or tokens, its axis is of length one.
    Const(Arc<Constant>),
    /// A value of the plan.
    Matrix(Matrix),
    /// A constant that is sliced along the tokens: the tensor, the axis, and the first index.
    ByPosition(Arc<Constant>, usize, usize),
    /// A function of the distance between two tokens.
    Distances(Distances),
    /// What depends on a key and on its distance from the query.
    Pairs(Pairs),
    /// A part of a rotation of queries or keys.
    Rotation(Rotation),
    /// Whole numbers that say where something lies.
    Places(Places),
    /// Several of them, one behind the other along the last axis.
    Tuple(Vec<Places>),
    /// A matrix of one column with batch and tokens merged into one axis, before this many axes of length one.
    Flat(Matrix, usize),
    /// The number of tokens of the sequence, of its past or its context, as the axis says; or the reciprocal of the first.
    Count { of: Axis, is_reciprocal: bool },
    /// Scores inside an attention.
    Scores(Scores),
    /// Which of these scores are no numbers.
    NaNs(Scores),
}

/// Lowers a graph. Nodes that no output depends on are left out. A plan's numbers are of single precision, so its inputs and outputs are
/// where the graph's are of half.
///
/// # Errors
///
/// [`UnsupportedNode`] names the first unsupported node.
pub fn lower(graph: &ShapedGraph) -> Result<Plan, UnsupportedNode> {
    let single = graph.in_single_precision();
    let graph = single.as_ref().unwrap_or(graph);
    let mut lowering = Lowering::new(graph)?;
    // in the model's order, not in that of their first use
    for input in &graph.inputs {
        let matrix = lowering.source(*input).map_err(|reason| refused_port(graph, *input, "input", reason))?;
        lowering.known.insert(*input, TensorForm::Matrix(matrix));
    }
    let is_needed = needed(graph);
    for (node, _) in graph.nodes.iter().zip(is_needed).filter(|(_, is_needed)| *is_needed) {
        let made = lowering.node(node).map_err(|reason| refused(node, reason))?;
        for (output, form) in node.outputs.iter().zip(made) {
            if let Some(output) = output {
                lowering.known.insert(*output, form);
            }
        }
    }
    for output in &graph.outputs {
        lowering.output(*output).map_err(|reason| match maker(graph, *output) {
            Some(node) => refused(node, reason),
            None => refused_port(graph, *output, "output", reason),
        })?;
    }
    lowering.check_lengths()?;
    Ok(lowering.plan)
}

/// Which nodes an output depends on: not those whose results are known without them.
fn needed(graph: &ShapedGraph) -> Vec<bool> {
    let is_open = |tensor: TensorId| matches!(graph.tensor(tensor).value, KnownValue::Unknown);
    let mut tensors = vec![false; graph.tensors.len()];
    graph.outputs.iter().for_each(|output| tensors[output.0] = true);
    let mut needed = vec![false; graph.nodes.len()];
    for (at, node) in graph.nodes.iter().enumerate().rev() {
        if node.outputs.iter().flatten().any(|output| tensors[output.0] && is_open(*output)) {
            needed[at] = true;
            node.inputs.iter().flatten().for_each(|input| tensors[input.0] = true);
        }
    }
    needed
}

fn maker(graph: &ShapedGraph, tensor: TensorId) -> Option<&ShapedNode> {
    graph.nodes.iter().find(|node| node.outputs.contains(&Some(tensor)))
}

fn refused(node: &ShapedNode, reason: String) -> UnsupportedNode {
    let operator = if matches!(node.domain.as_str(), "" | "ai.onnx") {
        node.operator.clone()
    } else {
        format!("{}.{}", node.domain, node.operator)
    };
    UnsupportedNode { node: node.name.clone(), operator, reason }
}

fn refused_port(graph: &ShapedGraph, tensor: TensorId, kind: &str, reason: String) -> UnsupportedNode {
    UnsupportedNode { node: graph.tensor(tensor).name.clone(), operator: kind.to_owned(), reason }
}

/// The state of one walk over the graph.
struct Lowering<'m> {
    graph: &'m ShapedGraph,
    plan: Plan,
    known: HashMap<TensorId, TensorForm>,
    names: AxisNames,
    /// Tables by position that are weights already, by their elements.
    tables: Vec<(bytes::Bytes, WeightId)>,
}

/// The forms of a node's results, or why the node is not supported.
type Lowered = Result<Vec<TensorForm>, String>;

impl<'m> Lowering<'m> {
    fn node(&mut self, node: &ShapedNode) -> Lowered {
        if node.domain == "com.microsoft" {
            return match node.operator.as_str() {
                "SkipLayerNormalization" => self.skip_layer_norm(node),
                "Gelu" | "FastGelu" | "BiasGelu" => self.gelu_of_sum(node),
                _ => Err("the plan has no such operator".into()),
            };
        }
        if !matches!(node.domain.as_str(), "" | "ai.onnx") {
            return Err("the plan has no such operator".into());
        }
        if let Some(form) = self.of_positions(node)? {
            return Ok(vec![form]);
        }
        match node.operator.as_str() {
            "MatMul" => self.matmul(node),
            "Gemm" => self.gemm(node),
            "Einsum" => self.einsum(node),
            "Reshape" | "Flatten" => self.reshape(node),
            "Squeeze" => self.squeeze(node),
            "Unsqueeze" => self.unsqueeze(node),
            "Transpose" => self.transpose(node),
            "Expand" => self.expand(node),
            "ConstantOfShape" => self.filled(node),
            "Slice" => self.slice(node),
            "Split" => self.split(node),
            "Concat" => self.concat(node),
            "Identity" | "Dropout" => Ok(vec![self.input(node, 0)?]),
            "Gather" => self.gather(node),
            "GatherElements" => self.gather_elements(node),
            "IsNaN" => self.is_nan(node),
            "GatherND" => self.gather_nd(node),
            "CumSum" => self.running(node),
            "Range" => self.range(node),
            "Cast" => self.cast(node),
            "Where" => self.choose(node),
            "Softmax" => self.softmax(node),
            "LayerNormalization" => self.layer_norm(node),
            "RMSNormalization" | "SimplifiedLayerNormalization" => self.rms_norm(node),
            "Clip" => self.clip(node),
            "PRelu" => self.parametric(node),
            "BatchNormalization" => self.batch_norm(node),
            operator if operator.starts_with("Reduce") => self.reduce(node),
            _ => self.elementwise(node),
        }
    }

    // === helpers for all operators ===

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

    /// The form of a tensor; `None` if it has none.
    fn form(&self, tensor: TensorId) -> Option<TensorForm> {
        if let Some(form) = self.known.get(&tensor) {
            return Some(form.clone());
        }
        match &self.graph.tensor(tensor).value {
            KnownValue::Constant(constant) => Some(TensorForm::Const(constant.clone())),
            KnownValue::Lengths(lengths) => match self.names.extent(lengths.first().filter(|_| lengths.len() == 1)?) {
                Extent::Token => Some(TensorForm::Count { of: Axis::Token, is_reciprocal: false }),
                Extent::Past => Some(TensorForm::Count { of: Axis::Past, is_reciprocal: false }),
                Extent::Context => Some(TensorForm::Count { of: Axis::Context, is_reciprocal: false }),
                Extent::Fixed(length) => Some(TensorForm::Const(constant::of_integer(length as i64).into())),
                _ => None,
            },
            KnownValue::Unknown | KnownValue::Weight => None,
        }
    }

    /// The tensor at the node's input `slot`; `None` if it is left out.
    fn tensor(node: &ShapedNode, slot: usize) -> Option<TensorId> {
        node.inputs.get(slot).copied().flatten()
    }

    /// The form of the node's input at `slot`.
    fn input(&self, node: &ShapedNode, slot: usize) -> Result<TensorForm, String> {
        let tensor = Self::tensor(node, slot).ok_or_else(|| format!("has no input {slot}"))?;
        self.form(tensor).ok_or_else(|| format!("input {slot}, {}, is no matrix", self.graph.tensor(tensor).name))
    }

    /// The matrix at the node's input `slot`.
    fn matrix(&self, node: &ShapedNode, slot: usize) -> Result<Matrix, String> {
        match self.input(node, slot)? {
            TensorForm::Matrix(matrix) if matrix.is_by_head() => {
                Err(format!("input {slot} is keys or values of the past, which only attention reads"))
            }
            TensorForm::Matrix(matrix) => Ok(matrix),
            TensorForm::Const(_) => Err(format!("input {slot} is the same for every batch")),
            TensorForm::ByPosition(..) => Err(format!("input {slot} is cut by position, and no table")),
            TensorForm::Places(_) | TensorForm::Tuple(_) => {
                Err(format!("input {slot} is the tokens' places themselves, as for relative positions"))
            }
            TensorForm::Distances(_) | TensorForm::Pairs(_) => Err(format!("input {slot} depends on the tokens' distances")),
            TensorForm::Rotation(_) => Err(format!("input {slot} is a part of columns, and no rotation")),
            TensorForm::Flat(..) => Err(format!("input {slot} has batch and tokens merged into one axis")),
            TensorForm::Count { .. } => Err(format!("input {slot} is the number of tokens")),
            TensorForm::Scores(_) | TensorForm::NaNs(_) => Err(format!("input {slot} has a row and a column for each token")),
        }
    }

    /// The constant at the node's input `slot`; `None` if it is left out.
    fn constant(&self, node: &ShapedNode, slot: usize) -> Result<Option<Arc<Constant>>, String> {
        match Self::tensor(node, slot) {
            None => Ok(None),
            Some(tensor) => match self.form(tensor) {
                Some(TensorForm::Const(constant)) => Ok(Some(constant)),
                _ => Err(format!("input {slot}, {}, is no constant", self.graph.tensor(tensor).name)),
            },
        }
    }

    /// Whole numbers from an attribute, or from the constant at the input that took its place.
    fn numbers(&self, node: &ShapedNode, attribute: &str, slot: usize) -> Result<Option<Vec<i64>>, String> {
        if let Some(numbers) = node.ints(attribute) {
            return Ok(Some(numbers.to_vec()));
        }
        self.constant(node, slot)?.map(|constant| constant::integers(&constant)).transpose()
    }

    /// The lengths that the input at `slot` states, at the points at which lengths are compared; `None` where one is unknown.
    fn lengths(&self, node: &ShapedNode, slot: usize) -> Result<Vec<Option<Values>>, String> {
        let tensor = Self::tensor(node, slot).ok_or_else(|| format!("has no input {slot}"))?;
        match &self.graph.tensor(tensor).value {
            KnownValue::Constant(constant) => {
                let numbers = constant::integers(constant)?;
                Ok(numbers.into_iter().map(|number| Some([held(number); 3])).collect())
            }
            KnownValue::Lengths(lengths) => Ok(lengths.iter().map(|length| self.names.values(length)).collect()),
            KnownValue::Unknown | KnownValue::Weight => {
                Err(format!("input {slot}, {}, depends on a call's values", self.graph.tensor(tensor).name))
            }
        }
    }

    /// Whether the elements of the node's input at `slot` are whole numbers.
    fn is_whole(&self, node: &ShapedNode, slot: usize) -> bool {
        let kind = Self::tensor(node, slot).and_then(|tensor| self.graph.tensor(tensor).datatype);
        kind.is_some_and(|kind| {
            !matches!(kind, Datatype::Fp16 | Datatype::Bf16 | Datatype::Fp32 | Datatype::Fp64 | Datatype::Bool)
        })
    }
}

fn refused_model(reason: String) -> UnsupportedNode {
    UnsupportedNode { node: "model".into(), operator: "graph".into(), reason }
}

/// An axis as an index; axes below zero count from the end.
fn axis_of(axis: i64, rank: usize) -> Result<usize, String> {
    let from_end = if axis < 0 { axis + rank as i64 } else { axis };
    usize::try_from(from_end).ok().filter(|axis| *axis < rank).ok_or_else(|| format!("axis {axis} is none of {rank}"))
}
