//! Operators that fold columns or tokens, and the softmax.

use lapwing_onnx::shaped::ShapedNode;

use super::form::{Axis, Matrix};
use super::reshape::rank;
use super::{Lowered, Lowering, TensorForm, axis_of};
use crate::plan::{Binary, Fold, Instruction, Op, Program, Rows, Unary, ValueId};

/// The most outermost columns of a fold: each becomes a slice of its own, and an argument.
const MOST_FOLDED: usize = 16;

/// What a reduction does before and after it folds.
struct Folding {
    fold: Fold,
    before: Option<Unary>,
    is_mean: bool,
    after: Option<Unary>,
}

impl Folding {
    fn of(operator: &str) -> Option<Self> {
        let plain = |fold: Fold| Self { fold, before: None, is_mean: false, after: None };
        let sum = plain(Fold::Sum);
        Some(match operator {
            "ReduceSum" => sum,
            "ReduceMean" => Self { is_mean: true, ..sum },
            "ReduceMax" => plain(Fold::Max),
            "ReduceMin" => plain(Fold::Min),
            "ReduceL1" => Self { before: Some(Unary::Abs), ..sum },
            "ReduceL2" => Self { before: Some(Unary::Square), after: Some(Unary::Sqrt), ..sum },
            "ReduceSumSquare" => Self { before: Some(Unary::Square), ..sum },
            "ReduceLogSum" => Self { after: Some(Unary::Log), ..sum },
            _ => return None,
        })
    }
}

impl Lowering<'_> {
    /// Folds columns or tokens.
    pub(crate) fn reduce(&mut self, node: &ShapedNode) -> Lowered {
        let Some(folding) = Folding::of(&node.operator) else { return Err("the plan has no such operator".into()) };
        let matrix = self.matrix(node, 0)?;
        let rank = matrix.axes.len();
        let named = self.axes(node, 1, rank)?.filter(|axes| !axes.is_empty());
        if named.is_none() && node.int("noop_with_empty_axes").unwrap_or(0) != 0 {
            return Ok(vec![TensorForm::Matrix(matrix)]);
        }
        let mut places = named.unwrap_or_else(|| (0..rank).collect());
        places.sort_unstable();
        places.dedup();
        let is_sum = folding.fold == Fold::Sum && !folding.is_mean;
        let mut folded = Vec::new();
        for axis in places.iter().map(|place| matrix.axes[*place]) {
            match axis {
                Axis::One => {}
                Axis::Spread(Some(1)) => {}
                Axis::Spread(Some(length)) if is_sum => return Err(format!("sums what is the same {length} times")),
                Axis::Spread(None) if is_sum => return Err("sums what is the same for each token".into()),
                Axis::Spread(_) => {}
                axis => folded.push(axis),
            }
        }
        let mut x = Matrix { value: self.float(node, &matrix), ..matrix };
        if let Some(op) = folding.before {
            x = self.over(node, &x, vec![Instruction::Unary(op, 0)]);
        }
        let axes = x.axes.iter().enumerate().map(|(place, axis)| if places.contains(&place) { Axis::One } else { *axis });
        let made = self.folded_matrix(node, &x, &folding, &folded, axes.collect())?;
        let mut made = match folding.after {
            Some(op) => self.over(node, &made, vec![Instruction::Unary(op, 0)]),
            None => made,
        };
        if node.int("keepdims").unwrap_or(1) == 0 {
            for place in places.iter().rev() {
                made.axes.remove(*place);
            }
        }
        Ok(vec![TensorForm::Matrix(made)])
    }

    fn folded_matrix(
        &mut self,
        node: &ShapedNode,
        x: &Matrix,
        folding: &Folding,
        folded: &[Axis],
        axes: Vec<Axis>,
    ) -> Result<Matrix, String> {
        let (fold, is_mean) = (folding.fold, folding.is_mean);
        if folded == [Axis::Token] {
            let fold = if is_mean { Fold::Mean } else { fold };
            let value = self.push(&node.name, Rows::Batch, x.width(), Op::Pool { x: x.value, fold });
            return Ok(Matrix { value, axes, sizes: x.sizes.clone() });
        }
        if folded == [Axis::Column(0)] && x.sizes.len() > 1 && x.sizes[0] <= MOST_FOLDED {
            let made = self.fold_outermost(node, x, axes, fold)?;
            return Ok(if is_mean { self.share(node, &made, x.sizes[0]) } else { made });
        }
        let columns = folded.iter().filter(|axis| matches!(axis, Axis::Column(_))).count();
        if columns != folded.len() || (columns > 0 && columns != x.sizes.len()) {
            return Err("folds some columns, or others than columns".into());
        }
        if columns == 0 {
            return Ok(Matrix { value: x.value, axes, sizes: x.sizes.clone() });
        }
        let value = self.push(&node.name, x.rows(), 1, Op::Reduce { x: x.value, fold });
        let made = Matrix { value, axes, sizes: Vec::new() };
        Ok(if is_mean { self.share(node, &made, x.width()) } else { made })
    }

    /// A sum over `count` as a mean.
    fn share(&mut self, node: &ShapedNode, sum: &Matrix, count: usize) -> Matrix {
        let share = Instruction::Scalar(1.0 / count as f32);
        self.over(node, sum, vec![share, Instruction::Binary(Binary::Mul, 0, 1)])
    }

    /// Folds the outermost columns, such as the features of a row: each becomes a slice of its own.
    fn fold_outermost(&mut self, node: &ShapedNode, matrix: &Matrix, axes: Vec<Axis>, fold: Fold) -> Result<Matrix, String> {
        let join = match fold {
            Fold::Max => Binary::Max,
            Fold::Min => Binary::Min,
            _ => Binary::Add,
        };
        let count = matrix.sizes[0];
        let mut args = Vec::with_capacity(count);
        for place in 0..count {
            args.push(self.columns(node, matrix, 0, place, place + 1)?.value);
        }
        let mut code: Vec<Instruction> = (0..count).map(Instruction::Arg).collect();
        code.push(Instruction::Binary(join, 0, 1));
        for place in 2..count {
            code.push(Instruction::Binary(join, code.len() - 1, place));
        }
        let inner = |axis: Axis| if let Axis::Column(place) = axis { Axis::Column(place - 1) } else { axis };
        let axes = axes.into_iter().map(inner).collect();
        let op = Op::Map { program: Program::new(code), args };
        let value = self.push(&node.name, matrix.rows(), matrix.width() / count, op);
        Ok(Matrix { value, axes, sizes: matrix.sizes[1..].to_vec() })
    }

    /// The softmax over the keys of scores, or over all columns. Before version 13 it is over all axes from `axis` on.
    pub(crate) fn softmax(&mut self, node: &ShapedNode) -> Lowered {
        let form = self.input(node, 0)?;
        let rank = rank(&form);
        let axis = axis_of(node.int("axis").unwrap_or(if node.version < 13 { 1 } else { -1 }), rank)?;
        if let TensorForm::Scores(scores) = form {
            if node.version < 13 && axis + 1 != rank {
                return Err("is over several axes".into());
            }
            return Ok(vec![TensorForm::Scores(scores.softmax(axis)?)]);
        }
        let matrix = self.matrix(node, 0)?;
        let is_all = if node.version < 13 { matrix.is_all_columns(axis) } else { matrix.is_only_column(axis) };
        if !is_all {
            return Err("is not over all columns".into());
        }
        let x: ValueId = self.float(node, &matrix);
        let value = self.push(&node.name, matrix.rows(), matrix.width(), Op::Softmax(x));
        Ok(vec![TensorForm::Matrix(Matrix { value, ..matrix })])
    }
}
