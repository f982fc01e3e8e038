//! The inputs and outputs of the model: what the names of their axes mean, and the values that they are.

use std::collections::HashMap;

use lapwing_onnx::UnsupportedNode;
use lapwing_onnx::shaped::{Length, ShapedGraph, TensorId};
use lapwing_onnx::tensor::Datatype;

use super::extent::{AxisNames, Extent};
use super::form::{Axis, Matrix};
use super::{Lowering, TensorForm, refused_model, refused_port};
use crate::plan::{ElementType, Plan, PlanPort, Rows, ValueId};

impl<'m> Lowering<'m> {
    /// The names of batch and tokens: each open first and second axis of an input. [`tokens::check`] sees to it that they are the same.
    /// An open third axis of four is that of the past; the second axes of other inputs are then those of the tokens where they have the
    /// name of the first of them, and of the context elsewhere.
    pub(crate) fn new(graph: &'m ShapedGraph) -> Result<Self, UnsupportedNode> {
        let mut names = AxisNames::default();
        let is_cache = |shape: &[Length]| matches!(shape, [Length::Var(_), Length::Value(_), Length::Var(_), Length::Value(_)]);
        let has_past = graph.inputs.iter().any(|input| graph.tensor(*input).shape.as_deref().is_some_and(is_cache));
        for input in &graph.inputs {
            let fails = |reason: String| Err(refused_port(graph, *input, "input", reason));
            let Some(shape) = &graph.tensor(*input).shape else { return fails("its number of axes is not known".into()) };
            for (axis, length) in shape.iter().enumerate() {
                let is_past = axis == 2 && is_cache(shape);
                let name = match (axis, length) {
                    (0, Length::Value(length)) => {
                        return fails(format!("axis 0 has the fixed length {length}; it must be the batch's"));
                    }
                    (_, Length::Value(_)) => continue,
                    (0 | 1, Length::Var(symbol)) => symbol.name.clone(),
                    (_, Length::Var(symbol)) if is_past => symbol.name.clone(),
                    // a sum of past and tokens, as some files have it
                    (1, _) if has_past => continue,
                    _ => return fails(format!("axis {axis} has no fixed length")),
                };
                let is_token = !has_past || names.token.first().is_none_or(|first| *first == name);
                let names = match axis {
                    0 => &mut names.batch,
                    _ if is_past => &mut names.past,
                    _ if is_token => &mut names.token,
                    _ => &mut names.context,
                };
                if !names.contains(&name) {
                    names.push(name);
                }
            }
        }
        let all = [&names.batch, &names.token, &names.past, &names.context];
        let is_again = |at: usize, name: &&String| all[..at].iter().any(|before| before.contains(name));
        if let Some(name) = (1..all.len()).find_map(|at| all[at].iter().find(|name| is_again(at, name))) {
            return Err(refused_model(format!("batch and tokens have the same length {name}")));
        }
        if names.batch.is_empty() {
            return Err(refused_model("no input has a batch axis".into()));
        }
        Ok(Self { graph, plan: Plan::default(), known: HashMap::new(), names, tables: Vec::new() })
    }

    /// An input of the model.
    pub(crate) fn source(&mut self, input: TensorId) -> Result<Matrix, String> {
        let fact = self.graph.tensor(input);
        let kind = match fact.datatype {
            Some(Datatype::Fp32) => ElementType::F32,
            Some(Datatype::Int64) => ElementType::I64,
            Some(Datatype::Int32) => ElementType::I32,
            Some(Datatype::Bool) => ElementType::Bool,
            other => return Err(format!("inputs of type {} are not taken", other.map_or("unknown", Datatype::name))),
        };
        let (mut axes, mut sizes) = (Vec::new(), Vec::new());
        for length in fact.shape.iter().flatten() {
            axes.push(match self.names.extent(length) {
                Extent::Fixed(length) => {
                    sizes.push(length);
                    Axis::Column(sizes.len() - 1)
                }
                Extent::Batch => Axis::Batch,
                Extent::Token => Axis::Token,
                Extent::Past => Axis::Past,
                Extent::Context => Axis::Context,
                Extent::Other | Extent::AllTokens | Extent::BatchTimes(_) => {
                    return Err(format!("an axis has the length {length}"));
                }
            });
        }
        let made = Matrix { value: ValueId(self.plan.values.len()), axes, sizes: sizes.clone() };
        if made.is_by_head() && (made.heads_and_columns().is_none() || kind != ElementType::F32) {
            return Err("has rows of the past or the context that are neither keys nor values, nor a mask".into());
        }
        let value = self.value(made.rows(), made.width(), kind);
        self.plan.inputs.push(PlanPort { name: fact.name.clone(), value, features: sizes });
        Ok(made.squeezed())
    }

    /// An output of the model.
    pub(crate) fn output(&mut self, output: TensorId) -> Result<(), String> {
        let fact = self.graph.tensor(output);
        let matrix = match self.form(output) {
            Some(TensorForm::Matrix(matrix)) => matrix,
            Some(TensorForm::Const(_)) => return Err("the output is the same for every batch".into()),
            _ => return Err("the output is no matrix with a row for each sequence or token".into()),
        };
        if fact.datatype != Some(Datatype::Fp32) {
            let kind = fact.datatype.map_or("an unknown type", Datatype::name);
            return Err(format!("the output is of {kind}, and plans make float32"));
        }
        let features = features(&matrix)?;
        // an output that is also an input, or a second output, is copied: each output has its own memory
        let is_taken = self.plan.inputs.iter().chain(&self.plan.outputs).any(|port| port.value == matrix.value);
        let value = if is_taken { self.copied(&matrix, &fact.name) } else { matrix.value };
        self.plan.outputs.push(PlanPort { name: fact.name.clone(), value, features });
        Ok(())
    }
}

/// The lengths of an output's axes behind those of batch and tokens, or of heads and their columns.
fn features(matrix: &Matrix) -> Result<Vec<usize>, String> {
    if matrix.is_by_head() {
        return matrix.heads_and_columns().map(Vec::from).ok_or_else(|| "the output's axes are turned".to_owned());
    }
    if !matrix.is_plain() {
        return Err("the output's axes are turned".into());
    }
    let rows = match matrix.rows() {
        Rows::Batch => &[Axis::Batch][..],
        Rows::Token => &[Axis::Batch, Axis::Token],
        Rows::Past => &[Axis::Batch, Axis::Past],
        Rows::Context => &[Axis::Batch, Axis::Context],
    };
    if !matrix.axes.starts_with(rows) {
        return Err("the output's axes do not begin with the batch and the tokens".into());
    }
    let length = |axis: &Axis| match axis {
        Axis::One => Ok(1),
        Axis::Column(place) => Ok(matrix.sizes[*place]),
        other => Err(format!("the output has an axis that is {other:?}")),
    };
    matrix.axes[rows.len()..].iter().map(length).collect()
}
