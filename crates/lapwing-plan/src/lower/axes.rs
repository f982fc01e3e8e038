//! Operators that change axes or take parts of a tensor, without arithmetic.

use std::sync::Arc;

use tract_onnx::prelude::{TDim, Tensor, TypedNode};
use tract_onnx::tract_core::internal::DimLike;
use tract_onnx::tract_core::ops::array::{MultiBroadcastTo, Slice, TypedConcat};
use tract_onnx::tract_core::ops::change_axes::AxisOp;

use super::form::{Axis, Matrix};
use super::{Lowered, Lowering, TensorForm};
use crate::plan::{Columns, ElementType, Fold, Instruction, Op, Program, Rows};

impl Lowering<'_> {
    pub(crate) fn change_axes(&mut self, node: &TypedNode, op: &AxisOp) -> Lowered {
        let made = match self.input(node, 0)? {
            TensorForm::Matrix(matrix) => TensorForm::Matrix(changed(matrix, op)?),
            TensorForm::Const(tensor) => TensorForm::Const(changed_const(tensor, op)?),
            TensorForm::ByPosition(tensor, axis, from) => {
                let axis = moved(*axis, op).ok_or("changes the axis of the tokens")?;
                TensorForm::ByPosition(changed_const(tensor, op)?, axis, *from)
            }
            TensorForm::Positions { from, axis, rank } => {
                let axis = moved(*axis, op).ok_or("changes the axis of the tokens")?;
                let rank = if matches!(op, AxisOp::Add(_)) { rank + 1 } else { rank - 1 };
                TensorForm::Positions { from: *from, axis, rank }
            }
            TensorForm::Scores(scores) => TensorForm::Scores(scores.changed(op)?),
            count @ TensorForm::Count { .. } => count.clone(),
        };
        Ok(Some(made))
    }

    /// A slice of an axis: of columns, of positions, or the first token.
    pub(crate) fn slice(&mut self, node: &TypedNode, op: &Slice) -> Lowered {
        let from = op.start.to_usize().map_err(|_| format!("begins at {}", op.start))?;
        let made = match self.input(node, 0)?.clone() {
            TensorForm::Const(tensor) => match op.end.to_usize() {
                Ok(to) => {
                    let part = tensor.slice(op.axis, from, to).map_err(|e| format!("{e:#}"))?;
                    TensorForm::Const(Arc::new(part))
                }
                Err(_) if self.is_tokens(&(op.end.clone() - from)) => TensorForm::ByPosition(tensor, op.axis, from),
                Err(_) => return Err(format!("ends at {}", op.end)),
            },
            TensorForm::Matrix(matrix) => match (matrix.axes[op.axis], op.end.to_usize()) {
                (Axis::Token, Ok(1)) if from == 0 => TensorForm::Matrix(self.first_token(node, &matrix)),
                (Axis::Column(column), Ok(to)) => TensorForm::Matrix(self.columns(node, &matrix, column, from, to)?),
                (Axis::One, Ok(1)) if from == 0 => TensorForm::Matrix(matrix),
                (axis, _) => return Err(format!("cuts {from}..{} out of {axis:?}", op.end)),
            },
            TensorForm::ByPosition(..) | TensorForm::Positions { .. } | TensorForm::Count { .. } | TensorForm::Scores(_) => {
                return Err("slices something that is not a matrix".into());
            }
        };
        Ok(Some(made))
    }

    pub(crate) fn is_tokens(&self, length: &TDim) -> bool {
        self.token.as_ref() == Some(length)
    }

    pub(crate) fn first_token(&mut self, node: &TypedNode, matrix: &Matrix) -> Matrix {
        let x = self.float(node, matrix);
        let op = Op::Pool { x, fold: Fold::First };
        let value = self.push(&node.name, Rows::Batch, matrix.width(), op);
        let axes = matrix.axes.iter().map(|axis| if *axis == Axis::Token { Axis::One } else { *axis }).collect();
        Matrix { value, axes, sizes: matrix.sizes.clone() }
    }

    pub(crate) fn columns(
        &mut self,
        node: &TypedNode,
        matrix: &Matrix,
        column: usize,
        from: usize,
        to: usize,
    ) -> Result<Matrix, String> {
        if column > 0 {
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

    /// Broadcasts axes of length one, which maps do implicitly.
    pub(crate) fn broadcast(&mut self, node: &TypedNode, op: &MultiBroadcastTo) -> Lowered {
        let made = match self.input(node, 0)?.clone() {
            TensorForm::Matrix(matrix) => {
                let mut axes = vec![Axis::One; op.shape.rank() - matrix.axes.len()];
                axes.extend(&matrix.axes);
                for (axis, dim) in axes.iter_mut().zip(op.shape.iter()) {
                    let length = dim.to_usize().ok();
                    if *axis == Axis::One && length != Some(1) {
                        *axis = Axis::Spread(length);
                    }
                }
                TensorForm::Matrix(matrix.with_axes(axes))
            }
            TensorForm::ByPosition(tensor, axis, from) => {
                let added = op.shape.rank() - tensor.rank();
                let mut shape = vec![1; added];
                shape.extend(tensor.shape());
                let tensor = (*tensor).clone().into_shape(&shape).map_err(|e| format!("{e:#}"))?;
                TensorForm::ByPosition(Arc::new(tensor), axis + added, from)
            }
            TensorForm::Positions { from, axis, rank } => {
                let added = op.shape.rank() - rank;
                TensorForm::Positions { from, axis: axis + added, rank: rank + added }
            }
            // maps broadcast it again
            TensorForm::Const(tensor) => {
                let mut shape = vec![1; op.shape.rank() - tensor.rank()];
                shape.extend(tensor.shape());
                let tensor = (*tensor).clone().into_shape(&shape).map_err(|e| format!("{e:#}"))?;
                TensorForm::Const(Arc::new(tensor))
            }
            count @ TensorForm::Count { .. } => count,
            TensorForm::Scores(_) => return Err("broadcasts something that is not a matrix".into()),
        };
        Ok(Some(made))
    }

    /// Concatenates columns along the outermost column axis, so that each part stays contiguous.
    pub(crate) fn concat(&mut self, node: &TypedNode, op: &TypedConcat) -> Lowered {
        let mut parts = Vec::with_capacity(node.inputs.len());
        for slot in 0..node.inputs.len() {
            parts.push(
                outermost(&self.matrix(node, slot)?, op.axis)
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
        Ok(Some(TensorForm::Matrix(Matrix { value, axes: first.axes, sizes }.squeezed())))
    }

    /// The matrix's value as float32.
    pub(crate) fn float(&mut self, node: &TypedNode, matrix: &Matrix) -> crate::plan::ValueId {
        if self.plan.value(matrix.value).kind == ElementType::F32 { matrix.value } else { self.copied(matrix, &node.name) }
    }

    /// A float32 copy with a value of its own.
    pub(crate) fn copied(&mut self, matrix: &Matrix, name: &str) -> crate::plan::ValueId {
        let program = Program::new(vec![Instruction::Arg(0)]);
        self.push(name, matrix.rows(), matrix.width(), Op::Map { program, args: vec![matrix.value] })
    }
}

/// The matrix with the axis at `at` as its outermost column axis, even if it is of length one; `None` if it is any
/// other axis.
fn outermost(matrix: &Matrix, at: usize) -> Option<Matrix> {
    match matrix.axes[at] {
        Axis::Column(0) => Some(matrix.clone()),
        Axis::One => {
            let inner = |axis: &Axis| if let Axis::Column(place) = axis { Axis::Column(place + 1) } else { *axis };
            let mut axes: Vec<Axis> = matrix.axes.iter().map(inner).collect();
            axes[at] = Axis::Column(0);
            let sizes = std::iter::once(1).chain(matrix.sizes.iter().copied()).collect();
            Some(Matrix { value: matrix.value, axes, sizes })
        }
        _ => None,
    }
}

fn changed(matrix: &Matrix, op: &AxisOp) -> Result<Matrix, String> {
    let mut axes = matrix.axes.clone();
    match op {
        AxisOp::Add(at) => axes.insert(*at, Axis::One),
        AxisOp::Rm(at) if axes[*at] == Axis::One => {
            axes.remove(*at);
        }
        AxisOp::Rm(at) => return Err(format!("removes axis {at}, which is {:?}", axes[*at])),
        AxisOp::Move(from, to) => {
            let axis = axes.remove(*from);
            axes.insert(*to, axis);
        }
        AxisOp::Reshape(at, from, to) => {
            let lengths = |dims: &[TDim]| -> Option<Vec<usize>> { dims.iter().map(|dim| dim.to_usize().ok()).collect() };
            let (Some(from), Some(to)) = (lengths(from), lengths(to)) else {
                return Err("merges or splits the batch or token axis".into());
            };
            return matrix.reshaped(*at, &from, &to).ok_or_else(|| "merges columns that are not contiguous".into());
        }
    }
    Ok(matrix.with_axes(axes))
}

fn changed_const(tensor: &Tensor, op: &AxisOp) -> Result<Arc<Tensor>, String> {
    let mut tensor = tensor.clone();
    op.change_tensor(&mut tensor, false).map_err(|e| format!("{e:#}"))?;
    Ok(Arc::new(tensor))
}

/// The index of an axis after the change.
fn moved(axis: usize, op: &AxisOp) -> Option<usize> {
    match op {
        AxisOp::Add(at) => Some(if *at <= axis { axis + 1 } else { axis }),
        AxisOp::Rm(at) if *at == axis => None,
        AxisOp::Rm(at) => Some(if *at < axis { axis - 1 } else { axis }),
        _ => None,
    }
}
