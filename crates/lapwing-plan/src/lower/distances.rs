//! Functions of the tokens' positions, as rotary embeddings have them, and of the distance between two tokens, as position biases, causal
//! masks and windows are: computed once for every position or distance, before any call.

use std::sync::Arc;

use lapwing_onnx::computed;
use lapwing_onnx::shaped::{Constant, ShapedNode};
use lapwing_onnx::tensor::Datatype;

use super::constant::{cast, integers, of_floats, of_integers, part, permuted, scalar};
use super::form::{Axis, Distances, Pairs, Places, Score, Scores};
use super::layout::Operand;
use super::reshape::rank;
use super::{Lowering, TensorForm};
use crate::plan::{Binary, Instruction, LONGEST, WeightId};

/// The number of distances.
const COUNT: usize = 2 * LONGEST - 1;

/// Operators that compute each element from those at the same place, broadcast, or join them along other axes.
const BY_ELEMENT: &[&str] = &[
    "Abs",
    "Add",
    "And",
    "Cast",
    "Ceil",
    "Clip",
    "Concat",
    "Cos",
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
    "Sin",
    "Sqrt",
    "Sub",
    "Sum",
    "Where",
    "Xor",
];

impl Distances {
    /// The biases of scores, a row for each head or one for all; `None` if it has other axes than the scores.
    fn rows(&self, scores: &Scores) -> Option<Vec<Vec<f32>>> {
        let own = self.clone().of_rank(scores.axes.len());
        let is_turned = match (*scores.axes.get(own.from)?, *scores.axes.get(own.to)?) {
            (Score::Query, Score::Key) => false,
            (Score::Key, Score::Query) => true,
            _ => return None,
        };
        let key = if is_turned { own.from } else { own.to };
        if own.context != scores.is_of_context.then_some(key) {
            return None;
        }
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

/// A constant of which a row is cut for each query and a column for each key, if its elements depend on the distance of the two only, as
/// those of a causal mask do.
pub(crate) fn by_distance(constant: &Constant, query: usize, key: usize, has_past: bool) -> Result<Distances, String> {
    let rank = constant.shape.len();
    let longest = constant.shape[query];
    let is_square = constant.shape[key] == longest && constant.elements() == longest * longest;
    let each = constant.data.len() / constant.elements().max(1);
    let at = |query_at: usize, key_at: usize| {
        let place = if query < key { query_at * longest + key_at } else { key_at * longest + query_at };
        &constant.data[place * each..][..each]
    };
    let is_same = |row: usize, column: usize| at(row, column) == at(row - 1, column - 1);
    if !is_square || longest == 0 || (1..longest).any(|row| !(1..longest).all(|column| is_same(row, column))) {
        return Err("cuts a constant by two positions that is no function of their distance".into());
    }
    let reach = longest as i64 - 1;
    let of = |distance: i64| at(distance.min(0).unsigned_abs() as usize, distance.max(0) as usize);
    let distances = (0..COUNT as i64).map(|place| (place + 1 - LONGEST as i64).clamp(-reach, reach));
    let mut shape = vec![1; rank];
    shape[key] = COUNT;
    let data: Vec<u8> = distances.flat_map(|distance| of(distance).to_vec()).collect();
    let values = Constant { datatype: constant.datatype, shape, data: data.into() };
    Ok(Distances { values: values.into(), from: query, to: key, context: has_past.then_some(key) })
}

/// The positions of the tokens as a table of this type.
pub(crate) fn positions(places: &Places, has_past: bool, kind: Datatype) -> Result<TensorForm, String> {
    let Some((axis, Axis::Token)) = places.positions(has_past) else { return Err("is not the tokens' positions".into()) };
    let mut shape = vec![1; places.rank];
    shape[axis] = LONGEST;
    let numbers = of_integers(shape, (0..LONGEST as i64).map(|at| at + places.from as i64));
    Ok(TensorForm::ByPosition(cast(&numbers, kind)?.into(), axis, 0))
}

impl Lowering<'_> {
    /// Whether sequences have a past.
    pub(crate) fn has_past(&self) -> bool {
        !self.names.past.is_empty()
    }

    /// What an operator makes of functions of the tokens' positions or distances, and of constants; `None` if the node is no such.
    pub(crate) fn of_positions(&self, node: &ShapedNode) -> Result<Option<TensorForm>, String> {
        let is_lookup = node.operator == "Gather" && node.int("axis").unwrap_or(0) == 0;
        if !is_lookup && !BY_ELEMENT.contains(&node.operator.as_str()) {
            return Ok(None);
        }
        let mut forms = Vec::with_capacity(node.inputs.len());
        for input in &node.inputs {
            forms.push(match input.map(|tensor| self.form(tensor)) {
                None => None,
                Some(Some(form @ (TensorForm::Const(_) | TensorForm::Distances(_) | TensorForm::Places(_)))) => Some(form),
                // ids by position are looked up elsewhere
                Some(Some(form @ TensorForm::ByPosition(..))) if !is_lookup => Some(form),
                Some(_) => return Ok(None),
            });
        }
        if let [Some(TensorForm::Places(one)), Some(TensorForm::Places(other))] = &forms[..] {
            return self.between(node, one, other);
        }
        let tables = forms.iter().flatten();
        let rows = tables
            .filter_map(|form| if let TensorForm::ByPosition(all, at, from) = form { Some(all.shape[*at] - from) } else { None });
        let length = rows.min().unwrap_or(COUNT);
        // axes at the front are those that an operand lacks
        let most = if is_lookup { 0 } else { forms.iter().flatten().map(rank).max().unwrap_or(0) };
        let mut along = None;
        let mut inputs = Vec::with_capacity(forms.len());
        for form in forms {
            let (own, input) = match form {
                None => (None, None),
                Some(TensorForm::Const(constant)) => (None, Some(constant)),
                Some(TensorForm::Distances(distances)) => {
                    let distances = distances.of_rank(most);
                    (Some((Some((distances.from, distances.context)), distances.to)), Some(distances.values))
                }
                Some(TensorForm::ByPosition(constant, axis, from)) => {
                    let added = most.saturating_sub(constant.shape.len());
                    let cut = if (from, length) == (0, constant.shape[axis]) {
                        constant
                    } else {
                        part(&constant, axis, from, from + length)?.into()
                    };
                    (Some((None, axis + added)), Some(cut))
                }
                Some(_) => return Ok(None),
            };
            if own.is_some() && along.is_some() && own != along {
                return Err("computes with the positions of tokens along different axes".into());
            }
            along = own.or(along);
            inputs.push(input);
        }
        let Some((from, to)) = along else { return Ok(None) };
        let made =
            computed(node, &inputs)?.and_then(|made| made.into_iter().next()).ok_or("is not computed for each position")?;
        if from.is_some_and(|(from, _)| made.shape.get(from) != Some(&1)) || made.shape.get(to) != Some(&length) {
            return Err("makes something else than a function of the tokens' positions".into());
        }
        Ok(Some(match from {
            Some((from, context)) => TensorForm::Distances(Distances { values: made, from, to, context }),
            None => TensorForm::ByPosition(made, to, 0),
        }))
    }

    /// The difference of the places of two tokens, or how they compare; `None` if the operator does neither.
    fn between(&self, node: &ShapedNode, one: &Places, other: &Places) -> Result<Option<TensorForm>, String> {
        let is_compared = matches!(node.operator.as_str(), "Equal" | "Greater" | "GreaterOrEqual" | "Less" | "LessOrEqual");
        if !is_compared && node.operator != "Sub" {
            return Ok(None);
        }
        let rank = one.rank.max(other.rank);
        let (one, other) = (one.clone().of_rank(rank), other.clone().of_rank(rank));
        let has_past = self.has_past();
        let (Some((to, of_to)), Some((from, of_from))) = (one.positions(has_past), other.positions(has_past)) else {
            return Err("compares places that are not the tokens' positions".into());
        };
        if to == from || (has_past && of_to == of_from) {
            return Err("compares the places of one token, or not those of tokens and context".into());
        }
        let context = has_past.then_some(if of_to == Axis::Context { to } else { from });
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
        Ok(Some(TensorForm::Distances(Distances { values: made, from, to, context })))
    }

    /// `And` of a condition on the keys and one on their distances, or of more of them; `None` if no operand is of distances.
    pub(crate) fn of_pairs(&mut self, node: &ShapedNode) -> Result<Option<Pairs>, String> {
        let (one, other) = match (self.input(node, 0)?, self.input(node, 1)?) {
            (one @ (TensorForm::Pairs(_) | TensorForm::Distances(_)), other) => (one, other),
            (other, one @ (TensorForm::Pairs(_) | TensorForm::Distances(_))) => (one, other),
            _ => return Ok(None),
        };
        // scores take the distances themselves
        if matches!(other, TensorForm::Scores(_)) {
            return Ok(None);
        }
        if node.operator != "And" {
            return Err("computes with the tokens' distances in a way that no mask does".into());
        }
        let rank = rank(&one).max(rank(&other));
        let (keys, distances) = match (one, other) {
            (TensorForm::Distances(distances), TensorForm::Matrix(keys)) => (keys, distances),
            (TensorForm::Pairs(pairs), TensorForm::Matrix(more)) => {
                let both = [Operand::Matrix(pairs.keys), Operand::Matrix(more)];
                let and = |places: &[usize]| vec![Instruction::Binary(Binary::Mul, places[0], places[1])];
                (self.mapped(node, &both, &and)?, pairs.distances)
            }
            (TensorForm::Pairs(pairs), TensorForm::Distances(more)) => {
                let (own, more) = (pairs.distances.of_rank(rank), more.of_rank(rank));
                if (own.from, own.to, own.context) != (more.from, more.to, more.context) {
                    return Err("computes with the positions of tokens along different axes".into());
                }
                let both =
                    computed(node, &[Some(own.values.clone()), Some(more.values)])?.and_then(|made| made.into_iter().next());
                (pairs.keys, Distances { values: both.ok_or("is not computed for each distance")?, ..own })
            }
            _ => return Err("computes with the tokens' distances in a way that no mask does".into()),
        };
        Ok(Some(Pairs { keys, distances, is_sum: false }.of_rank(rank)))
    }

    /// Zero where a condition on keys and distances holds and a number below all scores elsewhere, as a sum; `None` if it is no such
    /// condition.
    pub(crate) fn chosen_pairs(&mut self, node: &ShapedNode) -> Result<Option<Pairs>, String> {
        let form = self.input(node, 0)?;
        let (TensorForm::Pairs(_), TensorForm::Const(zero), TensorForm::Const(lowest)) =
            (&form, self.input(node, 1)?, self.input(node, 2)?)
        else {
            return Ok(None);
        };
        if scalar(&zero) != Some(0.0) {
            return Err("is no mask: it has another number than zero where its condition holds".into());
        }
        match self.chosen(node, form, &lowest, true)? {
            TensorForm::Pairs(pairs) => Ok(Some(pairs)),
            _ => Ok(None),
        }
    }

    /// A condition on distances, and on keys, as what is added to scores: zero where it is `kept`, else a number below all scores.
    pub(crate) fn chosen(
        &mut self,
        node: &ShapedNode,
        form: TensorForm,
        lowest: &Constant,
        kept: bool,
    ) -> Result<TensorForm, String> {
        let number = scalar(lowest).ok_or("has a mask of several numbers")?;
        let added = |distances: Distances| -> Result<Distances, String> {
            let truths = integers(&distances.values)?;
            let numbers: Vec<f32> = truths.into_iter().map(|truth| if (truth != 0) == kept { 0.0 } else { number }).collect();
            Ok(Distances { values: of_floats(distances.values.shape.clone(), &numbers).into(), ..distances })
        };
        Ok(match form {
            TensorForm::Distances(distances) => TensorForm::Distances(added(distances)?),
            // the sum of both is below the lowest number, and so the same as one of them; what is not kept where both hold is no sum
            TensorForm::Pairs(pairs) if !pairs.is_sum && kept && number <= f32::MIN => {
                let code = vec![Instruction::Scalar(0.0), Instruction::Scalar(number), Instruction::Where(0, 1, 2)];
                let keys = self.over(node, &pairs.keys, code);
                TensorForm::Pairs(Pairs { keys, distances: added(pairs.distances)?, is_sum: true })
            }
            _ => return Err("has a mask of keys and distances that is no sum of two".into()),
        })
    }

    /// Scores with a bias by key and one by distance added; `None` if it has other axes.
    pub(crate) fn biased_by_pairs(&mut self, node: &ShapedNode, scores: Scores, pairs: &Pairs) -> Option<Scores> {
        let pairs = pairs.clone().of_rank(scores.axes.len());
        if !scores.is_by_key(&pairs.keys) {
            return None;
        }
        let biased = self.biased(node, scores, pairs.keys.value);
        self.biased_by_distance(node, &biased, &pairs.distances)
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
