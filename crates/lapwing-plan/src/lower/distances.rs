//! Functions of the distance between two tokens, as position biases, causal masks and windows are: computed once for every distance,
//! before any call.

use std::sync::Arc;

use lapwing_onnx::computed;
use lapwing_onnx::shaped::{Constant, ShapedNode};
use lapwing_onnx::tensor::Datatype;

use super::constant::{cast, of_integers, of_rank, permuted};
use super::form::{Places, Score, Scores};
use super::reshape::rank;
use super::{Lowering, TensorForm};
use crate::plan::{LONGEST, WeightId};

/// A tensor whose elements depend on how far a token is behind another one, and on constants.
#[derive(Clone, Debug)]
pub(crate) struct Distances {
    /// The elements. The axis `to` is that of the distances from `1 - LONGEST` to `LONGEST - 1`, the axis `from` is of length one.
    pub(crate) values: Arc<Constant>,
    /// The axis of the token from which the distance counts.
    pub(crate) from: usize,
    /// The axis of the other one.
    pub(crate) to: usize,
}

/// The number of distances.
const COUNT: usize = 2 * LONGEST - 1;

/// Operators that compute each element from those at the same place, broadcast.
const BY_ELEMENT: &[&str] = &[
    "Abs",
    "Add",
    "And",
    "Cast",
    "Ceil",
    "Clip",
    "Div",
    "Equal",
    "Exp",
    "Floor",
    "Greater",
    "GreaterOrEqual",
    "Identity",
    "Less",
    "LessOrEqual",
    "Log",
    "Max",
    "Min",
    "Mul",
    "Neg",
    "Not",
    "Or",
    "Pow",
    "Reciprocal",
    "Sign",
    "Sqrt",
    "Sub",
    "Sum",
    "Where",
    "Xor",
];

impl Distances {
    /// With its axes moved.
    pub(crate) fn moved(self, values: Constant, to: impl Fn(usize) -> usize) -> Self {
        Self { values: values.into(), from: to(self.from), to: to(self.to) }
    }

    /// With axes of length one before its own.
    pub(crate) fn of_rank(self, rank: usize) -> Self {
        let added = rank.saturating_sub(self.values.shape.len());
        let values = of_rank(&self.values, rank);
        self.moved(values, |axis| axis + added)
    }

    /// The biases of scores, a row for each head or one for all; `None` if it has other axes than the scores.
    fn rows(&self, scores: &Scores) -> Option<Vec<Vec<f32>>> {
        let own = self.clone().of_rank(scores.axes.len());
        let is_turned = match (*scores.axes.get(own.from)?, *scores.axes.get(own.to)?) {
            (Score::Query, Score::Key) => false,
            (Score::Key, Score::Query) => true,
            _ => return None,
        };
        let head = scores.axes.iter().position(|axis| *axis == Score::Head);
        let fits = |(at, length): (usize, &usize)| at == own.to || *length == 1 || (Some(at) == head && *length == scores.heads);
        if own.values.shape.len() != scores.axes.len() || !own.values.shape.iter().enumerate().all(fits) {
            return None;
        }
        let mut order: Vec<usize> = (0..scores.axes.len()).filter(|at| *at != own.to).collect();
        order.push(own.to);
        let numbers = super::constant::floats(&permuted(&own.values, &order).ok()?).ok()?;
        let row = |row: &[f32]| if is_turned { row.iter().rev().copied().collect() } else { row.to_vec() };
        Some(numbers.chunks_exact(COUNT).map(row).collect())
    }
}

impl Lowering<'_> {
    /// The difference of two tokens' places, or how they compare; or any function of such. `None` if the node is no such.
    pub(crate) fn of_distances(&self, node: &ShapedNode) -> Result<Option<TensorForm>, String> {
        let is_lookup = node.operator == "Gather" && node.int("axis").unwrap_or(0) == 0;
        if !is_lookup && !BY_ELEMENT.contains(&node.operator.as_str()) {
            return Ok(None);
        }
        let mut forms = Vec::with_capacity(node.inputs.len());
        for input in &node.inputs {
            forms.push(match input.map(|tensor| self.form(tensor)) {
                None => None,
                Some(Some(form @ (TensorForm::Const(_) | TensorForm::Distances(_) | TensorForm::Places(_)))) => Some(form),
                Some(_) => return Ok(None),
            });
        }
        if let [Some(TensorForm::Places(one)), Some(TensorForm::Places(other))] = &forms[..] {
            return self.between(node, one, other);
        }
        // axes at the front are those that an operand lacks
        let most = if is_lookup { 0 } else { forms.iter().flatten().map(rank).max().unwrap_or(0) };
        let mut axes = None;
        let mut inputs = Vec::with_capacity(forms.len());
        for form in forms {
            inputs.push(match form {
                None => None,
                Some(TensorForm::Const(constant)) => Some(constant),
                Some(TensorForm::Distances(distances)) => {
                    let own = distances.of_rank(most);
                    if axes.is_some_and(|known| known != (own.from, own.to)) {
                        return Err("computes with the distances of tokens along other axes".into());
                    }
                    axes = Some((own.from, own.to));
                    Some(own.values)
                }
                Some(_) => return Ok(None),
            });
        }
        let Some((from, to)) = axes else { return Ok(None) };
        let made =
            computed(node, &inputs)?.and_then(|made| made.into_iter().next()).ok_or("is not computed for each distance")?;
        if made.shape.get(from) != Some(&1) || made.shape.get(to) != Some(&COUNT) {
            return Err("makes something else than a function of the distance of tokens".into());
        }
        Ok(Some(TensorForm::Distances(Distances { values: made, from, to })))
    }

    /// The difference of the places of two tokens, or how they compare; `None` if the operator does neither.
    fn between(&self, node: &ShapedNode, one: &Places, other: &Places) -> Result<Option<TensorForm>, String> {
        let is_compared = matches!(node.operator.as_str(), "Equal" | "Greater" | "GreaterOrEqual" | "Less" | "LessOrEqual");
        if !is_compared && node.operator != "Sub" {
            return Ok(None);
        }
        let rank = one.rank.max(other.rank);
        let (one, other) = (one.clone().of_rank(rank), other.clone().of_rank(rank));
        let (Some(to), Some(from)) = (one.positions(), other.positions()) else {
            return Err("compares places that are not the tokens' positions".into());
        };
        if to == from {
            return Err("compares the places of one token".into());
        }
        let kind = Self::tensor(node, 0).and_then(|tensor| self.graph.tensor(tensor).datatype).unwrap_or(Datatype::Int64);
        let first = 1 - LONGEST as i64 + one.from as i64 - other.from as i64;
        let mut shape = vec![1; rank];
        shape[to] = COUNT;
        let values = cast(&of_integers(shape, (0..COUNT as i64).map(|at| at + first)), kind)?;
        let mut made = Arc::new(values);
        if is_compared {
            let zero = cast(&of_integers(vec![1; rank], [0]), kind)?;
            let result = computed(node, &[Some(made), Some(zero.into())])?.and_then(|made| made.into_iter().next());
            made = result.ok_or("is not computed for each distance")?;
        }
        Ok(Some(TensorForm::Distances(Distances { values: made, from, to })))
    }

    /// Scores with a bias by distance added; `None` if it has other axes.
    pub(crate) fn biased_by_distance(&mut self, node: &ShapedNode, scores: &Scores, more: &Distances) -> Option<Scores> {
        let mut rows = more.rows(scores)?;
        if let Some(known) = scores.by_distance {
            let known = self.plan.weight(known);
            let spread = known.rows.max(rows.len());
            let reach = (known.width / 2) as i64;
            let at = |head: usize, place: usize| {
                let distance = (place as i64 + 1 - LONGEST as i64).clamp(-reach, reach) + reach;
                known.data[head % known.rows * known.width + distance as usize]
            };
            rows = (0..spread)
                .map(|head| rows[head % rows.len()].iter().enumerate().map(|(place, x)| x + at(head, place)).collect())
                .collect();
        }
        Some(Scores { by_distance: Some(self.distance_table(&node.name, &rows)), ..scores.clone() })
    }

    /// A table of biases, as far as they differ.
    fn distance_table(&mut self, name: &str, rows: &[Vec<f32>]) -> WeightId {
        let is_end = |at: usize| {
            let far = |row: &Vec<f32>| {
                row[at].to_bits() == row[0].to_bits() && row[COUNT - 1 - at].to_bits() == row[COUNT - 1].to_bits()
            };
            rows.iter().all(far)
        };
        // the table ends with the first distance that has the value of all those further away
        let last = (0..LONGEST).take_while(|at| is_end(*at)).last().unwrap_or(0);
        let width = COUNT - 2 * last;
        let data = rows.iter().flat_map(|row| &row[last..COUNT - last]).copied().collect();
        self.weight(name, rows.len(), width, data)
    }

    /// The same biases, each multiplied by a factor.
    pub(crate) fn times_by_distance(&mut self, node: &ShapedNode, table: WeightId, factor: f32) -> WeightId {
        let known = self.plan.weight(table).clone();
        self.weight(&node.name, known.rows, known.width, known.data.iter().map(|x| x * factor).collect())
    }
}
