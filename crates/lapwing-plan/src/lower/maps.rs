//! Elementwise operators, and operators that fold or normalise columns.

use tract_onnx::prelude::{DatumType, TypedNode};
use tract_onnx::tract_core::ops::binary::TypedBinOp;
use tract_onnx::tract_core::ops::cast::Cast;
use tract_onnx::tract_core::ops::element_wise::ElementWiseOp;
use tract_onnx::tract_core::ops::math::PowConst;
use tract_onnx::tract_core::ops::nn::{HardSwish, LeakyRelu, Reduce, Reducer, RmsNorm, Softmax, SoftmaxKind};

use super::form::{Axis, Matrix};
use super::layout::{Operand, common, row};
use super::{Lowered, Lowering, TensorForm, dimension, scalar};
use crate::plan::{Binary, Fold, Instruction, Op, Program, Rows, Unary, ValueId};

/// The most outermost columns of a fold: each becomes a slice of its own, and an argument.
const MOST_FOLDED: usize = 16;

impl Lowering<'_> {
    pub(crate) fn binary(&mut self, node: &TypedNode, op: &TypedBinOp) -> Lowered {
        let name = op.0.name();
        let is_whole = |slot: usize| self.model.outlet_fact(node.inputs[slot]).is_ok_and(|fact| fact.datum_type.is_integer());
        if name == "Div" && is_whole(0) {
            return Err("divides whole numbers".into());
        }
        let op = match name {
            "Add" => Binary::Add,
            "Sub" => Binary::Sub,
            // operands are booleans, which are 1 and 0
            "Mul" | "And" => Binary::Mul,
            "Div" => Binary::Div,
            "Min" => Binary::Min,
            "Max" | "Or" => Binary::Max,
            "Eq" | "NE" => Binary::Equal,
            "LT" => Binary::Less,
            "LTE" => Binary::LessOrEqual,
            "GT" => Binary::Greater,
            "GTE" => Binary::GreaterOrEqual,
            "Pow" => return self.power(node),
            other => return Err(format!("the plan has no {other}")),
        };
        if let Some(mean) = self.mean_of_tokens(node, op)? {
            return Ok(Some(TensorForm::Matrix(mean)));
        }
        if let Some(scores) = self.scored(node, op)? {
            return Ok(Some(TensorForm::Scores(scores)));
        }
        self.map(node, 2, &|places| {
            let mut steps = vec![Instruction::Binary(op, places[0], places[1])];
            if name == "NE" {
                steps.push(Instruction::Unary(Unary::Not, places.len()));
            }
            steps
        })
    }

    fn power(&mut self, node: &TypedNode) -> Lowered {
        let TensorForm::Const(exponent) = self.input(node, 1)? else { return Err("has an exponent that is no constant".into()) };
        let exponent = scalar(exponent).ok_or("has more than one exponent")?;
        self.map(node, 1, &|places| vec![Instruction::Unary(Unary::Pow(exponent), places[0])])
    }

    /// A mean over all tokens: the sum divided by their number.
    fn mean_of_tokens(&mut self, node: &TypedNode, op: Binary) -> Result<Option<Matrix>, String> {
        let (sum, is_reciprocal) = match (op, self.input(node, 0)?, self.input(node, 1)?) {
            (_, TensorForm::Matrix(sum), TensorForm::Count { is_reciprocal }) => (sum.clone(), *is_reciprocal),
            (Binary::Mul, TensorForm::Count { is_reciprocal: true }, TensorForm::Matrix(sum)) => (sum.clone(), true),
            _ => return Ok(None),
        };
        let maker = self.plan.nodes.iter().find(|made| made.output == sum.value).map(|made| &made.op);
        match (op, maker) {
            (Binary::Mul | Binary::Div, Some(Op::Pool { x, fold: Fold::Sum })) if is_reciprocal == (op == Binary::Mul) => {
                let op = Op::Pool { x: *x, fold: Fold::Mean };
                let value = self.push(&node.name, Rows::Batch, sum.width(), op);
                Ok(Some(Matrix { value, ..sum }))
            }
            _ => Err("works with the number of tokens in a way that no mean does".into()),
        }
    }

    pub(crate) fn unary(&mut self, node: &TypedNode, op: &ElementWiseOp) -> Lowered {
        if let (TensorForm::Count { is_reciprocal: false }, "Recip") = (self.input(node, 0)?, &*op.0.name()) {
            return Ok(Some(TensorForm::Count { is_reciprocal: true }));
        }
        if let Some(code) = composed(op) {
            return self.map(node, 1, &|_| code[1..].to_vec());
        }
        let op = match op.0.name().as_str() {
            "Abs" => Unary::Abs,
            "Ceil" => Unary::Ceil,
            "Erf" => Unary::Erf,
            "Exp" => Unary::Exp,
            "Floor" => Unary::Floor,
            "Ln" => Unary::Log,
            "Neg" => Unary::Neg,
            "Recip" => Unary::Recip,
            "RoundHalfToEven" => Unary::Round,
            "Rsqrt" => Unary::Rsqrt,
            "Sigmoid" => Unary::Sigmoid,
            "Sqrt" => Unary::Sqrt,
            "Square" => Unary::Square,
            "Tanh" => Unary::Tanh,
            "GeluExact" => Unary::Gelu,
            "GeluApproximate" => Unary::GeluTanh,
            "Silu" => Unary::Silu,
            "Not" => Unary::Not,
            other => match op.0.downcast_ref::<PowConst>() {
                Some(PowConst { exponent }) => Unary::Pow(*exponent),
                None => return Err(format!("the plan has no {other}")),
            },
        };
        self.map(node, 1, &|places| vec![Instruction::Unary(op, places[0])])
    }

    /// Select: the second operand where the first is true, else the third.
    pub(crate) fn choose(&mut self, node: &TypedNode) -> Lowered {
        if let Some(scores) = self.masked(node)? {
            return Ok(Some(TensorForm::Scores(scores)));
        }
        self.map(node, 3, &|places| vec![Instruction::Where(places[0], places[1], places[2])])
    }

    pub(crate) fn cast(&mut self, node: &TypedNode, op: &Cast) -> Lowered {
        let from = self.model.outlet_fact(node.inputs[0]).map_err(|e| format!("{e:#}"))?.datum_type;
        if let TensorForm::ByPosition(tensor, axis, at) = self.input(node, 0)? {
            let tensor = tensor.cast_to_dt(op.to).map_err(|e| format!("{e:#}"))?.into_owned();
            return Ok(Some(TensorForm::ByPosition(tensor.into(), *axis, *at)));
        }
        if let TensorForm::Const(tensor) = self.input(node, 0)? {
            let is_count = dimension(tensor).is_some_and(|length| self.is_tokens(&length)) && op.to == DatumType::F32;
            return if is_count { Ok(Some(TensorForm::Count { is_reciprocal: false })) } else { self.cast_const(node, op) };
        }
        if let TensorForm::Positions { .. } = self.input(node, 0)? {
            let is_count = op.to.is_integer() || op.to == DatumType::TDim;
            return if is_count { Ok(Some(self.input(node, 0)?.clone())) } else { Err("works on the tokens' places".into()) };
        }
        let matrix = self.matrix(node, 0)?;
        let is_whole = |kind: DatumType| kind.is_integer() || kind == DatumType::Bool || kind == DatumType::TDim;
        let made = match op.to {
            DatumType::F32 if is_whole(from) || from == DatumType::F32 => Matrix { value: self.float(node, &matrix), ..matrix },
            DatumType::Bool => {
                return self.map(node, 1, &|places| {
                    let not = |x| Instruction::Unary(Unary::Not, x);
                    vec![not(places[0]), not(places[0] + 1)]
                });
            }
            to if is_whole(to) && is_whole(from) => matrix,
            to => return Err(format!("makes {to:?} of {from:?}")),
        };
        Ok(Some(TensorForm::Matrix(made)))
    }

    fn cast_const(&self, node: &TypedNode, op: &Cast) -> Lowered {
        let TensorForm::Const(tensor) = self.input(node, 0)? else { return Err("is no constant".into()) };
        let made = tensor.cast_to_dt(op.to).map_err(|e| format!("{e:#}"))?.into_owned();
        Ok(Some(TensorForm::Const(made.into())))
    }

    /// A map over the first `count` inputs; `code` gets their indices and ends with the result.
    fn map(&mut self, node: &TypedNode, count: usize, code: &dyn Fn(&[usize]) -> Vec<Instruction>) -> Lowered {
        let mut operands = Vec::with_capacity(count);
        for slot in 0..count {
            operands.push(match self.input(node, slot)?.clone() {
                TensorForm::Const(tensor) => Operand::Const((*tensor).clone()),
                TensorForm::Matrix(matrix) => Operand::Matrix(matrix),
                TensorForm::ByPosition(tensor, axis, from) => Operand::Matrix(self.by_position(node, &tensor, axis, from)?),
                TensorForm::Positions { .. } => return Err("works on the tokens' places, as for relative positions".into()),
                TensorForm::Count { .. } => return Err("works with the number of tokens".into()),
                TensorForm::Scores(_) => return Err("works on scores in a way that no attention does".into()),
            });
        }
        let mut layout = common(&operands)?;
        let (mut args, mut steps) = (Vec::new(), Vec::new());
        for operand in &operands {
            steps.push(match operand {
                Operand::Matrix(matrix) => {
                    args.push(matrix.value);
                    Instruction::Arg(args.len() - 1)
                }
                Operand::Const(tensor) => match scalar(tensor) {
                    Some(number) => Instruction::Scalar(number),
                    None => {
                        let row = row(tensor, &layout)?;
                        Instruction::Weight(self.weight(&node.name, 1, row.len(), row))
                    }
                },
            });
        }
        let places: Vec<usize> = (0..steps.len()).collect();
        steps.extend(code(&places));
        layout.value = self.push(&node.name, layout.rows(), layout.width(), Op::Map { program: Program::new(steps), args });
        Ok(Some(TensorForm::Matrix(layout)))
    }

    /// Folds columns or tokens.
    pub(crate) fn reduce(&mut self, node: &TypedNode, op: &Reduce) -> Lowered {
        let matrix = self.matrix(node, 0)?;
        let fold = match op.reducer {
            Reducer::Sum | Reducer::MeanOfSquares => Fold::Sum,
            Reducer::Max => Fold::Max,
            Reducer::Min => Fold::Min,
            ref other => return Err(format!("the plan folds by no {other:?}")),
        };
        let mut times = 1;
        let mut folded = Vec::new();
        for axis in op.axes.iter().map(|place| matrix.axes[*place]) {
            match axis {
                Axis::One => {}
                Axis::Spread(Some(length)) if op.reducer == Reducer::Sum => times *= length,
                Axis::Spread(None) if op.reducer == Reducer::Sum => return Err("sums what is the same for each token".into()),
                Axis::Spread(_) => {}
                axis => folded.push(axis),
            }
        }
        if times > 1 {
            return Err(format!("sums what is the same {times} times"));
        }
        let columns = folded.iter().filter(|axis| matches!(axis, Axis::Column(_))).count();
        let mut x = self.float(node, &matrix);
        let is_square = op.reducer == Reducer::MeanOfSquares;
        if is_square {
            let program = Program::new(vec![Instruction::Arg(0), Instruction::Unary(Unary::Square, 0)]);
            x = self.push(&node.name, matrix.rows(), matrix.width(), Op::Map { program, args: vec![x] });
        }
        let axes = matrix.axes.iter().enumerate().map(|(place, axis)| if op.axes.contains(&place) { Axis::One } else { *axis });
        let axes: Vec<Axis> = axes.collect();
        if folded == [Axis::Token] && !is_square {
            let value = self.push(&node.name, Rows::Batch, matrix.width(), Op::Pool { x, fold });
            return Ok(Some(TensorForm::Matrix(Matrix { value, axes, sizes: matrix.sizes })));
        }
        if folded == [Axis::Column(0)] && matrix.sizes.len() > 1 && matrix.sizes[0] <= MOST_FOLDED && !is_square {
            return self.fold_outermost(node, &matrix, axes, op).map(|made| Some(TensorForm::Matrix(made)));
        }
        if columns != folded.len() || columns != matrix.sizes.len() {
            return Err("folds some columns, or others than columns".into());
        }
        let mut value = if columns == 0 { x } else { self.push(&node.name, matrix.rows(), 1, Op::Reduce { x, fold }) };
        if is_square {
            #[allow(clippy::cast_precision_loss, reason = "widths are small")]
            let share = Instruction::Scalar(1.0 / matrix.width() as f32);
            let program = Program::new(vec![Instruction::Arg(0), share, Instruction::Binary(Binary::Mul, 0, 1)]);
            value = self.push(&node.name, matrix.rows(), 1, Op::Map { program, args: vec![value] });
        }
        Ok(Some(TensorForm::Matrix(Matrix { value, axes, sizes: Vec::new() })))
    }

    /// Folds the outermost columns, such as the features of a row: each becomes a slice of its own.
    fn fold_outermost(&mut self, node: &TypedNode, matrix: &Matrix, axes: Vec<Axis>, op: &Reduce) -> Result<Matrix, String> {
        let join = match op.reducer {
            Reducer::Max => Binary::Max,
            Reducer::Min => Binary::Min,
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

    pub(crate) fn rms_norm(&mut self, node: &TypedNode, op: &RmsNorm) -> Lowered {
        let matrix = self.matrix(node, 0)?;
        let epsilon = scalar(&op.eps).ok_or("has no single epsilon")?;
        self.over_columns(&matrix, op.axis)?;
        let x = self.float(node, &matrix);
        let value = self.push(&node.name, matrix.rows(), matrix.width(), Op::RmsNorm { x, epsilon, scale: None });
        Ok(Some(TensorForm::Matrix(Matrix { value, ..matrix })))
    }

    pub(crate) fn softmax(&mut self, node: &TypedNode, op: &Softmax) -> Lowered {
        let [axis] = op.axes[..] else { return Err("is over several axes".into()) };
        if op.kind != SoftmaxKind::Softmax || op.quant_output_dt.is_some() {
            return Err(format!("the plan has no {:?}", op.kind));
        }
        if let TensorForm::Scores(scores) = self.input(node, 0)? {
            return Ok(Some(TensorForm::Scores(scores.softmax(axis)?)));
        }
        let matrix = self.matrix(node, 0)?;
        self.over_columns(&matrix, axis)?;
        let x: ValueId = self.float(node, &matrix);
        let value = self.push(&node.name, matrix.rows(), matrix.width(), Op::Softmax(x));
        Ok(Some(TensorForm::Matrix(Matrix { value, ..matrix })))
    }

    fn over_columns(&self, matrix: &Matrix, axis: usize) -> Result<(), String> {
        let is_all = match matrix.axes.get(axis) {
            Some(Axis::Column(0)) => matrix.sizes.len() == 1,
            Some(Axis::One) => matrix.sizes.is_empty(),
            _ => false,
        };
        if is_all { Ok(()) } else { Err("is not over all columns".into()) }
    }
}

/// Operators of tract that take several instructions.
fn composed(op: &ElementWiseOp) -> Option<Vec<Instruction>> {
    use Instruction::{Arg, Binary as Two, Scalar};
    if let Some(LeakyRelu { alpha }) = op.0.downcast_ref::<LeakyRelu>() {
        // max(x, 0) plus a multiple of min(x, 0)
        let (most, least) = (Two(Binary::Max, 0, 1), Two(Binary::Min, 0, 1));
        return Some(vec![Arg(0), Scalar(0.0), most, least, Scalar(*alpha), Two(Binary::Mul, 3, 4), Two(Binary::Add, 2, 5)]);
    }
    if op.0.is::<HardSwish>() {
        let gate = [Scalar(1.0 / 6.0), Two(Binary::Mul, 0, 1), Scalar(0.5), Two(Binary::Add, 2, 3)];
        let held = [Scalar(0.0), Two(Binary::Max, 4, 5), Scalar(1.0), Two(Binary::Min, 6, 7), Two(Binary::Mul, 0, 8)];
        return Some([&[Arg(0)][..], &gate, &held].concat());
    }
    None
}
