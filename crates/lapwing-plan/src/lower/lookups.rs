//! Lookups: rows of tables by ids, and values by the token's position.

use std::sync::Arc;

use lapwing_onnx::shaped::{Constant, ShapedNode};

use super::constant::{floats, integers, of_floats, scalar, with_shape};
use super::extent::{Extent, extent};
use super::form::{Axis, Matrix, Place, Places};
use super::reshape::rank;
use super::{Lowered, Lowering, TensorForm, axis_of};
use crate::plan::{Columns, ElementType, Lookup, Op, Rows};

/// The most ids per row of a lookup: each is a node.
const WIDEST: usize = 64;

/// Integers up to this are exact in float32.
const EXACT: usize = 1 << 24;

impl Lowering<'_> {
    /// The positions of the tokens, starting from a number; or the indices of the batch.
    pub(crate) fn range(&mut self, node: &ShapedNode) -> Lowered {
        let end = |slot: usize| -> Result<_, String> {
            let ends = self.lengths(node, slot)?;
            ends.first().copied().flatten().ok_or_else(|| "counts between numbers that are not known".to_owned())
        };
        let (from, to, step) = (end(0)?, end(1)?, end(2)?);
        let (start, is_after_past) = match (extent(from), step) {
            (Extent::Fixed(start), [1, 1, 1]) => (start, false),
            (Extent::Past, [1, 1, 1]) => (0, true),
            _ => return Err(format!("counts from {} by {}", from[0], step[0])),
        };
        let of = match extent([0, 1, 2].map(|at| to[at] - from[at])) {
            Extent::Token => Axis::Token,
            Extent::Context if start == 0 => Axis::Context,
            Extent::Batch if start == 0 => Axis::Batch,
            _ => return Err("counts to a number that is not that of the tokens".into()),
        };
        let term = Place { of, at: 0, times: None };
        Ok(vec![TensorForm::Places(Places { rank: 1, from: start, is_after_past, terms: vec![term] })])
    }

    /// The cumulative sum over tokens.
    pub(crate) fn running(&mut self, node: &ShapedNode) -> Lowered {
        let matrix = self.matrix(node, 0)?;
        if node.int("exclusive").unwrap_or(0) != 0 || node.int("reverse").unwrap_or(0) != 0 {
            return Err("sums without the token itself, or from the end".into());
        }
        let axis = self.constant(node, 1)?.and_then(|axis| integers(&axis).ok()?.first().copied()).ok_or("has no axis")?;
        let axis = axis_of(axis, matrix.axes.len())?;
        if matrix.axes[axis] != Axis::Token {
            return Err(format!("sums along {:?}", matrix.axes[axis]));
        }
        let x = self.float(node, &matrix);
        let value = self.push(&node.name, Rows::Token, matrix.width(), Op::CumSum(x));
        Ok(vec![TensorForm::Matrix(Matrix { value, ..matrix })])
    }

    /// Rows of a table by ids or by position; or the first token.
    pub(crate) fn gather(&mut self, node: &ShapedNode) -> Lowered {
        let source = self.input(node, 0)?;
        let axis = axis_of(node.int("axis").unwrap_or(0), rank(&source))?;
        let made = match (source, self.input(node, 1)?) {
            (TensorForm::Const(table), TensorForm::Matrix(ids)) => self.embed(node, axis, &table, &ids)?,
            (TensorForm::Const(table), TensorForm::ByPosition(ids, of_ids, from)) => {
                let picked = picked(&table, axis, &ids, of_ids, from)?;
                TensorForm::ByPosition(picked, of_ids, 0)
            }
            (TensorForm::Const(table), TensorForm::Places(places)) => {
                let (at, Axis::Token) =
                    places.positions(self.has_past()).ok_or("looks up places that are not the tokens' positions")?
                else {
                    return Err("looks up the positions of the context".into());
                };
                // the axis along which the table is read becomes that of the tokens; others before it must be of length one
                if table.shape[..axis].iter().any(|length| *length > 1) {
                    return Err(format!("looks up along axis {axis} of the table"));
                }
                let mut shape = vec![1; axis + places.rank];
                shape[axis + at] = table.shape[axis];
                shape.extend(&table.shape[axis + 1..]);
                TensorForm::ByPosition(with_shape(&table, shape).into(), axis + at, places.from)
            }
            (TensorForm::Const(table), TensorForm::Const(ids)) => {
                if axis != 0 {
                    return Err(format!("looks up along axis {axis} of the table"));
                }
                let data = rows_of(&table, &ids, 0)?;
                let shape: Vec<usize> = ids.shape.iter().chain(&table.shape[1..]).copied().collect();
                TensorForm::Const(of_floats(shape, &data).into())
            }
            (TensorForm::Matrix(matrix), TensorForm::Const(index)) => TensorForm::Matrix(self.part(node, axis, &matrix, &index)?),
            (TensorForm::Flat(matrix, ones), TensorForm::Places(places)) if axis == 0 => {
                let of = if matrix.rows() == Rows::Context { Axis::Context } else { Axis::Token };
                let axes = merged_axes(&places, of)?.into_iter().chain(std::iter::repeat_n(Axis::One, ones)).collect();
                TensorForm::Matrix(matrix.with_axes(axes))
            }
            _ => return Err("looks up in something that is not a table".into()),
        };
        Ok(vec![made])
    }

    /// The elements of a row that is the same for each sequence, by ids.
    pub(crate) fn gather_elements(&mut self, node: &ShapedNode) -> Lowered {
        let no = "looks up elements of more than one row";
        let (Some(row), ids) = (self.constant(node, 0)?, self.input(node, 1)?) else { return Err(no.into()) };
        let axis = axis_of(node.int("axis").unwrap_or(0), row.shape.len())?;
        if row.elements() != row.shape[axis] {
            return Err(no.into());
        }
        let numbers = floats(&row)?;
        // elements that are all alike are looked up before any call
        if let Some(first) = numbers.first()
            && numbers.iter().all(|number| number == first)
        {
            let one = super::constant::part(&with_shape(&row, vec![numbers.len()]), 0, 0, 1)?;
            return Ok(vec![TensorForm::Const(with_shape(&one, vec![1; rank(&ids)]).into())]);
        }
        let TensorForm::Matrix(ids) = ids else { return Err(no.into()) };
        let table = with_shape(&row, vec![numbers.len()]);
        Ok(vec![self.embed(node, 0, &table, &ids)?])
    }

    /// The elements of a matrix by their sequence and token, which only changes its axes.
    pub(crate) fn gather_nd(&mut self, node: &ShapedNode) -> Lowered {
        let matrix = self.matrix(node, 0)?;
        let no = "looks up elements in a way that changes more than axes";
        if node.int("batch_dims").unwrap_or(0) != 0 {
            return Err(no.into());
        }
        let TensorForm::Tuple(places) = self.input(node, 1)? else { return Err(no.into()) };
        let rank = places.first().map_or(0, |first| first.rank);
        let mut axes = vec![Axis::One; rank];
        for (own, places) in matrix.axes.iter().zip(&places) {
            match places.terms[..] {
                [Place { of, at, times: None }]
                    if of == *own && (places.from, places.is_after_past) == (0, false) && axes[at] == Axis::One =>
                {
                    axes[at] = of;
                }
                _ => return Err(no.into()),
            }
        }
        axes.extend(matrix.axes.iter().skip(places.len()));
        Ok(vec![TensorForm::Matrix(matrix.with_axes(axes))])
    }

    /// The first token, or one column.
    fn part(&mut self, node: &ShapedNode, axis: usize, matrix: &Matrix, index: &Constant) -> Result<Matrix, String> {
        let at = scalar(index).filter(|_| index.shape.len() <= 1).ok_or("takes parts of a matrix by several indices")?;
        let mut part = match matrix.axes[axis] {
            Axis::Token if at == 0.0 => self.first_token(node, matrix),
            Axis::Column(column) => {
                let size = matrix.sizes[column];
                let at = if at < 0.0 { at + size as f32 } else { at };
                let at = (0..size).find(|place| *place as f32 == at).ok_or_else(|| format!("takes column {at} of {size}"))?;
                self.columns(node, matrix, column, at, at + 1)?
            }
            Axis::One if at == 0.0 => matrix.clone(),
            other => return Err(format!("takes number {at} of {other:?}")),
        };
        if index.shape.is_empty() {
            part.axes.remove(axis);
        }
        Ok(part)
    }

    fn embed(&mut self, node: &ShapedNode, axis: usize, table: &Constant, ids: &Matrix) -> Result<TensorForm, String> {
        if axis != 0 || table.shape.is_empty() {
            return Err(format!("looks up along axis {axis} of the table"));
        }
        if !self.is_whole(node, 1) || ids.sizes.len() > 1 || ids.width() > WIDEST {
            return Err(format!("looks up ids of {:?} a row", ids.sizes));
        }
        if ids.rows() != Rows::Batch && ids.rows() != Rows::Token {
            return Err("looks up ids of the past".into());
        }
        let (rows, width): (usize, usize) = (table.shape[0], table.shape[1..].iter().product());
        let weight = self.weight(&node.name, rows, width, floats(table)?);
        let count = ids.width();
        let mut found = Vec::with_capacity(count);
        let kind = self.plan.value(ids.value).kind;
        if kind == ElementType::F32 && rows > EXACT {
            return Err(format!("computes the ids of a table of {rows} rows"));
        }
        let value = if kind == ElementType::Bool { self.float(node, ids) } else { ids.value };
        for from in 0..count {
            let op = Op::Embed { tables: vec![(weight, Lookup::Id(Columns { value, from }))], norm: None };
            found.push(self.push(&node.name, ids.rows(), width, op));
        }
        let value = match found[..] {
            [value] => value,
            _ => self.push(&node.name, ids.rows(), count * width, Op::Concat(found)),
        };
        let mut axes = ids.axes.clone();
        axes.extend((0..table.shape.len() - 1).map(|column| Axis::Column(ids.sizes.len() + column)));
        let sizes = ids.sizes.iter().chain(&table.shape[1..]).copied().collect();
        Ok(TensorForm::Matrix(Matrix { value, axes, sizes }.squeezed()))
    }

    /// A matrix with a row for each token, from a constant sliced by position.
    pub(crate) fn by_position(
        &mut self,
        node: &ShapedNode,
        tensor: &Constant,
        axis: usize,
        from: usize,
    ) -> Result<Matrix, String> {
        let shape = &tensor.shape;
        if shape[..axis].iter().any(|length| *length > 1) {
            return Err("is cut by position behind other axes".into());
        }
        if self.has_past() {
            return Err("looks up positions that begin behind the past".into());
        }
        let width: usize = shape[axis + 1..].iter().product();
        let weight = self.weight(&node.name, shape[axis], width, floats(tensor)?);
        let value =
            self.push(&node.name, Rows::Token, width, Op::Embed { tables: vec![(weight, Lookup::Position(from))], norm: None });
        let column = |place: usize| if place > axis { Axis::Column(place - axis - 1) } else { Axis::One };
        let axes = (0..shape.len()).map(|place| if place == axis { Axis::Token } else { column(place) }).collect();
        Ok(Matrix { value, axes, sizes: shape[axis + 1..].to_vec() }.squeezed())
    }
}

/// The axes of what is looked up in merged batch and tokens, or context: the index of the batch times the number of tokens, plus that of
/// the token.
fn merged_axes(places: &Places, of: Axis) -> Result<Vec<Axis>, String> {
    let at = |own: Axis, times: Option<Axis>| {
        let term = |term: &&Place| term.of == own && term.times == times;
        places.terms.iter().find(term).map(|term| term.at)
    };
    match (at(Axis::Batch, Some(of)), at(of, None), places.terms.len(), places.from) {
        (Some(batch), Some(token), 2, 0) if batch != token && !places.is_after_past => {
            let mut axes = vec![Axis::One; places.rank];
            (axes[batch], axes[token]) = (Axis::Batch, of);
            Ok(axes)
        }
        _ => Err("looks up merged tokens in a way that changes more than axes".into()),
    }
}

/// The rows of a table at ids that were sliced by position, which is again a table by position.
fn picked(table: &Constant, along: usize, ids: &Constant, axis: usize, from: usize) -> Result<Arc<Constant>, String> {
    if along != 0 || ids.elements() != ids.shape[axis] {
        return Err("looks up positions with other axes".into());
    }
    let data = rows_of(table, ids, from)?;
    let width: usize = table.shape[1..].iter().product();
    let mut shape = vec![1; axis];
    shape.push(data.len() / width.max(1));
    shape.extend(vec![1; ids.shape.len() - axis - 1]);
    shape.extend(&table.shape[1..]);
    Ok(of_floats(shape, &data).into())
}

/// The rows of a table at the ids from index `from` on, contiguous.
fn rows_of(table: &Constant, ids: &Constant, from: usize) -> Result<Vec<f32>, String> {
    let width: usize = table.shape[1..].iter().product();
    let rows = floats(table)?;
    let count = table.shape[0];
    let mut data = Vec::new();
    for id in integers(ids)?.into_iter().skip(from) {
        let row = if id < 0 { usize::try_from(id + count as i64) } else { usize::try_from(id) };
        let row = row.ok().filter(|row| *row < count).ok_or_else(|| format!("row {id} of a table of {count}"))?;
        data.extend_from_slice(&rows[row * width..(row + 1) * width]);
    }
    Ok(data)
}
