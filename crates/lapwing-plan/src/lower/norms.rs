//! Operators that normalise the columns of a row, and those that are fused with one.

use lapwing_onnx::shaped::ShapedNode;

use super::form::Matrix;
use super::layout::Operand;
use super::{Lowered, Lowering, TensorForm, axis_of};
use crate::plan::{Binary, Instruction, Op, Unary, WeightId};

impl Lowering<'_> {
    pub(crate) fn layer_norm(&mut self, node: &ShapedNode) -> Lowered {
        let matrix = self.matrix(node, 0)?;
        self.whole_rows(node, &matrix)?;
        let x = self.float(node, &matrix);
        let (scale, shift) = (self.row_at(node, 1, &matrix)?, self.row_at(node, 2, &matrix)?);
        let epsilon = node.float("epsilon").unwrap_or(1e-5);
        let op = Op::LayerNorm { x, residual: None, epsilon, scale, shift };
        let value = self.push(&node.name, matrix.rows(), matrix.width(), op);
        Ok(vec![TensorForm::Matrix(Matrix { value, ..matrix })])
    }

    /// `RMSNormalization`, and ONNX Runtime's `SimplifiedLayerNormalization`, which is the same.
    pub(crate) fn rms_norm(&mut self, node: &ShapedNode) -> Lowered {
        let matrix = self.matrix(node, 0)?;
        self.whole_rows(node, &matrix)?;
        let x = self.float(node, &matrix);
        let scale = self.row_at(node, 1, &matrix)?;
        let epsilon = node.float("epsilon").unwrap_or(1e-5);
        let value = self.push(&node.name, matrix.rows(), matrix.width(), Op::RmsNorm { x, epsilon, scale });
        Ok(vec![TensorForm::Matrix(Matrix { value, ..matrix })])
    }

    /// ONNX Runtime's norm of a sum: of the input, what is skipped and a bias. Its fourth output is the sum.
    pub(crate) fn skip_layer_norm(&mut self, node: &ShapedNode) -> Lowered {
        let sum = |lowering: &mut Self, a: Operand, b: Operand| {
            lowering.mapped(node, &[a, b], &|places| vec![Instruction::Binary(Binary::Add, places[0], places[1])])
        };
        let mut x = sum(self, Operand::Matrix(self.matrix(node, 0)?), Operand::Matrix(self.matrix(node, 1)?))?;
        if let Some(bias) = self.constant(node, 4)? {
            x = sum(self, Operand::Matrix(x), Operand::Const((*bias).clone()))?;
        }
        let (scale, shift) = (self.row_at(node, 2, &x)?, self.row_at(node, 3, &x)?);
        let epsilon = node.float("epsilon").unwrap_or(1e-12);
        let op = Op::LayerNorm { x: x.value, residual: None, epsilon, scale, shift };
        let value = self.push(&node.name, x.rows(), x.width(), op);
        let normal = TensorForm::Matrix(Matrix { value, ..x.clone() });
        if node.outputs.iter().skip(1).take(2).any(Option::is_some) {
            return Err("makes the mean and the deviation, too".into());
        }
        // their places lie between the norm and the sum
        Ok(vec![normal.clone(), normal.clone(), normal, TensorForm::Matrix(x)])
    }

    /// ONNX Runtime's GELU, of a sum with a bias if there is one.
    pub(crate) fn gelu_of_sum(&mut self, node: &ShapedNode) -> Lowered {
        let op = if node.operator == "FastGelu" { Unary::GeluTanh } else { Unary::Gelu };
        if Self::tensor(node, 1).is_none() {
            return self.map(node, 1, &|places| vec![Instruction::Unary(op, places[0])]);
        }
        self.map(node, 2, &|places| {
            let sum = Instruction::Binary(Binary::Add, places[0], places[1]);
            vec![sum, Instruction::Unary(op, places.len())]
        })
    }

    /// The norm of each column by numbers of the file: a factor and a number that is added.
    pub(crate) fn batch_norm(&mut self, node: &ShapedNode) -> Lowered {
        let matrix = self.matrix(node, 0)?;
        if node.int("training_mode").unwrap_or(0) != 0 {
            return Err("is in training mode".into());
        }
        if !(matrix.axes.len() == 2 && matrix.is_only_column(1)) {
            return Err("does not normalise the columns of a row".into());
        }
        let mut numbers = Vec::with_capacity(4);
        for slot in 1..5 {
            let row = self.numbers_at(node, slot)?.ok_or_else(|| format!("has no input {slot}"))?;
            if row.len() != matrix.width() {
                return Err(format!("has {} numbers for {} columns", row.len(), matrix.width()));
            }
            numbers.push(row);
        }
        let [scale, shift, mean, variance] = &numbers[..] else { return Err("has not four rows".into()) };
        let epsilon = node.float("epsilon").unwrap_or(1e-5);
        let factors: Vec<f32> = scale.iter().zip(variance).map(|(scale, variance)| scale / (variance + epsilon).sqrt()).collect();
        let added: Vec<f32> = shift.iter().zip(mean.iter().zip(&factors)).map(|(shift, (mean, x))| shift - mean * x).collect();
        Ok(vec![TensorForm::Matrix(self.scaled(node, &matrix, &factors, &added)?)])
    }

    /// Checks that a norm is over all columns.
    fn whole_rows(&self, node: &ShapedNode, matrix: &Matrix) -> Result<(), String> {
        let axis = axis_of(node.int("axis").unwrap_or(-1), matrix.axes.len())?;
        if matrix.is_all_columns(axis) { Ok(()) } else { Err("is not over all columns".into()) }
    }

    /// The constant at `slot` as a row of the matrix's width; `None` if it is left out.
    fn row_at(&mut self, node: &ShapedNode, slot: usize, matrix: &Matrix) -> Result<Option<WeightId>, String> {
        let Some(row) = self.numbers_at(node, slot)? else { return Ok(None) };
        let row = if row.len() == 1 { vec![row[0]; matrix.width()] } else { row };
        if row.len() != matrix.width() {
            return Err(format!("input {slot} has {} numbers for {} columns", row.len(), matrix.width()));
        }
        Ok(Some(self.weight(&node.name, 1, row.len(), row)))
    }
}
