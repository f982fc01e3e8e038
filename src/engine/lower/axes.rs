//! Operators that only say otherwise how a tensor lies, or take parts of it: no arithmetic.

use std::sync::Arc;

use tract_onnx::prelude::{DatumType, TDim, Tensor, TypedNode};
use tract_onnx::tract_core::internal::DimLike;
use tract_onnx::tract_core::ops::array::{Gather, MultiBroadcastTo, Slice, TypedConcat};
use tract_onnx::tract_core::ops::change_axes::AxisOp;

use super::form::{Axis, Matrix};
use super::{Lowering, Made, Tensors, dimension, floats};
use crate::engine::plan::{Columns, Fold, Instruction, Lookup, Op, Program, Rows, Type};

impl Lowering<'_> {
    pub(super) fn change_axes(&mut self, node: &TypedNode, op: &AxisOp) -> Made {
        let made = match self.input(node, 0)? {
            Tensors::Matrix(matrix) => Tensors::Matrix(changed(matrix, op)?),
            Tensors::Const(tensor) => Tensors::Const(changed_const(tensor, op)?),
            Tensors::ByPosition(tensor, axis, from) => {
                let axis = moved(*axis, op).ok_or("changes the axis of the tokens")?;
                Tensors::ByPosition(changed_const(tensor, op)?, axis, *from)
            }
            Tensors::Positions { from, axis, rank } => {
                let axis = moved(*axis, op).ok_or("changes the axis of the tokens")?;
                let rank = if matches!(op, AxisOp::Add(_)) { rank + 1 } else { rank - 1 };
                Tensors::Positions { from: *from, axis, rank }
            }
            Tensors::Scores(scores) => Tensors::Scores(scores.changed(op)?),
        };
        Ok(Some(made))
    }

    /// The places of the tokens, counted from a number on.
    pub(super) fn range(&mut self, node: &TypedNode) -> Made {
        let ends: Vec<Option<TDim>> = (0..3)
            .map(|slot| if let Ok(Tensors::Const(tensor)) = self.input(node, slot) { dimension(tensor) } else { None })
            .collect();
        let [Some(from), Some(to), Some(step)] = &ends[..] else { return Err("counts between what is not known".into()) };
        let (Ok(from), Ok(1)) = (from.to_usize(), step.to_i64()) else { return Err(format!("counts from {from} by {step}")) };
        if !self.is_tokens(&(to.clone() - from)) {
            return Err(format!("counts to {to}, which is not the number of tokens"));
        }
        Ok(Some(Tensors::Positions { from, axis: 0, rank: 1 }))
    }

    /// A part of an axis: of columns, of positions, or the first token.
    pub(super) fn slice(&mut self, node: &TypedNode, op: &Slice) -> Made {
        let from = op.start.to_usize().map_err(|_| format!("begins at {}", op.start))?;
        let made = match self.input(node, 0)?.clone() {
            Tensors::Const(tensor) => match op.end.to_usize() {
                Ok(to) => {
                    let part = tensor.slice(op.axis, from, to).map_err(|e| format!("{e:#}"))?;
                    Tensors::Const(Arc::new(part))
                }
                Err(_) if self.is_tokens(&(op.end.clone() - from)) => Tensors::ByPosition(tensor, op.axis, from),
                Err(_) => return Err(format!("ends at {}", op.end)),
            },
            Tensors::Matrix(matrix) => match (matrix.axes[op.axis], op.end.to_usize()) {
                (Axis::Token, Ok(1)) if from == 0 => Tensors::Matrix(self.first_token(node, &matrix)),
                (Axis::Column(column), Ok(to)) => self.columns(node, &matrix, column, from, to)?,
                (Axis::One, Ok(1)) if from == 0 => Tensors::Matrix(matrix),
                (axis, _) => return Err(format!("cuts {from}..{} out of {axis:?}", op.end)),
            },
            Tensors::ByPosition(..) | Tensors::Positions { .. } | Tensors::Scores(_) => {
                return Err("cuts what is no matrix".into());
            }
        };
        Ok(Some(made))
    }

    fn is_tokens(&self, length: &TDim) -> bool {
        self.token.as_ref() == Some(length)
    }

    fn first_token(&mut self, node: &TypedNode, matrix: &Matrix) -> Matrix {
        let x = self.float(node, matrix);
        let op = Op::Pool { x, fold: Fold::First };
        let value = self.push(&node.name, Rows::Batch, matrix.width(), op);
        let axes = matrix.axes.iter().map(|axis| if *axis == Axis::Token { Axis::One } else { *axis }).collect();
        Matrix { value, axes, sizes: matrix.sizes.clone() }
    }

    fn columns(&mut self, node: &TypedNode, matrix: &Matrix, column: usize, from: usize, to: usize) -> Result<Tensors, String> {
        if column > 0 {
            return Err("cuts columns that are no neighbours".into());
        }
        let each: usize = matrix.sizes[1..].iter().product();
        let value = self.float(node, matrix);
        let op = Op::Slice(Columns { value, from: from * each });
        let value = self.push(&node.name, matrix.rows(), (to - from) * each, op);
        let mut sizes = matrix.sizes.clone();
        sizes[0] = to - from;
        Ok(Tensors::Matrix(Matrix { value, axes: matrix.axes.clone(), sizes }.squeezed()))
    }

    /// Rows of a table by ids or by position; or the first token.
    pub(super) fn gather(&mut self, node: &TypedNode, op: &Gather) -> Made {
        let made = match (self.input(node, 0)?.clone(), self.input(node, 1)?.clone()) {
            (Tensors::Const(table), Tensors::Matrix(ids)) => self.embed(node, op.axis, &table, &ids)?,
            (Tensors::Const(table), Tensors::ByPosition(ids, axis, from)) => {
                let picked = picked(&table, op.axis, &ids, axis, from)?;
                Tensors::ByPosition(picked, axis, 0)
            }
            (Tensors::Const(table), Tensors::Positions { from, axis, rank }) if op.axis == 0 => {
                let mut shape = vec![1; rank - 1];
                shape.insert(axis, table.shape()[0]);
                shape.extend(&table.shape()[1..]);
                let table = (*table).clone().into_shape(&shape).map_err(|e| format!("{e:#}"))?;
                Tensors::ByPosition(Arc::new(table), axis, from)
            }
            (Tensors::Matrix(matrix), Tensors::Const(index)) => {
                let is_first = floats(&index)? == [0.0];
                if matrix.axes[op.axis] != Axis::Token || !is_first || index.rank() > 1 {
                    return Err("takes parts of a matrix by index".into());
                }
                let mut first = self.first_token(node, &matrix);
                if index.rank() == 0 {
                    first.axes.remove(op.axis);
                }
                Tensors::Matrix(first)
            }
            _ => return Err("looks up what is no table".into()),
        };
        Ok(Some(made))
    }

    fn embed(&mut self, node: &TypedNode, axis: usize, table: &Tensor, ids: &Matrix) -> Result<Tensors, String> {
        if axis != 0 || table.rank() < 1 {
            return Err(format!("looks up along axis {axis} of the table"));
        }
        if !ids.sizes.is_empty() || self.plan.value(ids.value).kind == Type::F32 {
            return Err("ids must be whole numbers, one for each sequence or token".into());
        }
        let width: usize = table.shape()[1..].iter().product();
        let weight = self.weight(&node.name, table.shape()[0], width, floats(table)?);
        let op = Op::Embed { tables: vec![(weight, Lookup::Id(ids.value))], norm: None };
        let value = self.push(&node.name, ids.rows(), width, op);
        let mut axes = ids.axes.clone();
        axes.extend((0..table.rank() - 1).map(Axis::Column));
        Ok(Tensors::Matrix(Matrix { value, axes, sizes: table.shape()[1..].to_vec() }.squeezed()))
    }

    /// A matrix with a row for each token, of what was cut from a tensor by position.
    pub(super) fn by_position(&mut self, node: &TypedNode, tensor: &Tensor, axis: usize, from: usize) -> Result<Matrix, String> {
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

    /// Spreads axes of length one, which arithmetic does by itself.
    pub(super) fn broadcast(&mut self, node: &TypedNode, op: &MultiBroadcastTo) -> Made {
        let made = match self.input(node, 0)?.clone() {
            Tensors::Matrix(matrix) => {
                let mut axes = vec![Axis::One; op.shape.rank() - matrix.axes.len()];
                axes.extend(&matrix.axes);
                for (axis, dim) in axes.iter().zip(op.shape.iter()) {
                    if *axis == Axis::One && dim.to_usize().is_ok_and(|length| length > 1) {
                        return Err(format!("spreads a column to {dim}"));
                    }
                }
                Tensors::Matrix(matrix.with_axes(axes))
            }
            Tensors::ByPosition(tensor, axis, from) => {
                let added = op.shape.rank() - tensor.rank();
                let mut shape = vec![1; added];
                shape.extend(tensor.shape());
                let tensor = (*tensor).clone().into_shape(&shape).map_err(|e| format!("{e:#}"))?;
                Tensors::ByPosition(Arc::new(tensor), axis + added, from)
            }
            Tensors::Positions { from, axis, rank } => {
                let added = op.shape.rank() - rank;
                Tensors::Positions { from, axis: axis + added, rank: rank + added }
            }
            // a scalar stays one wherever it is spread to
            Tensors::Const(tensor) if tensor.len() == 1 => {
                let shape = vec![1; op.shape.rank()];
                let tensor = (*tensor).clone().into_shape(&shape).map_err(|e| format!("{e:#}"))?;
                Tensors::Const(Arc::new(tensor))
            }
            Tensors::Const(_) | Tensors::Scores(_) => return Err("spreads what is no matrix".into()),
        };
        Ok(Some(made))
    }

    /// Columns side by side.
    pub(super) fn concat(&mut self, node: &TypedNode, op: &TypedConcat) -> Made {
        let parts: Vec<Matrix> = (0..node.inputs.len()).map(|slot| self.matrix(node, slot)).collect::<Result<_, _>>()?;
        let first = parts.first().ok_or("joins nothing")?.clone();
        let is_alike = |part: &Matrix| {
            let others = |m: &Matrix| -> Vec<Axis> {
                m.axes.iter().enumerate().filter(|(place, _)| *place != op.axis).map(|(_, axis)| *axis).collect()
            };
            others(part) == others(&first) && part.sizes.len() <= 1 && matches!(part.axes[op.axis], Axis::Column(0) | Axis::One)
        };
        if !parts.iter().all(is_alike) {
            return Err("joins more than columns".into());
        }
        let values: Vec<_> = parts.iter().map(|part| self.float(node, part)).collect();
        let width = parts.iter().map(Matrix::width).sum();
        let value = self.push(&node.name, first.rows(), width, Op::Concat(values));
        let mut axes = first.axes.clone();
        axes[op.axis] = Axis::Column(0);
        Ok(Some(Tensors::Matrix(Matrix { value, axes, sizes: vec![width] })))
    }

    /// The matrix's value as float32.
    pub(super) fn float(&mut self, node: &TypedNode, matrix: &Matrix) -> crate::engine::plan::ValueId {
        if self.plan.value(matrix.value).kind == Type::F32 { matrix.value } else { self.copied(matrix, &node.name) }
    }

    /// The same as a value of its own, of float32.
    pub(super) fn copied(&mut self, matrix: &Matrix, name: &str) -> crate::engine::plan::ValueId {
        let program = Program::new(vec![Instruction::Arg(0)]);
        self.push(name, matrix.rows(), matrix.width(), Op::Map { program, args: vec![matrix.value] })
    }
}

fn changed(matrix: &Matrix, op: &AxisOp) -> Result<Matrix, String> {
    let mut axes = matrix.axes.clone();
    match op {
        AxisOp::Add(at) => axes.insert(*at, Axis::One),
        AxisOp::Rm(at) if axes[*at] == Axis::One => {
            axes.remove(*at);
        }
        AxisOp::Rm(at) => return Err(format!("takes away axis {at}, which is {:?}", axes[*at])),
        AxisOp::Move(from, to) => {
            let axis = axes.remove(*from);
            axes.insert(*to, axis);
        }
        AxisOp::Reshape(at, from, to) => {
            let lengths = |dims: &[TDim]| -> Option<Vec<usize>> { dims.iter().map(|dim| dim.to_usize().ok()).collect() };
            let (Some(from), Some(to)) = (lengths(from), lengths(to)) else {
                return Err("joins or splits batch or tokens".into());
            };
            return matrix.reshaped(*at, &from, &to).ok_or_else(|| "joins columns that are no neighbours".into());
        }
    }
    Ok(matrix.with_axes(axes))
}

fn changed_const(tensor: &Tensor, op: &AxisOp) -> Result<Arc<Tensor>, String> {
    let mut tensor = tensor.clone();
    op.change_tensor(&mut tensor, false).map_err(|e| format!("{e:#}"))?;
    Ok(Arc::new(tensor))
}

/// Where an axis is after the change.
fn moved(axis: usize, op: &AxisOp) -> Option<usize> {
    match op {
        AxisOp::Add(at) => Some(if *at <= axis { axis + 1 } else { axis }),
        AxisOp::Rm(at) if *at == axis => None,
        AxisOp::Rm(at) => Some(if *at < axis { axis - 1 } else { axis }),
        _ => None,
    }
}

/// The rows of a table at the ids that were cut by position: a table by position itself.
fn picked(table: &Tensor, along: usize, ids: &Tensor, axis: usize, from: usize) -> Result<Arc<Tensor>, String> {
    if along != 0 || ids.len() != ids.shape()[axis] {
        return Err("looks up positions with other axes".into());
    }
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
    let mut shape = vec![1; axis];
    shape.push(data.len() / width.max(1));
    shape.extend(vec![1; ids.ndim() - axis - 1]);
    shape.extend(&table.shape()[1..]);
    Tensor::from_shape(&shape, &data).map(Arc::new).map_err(|e| format!("{e:#}"))
}
