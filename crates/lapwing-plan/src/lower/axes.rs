//! Operators that turn axes, spread tensors, or take and join parts of them, without arithmetic.

use std::sync::Arc;

use lapwing_onnx::shaped::{Constant, ShapedNode};
use lapwing_onnx::tensor::Datatype;

use super::constant::{of_floats, of_integer, of_rank, part, permuted, with_shape};
use super::distances::by_distance;
use super::extent::{Extent, Values, extent, held, past};
use super::form::{Axis, Matrix, Place, Places, Rotation};
use super::reshape::rank;
use super::{Lowered, Lowering, TensorForm, axis_of};
use crate::plan::{Columns, ElementType, Fold, Instruction, Op, Program, Rows, ValueId};

impl Lowering<'_> {
    pub(crate) fn transpose(&mut self, node: &ShapedNode) -> Lowered {
        let form = self.input(node, 0)?;
        let rank = rank(&form);
        let order = match node.ints("perm") {
            Some(order) => order.iter().map(|axis| axis_of(*axis, rank)).collect::<Result<Vec<_>, _>>()?,
            None => (0..rank).rev().collect(),
        };
        if order.len() != rank {
            return Err(format!("turns {} axes of {rank}", order.len()));
        }
        let to = |axis: usize| order.iter().position(|from| *from == axis).unwrap_or(axis);
        Ok(vec![match form {
            TensorForm::Matrix(matrix) => {
                TensorForm::Matrix(matrix.with_axes(order.iter().map(|axis| matrix.axes[*axis]).collect()))
            }
            TensorForm::Const(constant) => TensorForm::Const(permuted(&constant, &order)?.into()),
            TensorForm::ByPosition(constant, axis, from) => {
                TensorForm::ByPosition(permuted(&constant, &order)?.into(), to(axis), from)
            }
            TensorForm::Places(places) => TensorForm::Places(places.moved(rank, to)),
            TensorForm::Distances(distances) => {
                let values = permuted(&distances.values, &order)?;
                TensorForm::Distances(distances.moved(values, to))
            }
            TensorForm::Scores(mut scores) => {
                scores.axes = order.iter().map(|axis| scores.axes[*axis]).collect();
                TensorForm::Scores(scores)
            }
            count @ TensorForm::Count { .. } => count,
            TensorForm::Flat(..)
            | TensorForm::Tuple(_)
            | TensorForm::NaNs(_)
            | TensorForm::Pairs(_)
            | TensorForm::Rotation(_) => {
                return Err("turns the axes of merged tokens".into());
            }
        }])
    }

    /// A slice of an axis: of columns, of positions, or the first token.
    pub(crate) fn slice(&mut self, node: &ShapedNode) -> Lowered {
        let mut form = self.input(node, 0)?;
        let rank = rank(&form);
        let ends = |attribute: &str, slot: usize| -> Result<Vec<Option<Values>>, String> {
            match node.ints(attribute) {
                Some(numbers) => Ok(numbers.iter().map(|number| Some([held(*number); 3])).collect()),
                None => self.lengths(node, slot),
            }
        };
        let (starts, stops) = (ends("starts", 1)?, ends("ends", 2)?);
        let axes = match self.numbers(node, "axes", 3)? {
            Some(axes) => axes.into_iter().map(|axis| axis_of(axis, rank)).collect::<Result<Vec<_>, _>>()?,
            None => (0..starts.len()).collect(),
        };
        if self
            .constant(node, 4)?
            .is_some_and(|steps| super::constant::integers(&steps).map_or(true, |s| s.iter().any(|s| *s != 1)))
        {
            return Err("takes every other element, or backwards".into());
        }
        if starts.len() != axes.len() || stops.len() != axes.len() {
            return Err("has as many axes as neither starts nor ends".into());
        }
        for (at, axis) in axes.into_iter().enumerate() {
            let (Some(start), Some(stop)) = (starts[at], stops[at]) else {
                return Err("cuts at lengths that are not known".into());
            };
            form = self.cut(node, form, axis, start, stop)?;
        }
        Ok(vec![form])
    }

    fn cut(
        &mut self,
        node: &ShapedNode,
        form: TensorForm,
        axis: usize,
        start: Values,
        stop: Values,
    ) -> Result<TensorForm, String> {
        let fixed = |values: Values| values.iter().all(|value| *value == values[0]).then_some(values[0]);
        if let (TensorForm::Const(constant), None) = (&form, fixed(stop)) {
            return self.cut_by_position(constant, axis, start, stop);
        }
        let begin = fixed(start).ok_or("begins at a length of the call")?;
        // what an end amounts to on an axis of a fixed length
        let within = |length: usize| -> Option<(usize, usize)> {
            let place = |at: i32| {
                let from_end = if at < 0 { i64::from(at) + length as i64 } else { i64::from(at) };
                usize::try_from(from_end.max(0)).unwrap_or(0).min(length)
            };
            let (from, to) = (place(begin), place(fixed(stop)?));
            Some((from, to.max(from)))
        };
        let is_to_the_end = stop[0] == i32::MAX;
        Ok(match form {
            TensorForm::Const(constant) => {
                let (from, to) = within(constant.shape[axis]).ok_or("cuts a constant at a length of the call")?;
                TensorForm::Const(part(&constant, axis, from, to)?.into())
            }
            TensorForm::ByPosition(constant, query, 0)
                if begin == 0 && query != axis && is_whole(stop, &|of| (of == Axis::Context) == self.has_past()) =>
            {
                TensorForm::Distances(by_distance(&constant, query, axis, self.has_past())?)
            }
            TensorForm::Matrix(matrix) => match matrix.axes[axis] {
                Axis::Column(column) => {
                    let (from, to) = within(matrix.sizes[column]).ok_or("cuts columns at a length of the call")?;
                    if to == from {
                        return Err("takes no columns".into());
                    }
                    self.part_of_columns(node, &matrix, column, from, to)?
                }
                Axis::Batch | Axis::Token | Axis::One if begin == 0 && is_to_the_end => TensorForm::Matrix(matrix),
                Axis::Token if begin == 0 && extent(stop) == Extent::Token => TensorForm::Matrix(matrix),
                Axis::Context if begin == 0 && (is_to_the_end || extent(stop) == Extent::Context) => TensorForm::Matrix(matrix),
                Axis::Batch if begin == 0 && extent(stop) == Extent::Batch => TensorForm::Matrix(matrix),
                Axis::Token if begin == 0 && stop == [1; 3] => TensorForm::Matrix(self.first_token(node, &matrix)),
                Axis::One if within(1) == Some((0, 1)) => TensorForm::Matrix(matrix),
                // all of it is taken, however long it is
                Axis::Spread(_) if begin == 0 => TensorForm::Matrix(matrix),
                other => return Err(format!("cuts {begin}..{} out of {other:?}", stop[0])),
            },
            form @ (TensorForm::ByPosition(..) | TensorForm::Places(_) | TensorForm::Distances(_))
                if begin == 0 && is_to_the_end =>
            {
                form
            }
            TensorForm::Places(places) if begin == 0 && is_whole(stop, &|of| places.counts_along(axis, of)) => {
                TensorForm::Places(places)
            }
            TensorForm::Distances(distances)
                if begin == 0 && is_whole(stop, &|of| (of == Axis::Context) == (distances.context == Some(axis))) =>
            {
                TensorForm::Distances(distances)
            }
            _ => return Err("slices something that is not a matrix".into()),
        })
    }

    /// A constant cut to the tokens' positions, which begin behind the past.
    fn cut_by_position(&self, constant: &Arc<Constant>, axis: usize, start: Values, stop: Values) -> Result<TensorForm, String> {
        let past = if self.has_past() { past() } else { [0; 3] };
        let first = [0, 1, 2].map(|at| start[at] - past[at]);
        let (Extent::Fixed(from), Extent::Token) = (extent(first), extent([0, 1, 2].map(|at| stop[at] - start[at]))) else {
            return Err("cuts a constant at lengths that are not those of the tokens".into());
        };
        Ok(TensorForm::ByPosition(Arc::clone(constant), axis, from))
    }

    pub(crate) fn first_token(&mut self, node: &ShapedNode, matrix: &Matrix) -> Matrix {
        let x = self.float(node, matrix);
        let op = Op::Pool { x, fold: Fold::First };
        let value = self.push(&node.name, Rows::Batch, matrix.width(), op);
        let axes = matrix.axes.iter().map(|axis| if *axis == Axis::Token { Axis::One } else { *axis }).collect();
        Matrix { value, axes, sizes: matrix.sizes.clone() }
    }

    /// Consecutive columns, or a half of each head's, which a rotation takes.
    fn part_of_columns(
        &mut self,
        node: &ShapedNode,
        matrix: &Matrix,
        column: usize,
        from: usize,
        to: usize,
    ) -> Result<TensorForm, String> {
        match Rotation::half(matrix, column, from, to) {
            Some(half) if !matrix.is_by_head() => Ok(half),
            _ => self.columns(node, matrix, column, from, to).map(TensorForm::Matrix),
        }
    }

    pub(crate) fn columns(
        &mut self,
        node: &ShapedNode,
        matrix: &Matrix,
        column: usize,
        from: usize,
        to: usize,
    ) -> Result<Matrix, String> {
        if from == 0 && to == matrix.sizes[column] {
            return Ok(matrix.clone());
        }
        if column > 0 || matrix.is_by_head() {
            return Err("slices columns that are not contiguous".into());
        }
        let each: usize = matrix.sizes[1..].iter().product();
        let value = self.float(node, matrix);
        let op = Op::Slice(Columns { value, from: from * each });
        let value = self.push(&node.name, matrix.rows(), (to - from) * each, op);
        let mut sizes = matrix.sizes.clone();
        sizes[0] = to - from;
        Ok(Matrix { value, axes: matrix.axes.clone(), sizes }.squeezed())
    }

    /// Parts of columns, one behind the other.
    pub(crate) fn split(&mut self, node: &ShapedNode) -> Lowered {
        let matrix = self.matrix(node, 0)?;
        let axis = axis_of(node.int("axis").unwrap_or(0), matrix.axes.len())?;
        let Axis::Column(column) = matrix.axes[axis] else { return Err(format!("splits {:?}", matrix.axes[axis])) };
        let (length, count) = (matrix.sizes[column], node.outputs.len());
        let parts = match self.numbers(node, "split", 1)? {
            Some(parts) => {
                parts.into_iter().map(|part| usize::try_from(part).map_err(|_| format!("has a part of {part}"))).collect()
            }
            // the last part may be shorter
            None => {
                let each = length.div_ceil(count.max(1));
                Ok((0..count).map(|at| each.min(length.saturating_sub(at * each))).collect())
            }
        };
        let parts: Vec<usize> = parts?;
        if parts.iter().sum::<usize>() != length || parts.contains(&0) {
            return Err(format!("splits {length} columns into {parts:?}"));
        }
        let mut from = 0;
        let mut made = Vec::with_capacity(count);
        for part in parts {
            made.push(self.part_of_columns(node, &matrix, column, from, from + part)?);
            from += part;
        }
        Ok(made)
    }

    /// Broadcasts axes of length one, which maps do implicitly.
    pub(crate) fn expand(&mut self, node: &ShapedNode) -> Lowered {
        let lengths = self.lengths(node, 1)?;
        let form = self.input(node, 0)?;
        let rank = rank(&form).max(lengths.len());
        Ok(vec![match form {
            TensorForm::Matrix(matrix) => {
                let mut axes = matrix.of_rank(rank).axes;
                let behind = rank - lengths.len();
                for (axis, values) in axes.iter_mut().skip(behind).zip(&lengths) {
                    if *axis == Axis::One && !matches!(values, Some([1, 1, 1] | [-1, -1, -1])) {
                        let length = values.map(extent);
                        *axis = Axis::Spread(if let Some(Extent::Fixed(length)) = length { Some(length) } else { None });
                    }
                }
                TensorForm::Matrix(matrix.with_axes(axes))
            }
            TensorForm::ByPosition(constant, axis, from) => {
                let added = rank - constant.shape.len();
                TensorForm::ByPosition(of_rank(&constant, rank).into(), axis + added, from)
            }
            TensorForm::Places(places) => TensorForm::Places(places.of_rank(rank)),
            TensorForm::Distances(distances) => TensorForm::Distances(distances.of_rank(rank)),
            TensorForm::Pairs(pairs) => TensorForm::Pairs(pairs.of_rank(rank)),
            // maps broadcast it again
            TensorForm::Const(constant) => TensorForm::Const(of_rank(&constant, rank).into()),
            count @ TensorForm::Count { .. } => count,
            TensorForm::Scores(_)
            | TensorForm::NaNs(_)
            | TensorForm::Flat(..)
            | TensorForm::Tuple(_)
            | TensorForm::Rotation(_) => {
                return Err("broadcasts something that is not a matrix".into());
            }
        }])
    }

    /// A tensor of one number: maps broadcast it.
    pub(crate) fn filled(&mut self, node: &ShapedNode) -> Lowered {
        let output = node.outputs.first().copied().flatten().ok_or("makes nothing")?;
        let number = match node.constant("value") {
            Some(number) => super::constant::scalar(&number).ok_or("fills by no number")?,
            None => 0.0,
        };
        let ones = vec![1; self.lengths(node, 0)?.len()];
        let made = match self.graph.tensor(output).datatype {
            None | Some(Datatype::Fp32) => of_floats(ones, &[number]),
            Some(kind) => with_shape(&super::constant::cast(&of_integer(number as i64), kind)?, ones),
        };
        Ok(vec![TensorForm::Const(Arc::new(made))])
    }

    /// Concatenates columns along the outermost column axis, so that each part stays contiguous; or places, for a lookup by several.
    pub(crate) fn concat(&mut self, node: &ShapedNode) -> Lowered {
        let forms = (0..node.inputs.len()).map(|slot| self.input(node, slot)).collect::<Result<Vec<_>, _>>()?;
        let rank = forms.first().map(rank).ok_or("joins nothing")?;
        let axis = axis_of(node.int("axis").unwrap_or(0), rank)?;
        if let Some(tuple) = tuple(&forms, axis) {
            return Ok(vec![TensorForm::Tuple(tuple)]);
        }
        if let Some(turned) = Rotation::turned(&forms, axis) {
            return Ok(vec![turned]);
        }
        if let Some(context) = self.appended(node, &forms, axis)? {
            return Ok(vec![TensorForm::Matrix(context)]);
        }
        if let [only] = &forms[..] {
            return Ok(vec![only.clone()]);
        }
        let mut parts = Vec::with_capacity(forms.len());
        for slot in 0..forms.len() {
            parts.push(
                outermost(&self.matrix(node, slot)?, axis)
                    .ok_or("concatenates along an axis that is not the outermost column axis")?,
            );
        }
        let first = parts.first().ok_or("joins nothing")?.clone();
        if parts.iter().any(|part| part.axes != first.axes || part.sizes[1..] != first.sizes[1..]) {
            return Err("concatenates columns of different layouts".into());
        }
        let values: Vec<_> = parts.iter().map(|part| self.float(node, part)).collect();
        let mut sizes = first.sizes.clone();
        sizes[0] = parts.iter().map(|part| part.sizes[0]).sum();
        let value = self.push(&node.name, first.rows(), sizes.iter().product(), Op::Concat(values));
        Ok(vec![TensorForm::Matrix(Matrix { value, axes: first.axes, sizes }.squeezed())])
    }

    /// Keys or values of the past and those of the tokens behind them; `None` if the forms are no such.
    fn appended(&mut self, node: &ShapedNode, forms: &[TensorForm], axis: usize) -> Result<Option<Matrix>, String> {
        let [TensorForm::Matrix(past), TensorForm::Matrix(new)] = forms else { return Ok(None) };
        if past.axes[axis] != Axis::Past {
            return Ok(None);
        }
        let mut axes = new.axes.clone();
        axes[axis] = Axis::Past;
        let is_alike = new.axes[axis] == Axis::Token && axes == past.axes && new.sizes == past.sizes;
        let (true, Some([heads, head])) = (is_alike, past.heads_and_columns()) else {
            return Err("appends something else to the past than keys or values".into());
        };
        axes[axis] = Axis::Context;
        let new = Columns { value: self.float(node, new), from: 0 };
        let op = Op::Append { past: past.value, new, heads, head };
        let value = self.push(&node.name, Rows::Context, heads * head, op);
        Ok(Some(Matrix { value, axes, sizes: past.sizes.clone() }))
    }

    /// The matrix's value as float32.
    pub(crate) fn float(&mut self, node: &ShapedNode, matrix: &Matrix) -> ValueId {
        if self.plan.value(matrix.value).kind == ElementType::F32 { matrix.value } else { self.copied(matrix, &node.name) }
    }

    /// A float32 copy with a value of its own.
    pub(crate) fn copied(&mut self, matrix: &Matrix, name: &str) -> ValueId {
        let program = Program::new(vec![Instruction::Arg(0)]);
        self.push(name, matrix.rows(), matrix.width(), Op::Map { program, args: vec![matrix.value] })
    }
}

/// Whether a cut that stops there takes all of an axis: one of the tokens or the context, as `is_of` says.
fn is_whole(stop: Values, is_of: &dyn Fn(Axis) -> bool) -> bool {
    match extent(stop) {
        Extent::Token => is_of(Axis::Token),
        Extent::Context => is_of(Axis::Context),
        _ => false,
    }
}

/// Places that are joined along a last axis of length one.
fn tuple(forms: &[TensorForm], axis: usize) -> Option<Vec<Places>> {
    let mut joined = Vec::with_capacity(forms.len());
    for form in forms {
        let TensorForm::Places(places) = form else { return None };
        let is_last = axis + 1 == places.rank && places.terms.iter().all(|term: &Place| term.at != axis);
        if !is_last {
            return None;
        }
        joined.push(places.clone().moved(axis, |at| at));
    }
    Some(joined)
}

/// The matrix with the axis at `at` as its outermost column axis, even if it is of length one; `None` if it is any
/// other axis.
fn outermost(matrix: &Matrix, at: usize) -> Option<Matrix> {
    match matrix.axes[at] {
        Axis::Column(0) => Some(matrix.clone()),
        Axis::One => {
            let mut axes: Vec<Axis> = matrix.axes.iter().map(|axis| axis.renumbered(|place| place + 1)).collect();
            axes[at] = Axis::Column(0);
            let sizes = std::iter::once(1).chain(matrix.sizes.iter().copied()).collect();
            Some(Matrix { value: matrix.value, axes, sizes })
        }
        _ => None,
    }
}
