//! Lookups: rows of tables by ids, and values by the token's position.

use std::sync::Arc;

use tract_onnx::prelude::{DatumType, TDim, Tensor, TypedNode};
use tract_onnx::tract_core::internal::DimLike;
use tract_onnx::tract_core::ops::array::{CumSum, Gather};

use super::form::{Axis, Matrix};
use super::{Lowered, Lowering, TensorForm, dimension, floats, scalar};
use crate::plan::{Columns, ElementType, Lookup, Op, Rows};

/// The most ids per row of a lookup: each is a node.
const WIDEST: usize = 64;

/// Integers up to this are exact in float32.
const EXACT: usize = 1 << 24;

impl Lowering<'_> {
    /// The positions of the tokens, starting from a number.
    pub(crate) fn range(&mut self, node: &TypedNode) -> Lowered {
        let ends: Vec<Option<TDim>> = (0..3)
            .map(|slot| if let Ok(TensorForm::Const(tensor)) = self.input(node, slot) { dimension(tensor) } else { None })
            .collect();
        let [Some(from), Some(to), Some(step)] = &ends[..] else {
            return Err("counts between numbers that are not constants".into());
        };
        let (Ok(from), Ok(1)) = (from.to_usize(), step.to_i64()) else { return Err(format!("counts from {from} by {step}")) };
        if !self.is_tokens(&(to.clone() - from)) {
            return Err(format!("counts to {to}, which is not the number of tokens"));
        }
        Ok(Some(TensorForm::Positions { from, axis: 0, rank: 1 }))
    }

    /// The cumulative sum over tokens.
    pub(crate) fn running(&mut self, node: &TypedNode, op: &CumSum) -> Lowered {
        let matrix = self.matrix(node, 0)?;
        if op.exclusive || op.reverse {
            return Err("sums without the token itself, or from the end".into());
        }
        if matrix.axes[op.axis] != Axis::Token {
            return Err(format!("sums along {:?}", matrix.axes[op.axis]));
        }
        let x = self.float(node, &matrix);
        let value = self.push(&node.name, Rows::Token, matrix.width(), Op::CumSum(x));
        Ok(Some(TensorForm::Matrix(Matrix { value, ..matrix })))
    }

    /// Rows of a table by ids or by position; or the first token.
    pub(crate) fn gather(&mut self, node: &TypedNode, op: &Gather) -> Lowered {
        let made = match (self.input(node, 0)?.clone(), self.input(node, 1)?.clone()) {
            (TensorForm::Const(table), TensorForm::Matrix(ids)) => self.embed(node, op.axis, &table, &ids)?,
            (TensorForm::Const(table), TensorForm::ByPosition(ids, axis, from)) => {
                let picked = picked(&table, op.axis, &ids, axis, from)?;
                TensorForm::ByPosition(picked, axis, 0)
            }
            (TensorForm::Const(table), TensorForm::Positions { from, axis, rank }) if op.axis == 0 => {
                let mut shape = vec![1; rank - 1];
                shape.insert(axis, table.shape()[0]);
                shape.extend(&table.shape()[1..]);
                let table = (*table).clone().into_shape(&shape).map_err(|e| format!("{e:#}"))?;
                TensorForm::ByPosition(Arc::new(table), axis, from)
            }
            (TensorForm::Const(table), TensorForm::Const(ids)) => {
                if op.axis != 0 {
                    return Err(format!("looks up along axis {} of the table", op.axis));
                }
                let data = rows_of(&table, &ids, 0)?;
                let shape: Vec<usize> = ids.shape().iter().chain(&table.shape()[1..]).copied().collect();
                TensorForm::Const(Tensor::from_shape(&shape, &data).map_err(|e| format!("{e:#}"))?.into())
            }
            (TensorForm::Matrix(matrix), TensorForm::Const(index)) => {
                TensorForm::Matrix(self.part(node, op.axis, &matrix, &index)?)
            }
            _ => return Err("looks up in something that is not a table".into()),
        };
        Ok(Some(made))
    }

    /// The first token, or one column.
    fn part(&mut self, node: &TypedNode, axis: usize, matrix: &Matrix, index: &Tensor) -> Result<Matrix, String> {
        let at = scalar(index).filter(|_| index.rank() <= 1).ok_or("takes parts of a matrix by several indices")?;
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
        if index.rank() == 0 {
            part.axes.remove(axis);
        }
        Ok(part)
    }

    fn embed(&mut self, node: &TypedNode, axis: usize, table: &Tensor, ids: &Matrix) -> Result<TensorForm, String> {
        if axis != 0 || table.rank() < 1 {
            return Err(format!("looks up along axis {axis} of the table"));
        }
        let is_whole = self.model.outlet_fact(node.inputs[1]).is_ok_and(|fact| fact.datum_type.is_integer());
        if !is_whole || ids.sizes.len() > 1 || ids.width() > WIDEST {
            return Err(format!("looks up ids of {:?} a row", ids.sizes));
        }
        let (rows, width): (usize, usize) = (table.shape()[0], table.shape()[1..].iter().product());
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
        axes.extend((0..table.rank() - 1).map(|column| Axis::Column(ids.sizes.len() + column)));
        let sizes = ids.sizes.iter().chain(&table.shape()[1..]).copied().collect();
        Ok(TensorForm::Matrix(Matrix { value, axes, sizes }.squeezed()))
    }

    /// A matrix with a row for each token, from a constant sliced by position.
    pub(crate) fn by_position(&mut self, node: &TypedNode, tensor: &Tensor, axis: usize, from: usize) -> Result<Matrix, String> {
        let shape = tensor.shape();
        if shape[..axis].iter().any(|length| *length > 1) {
            return Err("is cut by position behind other axes".into());
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

/// The rows of a table at ids that were sliced by position, which is again a table by position.
fn picked(table: &Tensor, along: usize, ids: &Tensor, axis: usize, from: usize) -> Result<Arc<Tensor>, String> {
    if along != 0 || ids.len() != ids.shape()[axis] {
        return Err("looks up positions with other axes".into());
    }
    let data = rows_of(table, ids, from)?;
    let width: usize = table.shape()[1..].iter().product();
    let mut shape = vec![1; axis];
    shape.push(data.len() / width.max(1));
    shape.extend(vec![1; ids.rank() - axis - 1]);
    shape.extend(&table.shape()[1..]);
    Tensor::from_shape(&shape, &data).map(Arc::new).map_err(|e| format!("{e:#}"))
}

/// The rows of a table at the ids from index `from` on, contiguous.
fn rows_of(table: &Tensor, ids: &Tensor, from: usize) -> Result<Vec<f32>, String> {
    let ids = ids.cast_to_dt(DatumType::I64).map_err(|e| format!("{e:#}"))?;
    let ids = ids.to_plain_array_view::<i64>().map_err(|e| format!("{e:#}"))?;
    let width: usize = table.shape()[1..].iter().product();
    let rows = floats(table)?;
    let count = table.shape()[0];
    let mut data = Vec::new();
    for id in ids.iter().skip(from) {
        let row = if *id < 0 { usize::try_from(*id + count as i64) } else { usize::try_from(*id) };
        let row = row.ok().filter(|row| *row < count).ok_or_else(|| format!("row {id} of a table of {count}"))?;
        data.extend_from_slice(&rows[row * width..(row + 1) * width]);
    }
    Ok(data)
}
