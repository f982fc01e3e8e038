//! Elementwise operators.

use lapwing_onnx::shaped::{Constant, ShapedNode};
use lapwing_onnx::tensor::Datatype;

use super::activations::composed;
use super::constant::{cast, floats, integers, of_floats, scalar};
use super::distances::positions;
use super::form::{Axis, Matrix, Places};
use super::layout::{Operand, common, row};
use super::linear::aligned;
use super::reshape::rank;
use super::{Lowered, Lowering, TensorForm};
use crate::plan::{Binary, Fold, Instruction, Op, Program, Rows, Unary};

fn unary_of(operator: &str) -> Option<Unary> {
    Some(match operator {
        "Abs" => Unary::Abs,
        "Ceil" => Unary::Ceil,
        "Erf" => Unary::Erf,
        "Exp" => Unary::Exp,
        "Floor" => Unary::Floor,
        "Log" => Unary::Log,
        "Neg" => Unary::Neg,
        "Reciprocal" => Unary::Recip,
        "Relu" => Unary::Relu,
        "Round" => Unary::Round,
        "Sigmoid" => Unary::Sigmoid,
        "Sqrt" => Unary::Sqrt,
        "Tanh" => Unary::Tanh,
        "Not" => Unary::Not,
        "Sin" => Unary::Sin,
        "Cos" => Unary::Cos,
        _ => return None,
    })
}

impl Lowering<'_> {
    /// Operators that compute each element from those at the same place.
    pub(crate) fn elementwise(&mut self, node: &ShapedNode) -> Lowered {
        match composed(node)? {
            Some(code) => self.map(node, 1, &|_| code.clone()),
            None if unary_of(&node.operator).is_some() => self.unary(node),
            None => self.binary(node),
        }
    }

    fn binary(&mut self, node: &ShapedNode) -> Lowered {
        let name = node.operator.as_str();
        if name == "Div" && self.is_whole(node, 0) {
            return Err("divides whole numbers".into());
        }
        let op = match name {
            "Add" | "Sum" => Binary::Add,
            "Sub" => Binary::Sub,
            // operands are booleans, which are 1 and 0
            "Mul" | "And" => Binary::Mul,
            "Div" => Binary::Div,
            "Min" => Binary::Min,
            "Max" | "Or" => Binary::Max,
            "Equal" => Binary::Equal,
            "Less" => Binary::Less,
            "LessOrEqual" => Binary::LessOrEqual,
            "Greater" => Binary::Greater,
            "GreaterOrEqual" => Binary::GreaterOrEqual,
            "Pow" => return self.power(node),
            _ => return Err("the plan has no such operator".into()),
        };
        if node.inputs.len() != 2 {
            return match op {
                Binary::Add | Binary::Min | Binary::Max if !node.inputs.is_empty() => self.folded(node, op),
                _ => Err(format!("has {} operands", node.inputs.len())),
            };
        }
        if let Some(form) = self.of_places(node, op)? {
            return Ok(vec![form]);
        }
        if let Some(form) = self.rotated(node, op)? {
            return Ok(vec![form]);
        }
        if let Some(pairs) = self.of_pairs(node)? {
            return Ok(vec![TensorForm::Pairs(pairs)]);
        }
        if let Some(form) = self.of_constants(node, name)? {
            return Ok(vec![form]);
        }
        if let Some(mean) = self.mean_of_tokens(node, op)? {
            return Ok(vec![TensorForm::Matrix(mean)]);
        }
        if let Some(scores) = self.scored(node, op)? {
            return Ok(vec![TensorForm::Scores(scores)]);
        }
        self.map(node, 2, &|places| vec![Instruction::Binary(op, places[0], places[1])])
    }

    /// One operator over any number of operands.
    fn folded(&mut self, node: &ShapedNode, op: Binary) -> Lowered {
        if node.inputs.len() == 1 {
            return Ok(vec![self.input(node, 0)?]);
        }
        self.map(node, node.inputs.len(), &|places| {
            let mut steps = vec![Instruction::Binary(op, places[0], places[1])];
            for place in &places[2..] {
                steps.push(Instruction::Binary(op, places.len() + steps.len() - 1, *place));
            }
            steps
        })
    }

    fn power(&mut self, node: &ShapedNode) -> Lowered {
        let exponent = self.constant(node, 1).map_err(|_| "has an exponent that is no constant")?;
        let exponent = exponent.as_deref().and_then(scalar).ok_or("has more than one exponent")?;
        let op = match exponent {
            2.0 => Unary::Square,
            0.5 => Unary::Sqrt,
            -0.5 => Unary::Rsqrt,
            -1.0 => Unary::Recip,
            exponent => Unary::Pow(exponent),
        };
        self.map(node, 1, &|places| vec![Instruction::Unary(op, places[0])])
    }

    /// Sums and products of places, and what is true of them; `None` if no operand is a place.
    fn of_places(&self, node: &ShapedNode, op: Binary) -> Result<Option<TensorForm>, String> {
        let (places, other, is_left) = match (self.input(node, 0)?, self.input(node, 1)?) {
            (TensorForm::Places(places), other) => (places, other, true),
            (other, TensorForm::Places(places)) => (places, other, false),
            _ => return Ok(None),
        };
        let no = "works on the tokens' places, as for relative positions";
        let number = if let TensorForm::Const(constant) = &other { scalar(constant) } else { None };
        let rank = places.rank.max(rank(&other));
        let places = places.of_rank(rank);
        Ok(Some(match (op, other, number) {
            (Binary::Add, TensorForm::Places(other), _) if !(places.is_after_past && other.is_after_past) => {
                let other = other.of_rank(rank);
                let terms = [places.terms, other.terms].concat();
                let is_after_past = places.is_after_past || other.is_after_past;
                TensorForm::Places(Places { rank, from: places.from + other.from, is_after_past, terms })
            }
            (Binary::Add, TensorForm::Count { of: Axis::Past, is_reciprocal: false }, _) if !places.is_after_past => {
                TensorForm::Places(Places { is_after_past: true, ..places })
            }
            (Binary::Add, _, Some(number)) if number >= 0.0 && number.fract() == 0.0 => {
                TensorForm::Places(Places { from: places.from + number as usize, ..places })
            }
            (Binary::Mul, TensorForm::Count { of, is_reciprocal: false }, _) if places.from == 0 && !places.is_after_past => {
                let mut places = places;
                if places.terms.iter().any(|term| term.times.is_some()) {
                    return Err(no.into());
                }
                places.terms.iter_mut().for_each(|term| term.times = Some(of));
                TensorForm::Places(places)
            }
            (Binary::Mul, _, Some(1.0)) => TensorForm::Places(places),
            // places are never below zero
            (Binary::GreaterOrEqual, _, Some(least)) if is_left && least <= places.from as f32 => truth(rank),
            (Binary::LessOrEqual, _, Some(least)) if !is_left && least <= places.from as f32 => truth(rank),
            _ => return Err(no.into()),
        }))
    }

    /// What two constants of the walk come to, and what one that changes nothing leaves; `None` otherwise.
    fn of_constants(&self, node: &ShapedNode, name: &str) -> Result<Option<TensorForm>, String> {
        let (first, second) = (self.input(node, 0)?, self.input(node, 1)?);
        let neutral = match name {
            "And" => 1,
            "Or" => 0,
            _ => return Ok(None),
        };
        let is_neutral = |constant: &Constant| integers(constant).is_ok_and(|all| all.iter().all(|truth| *truth == neutral));
        let most = rank(&first).max(rank(&second));
        for (one, other) in [(&first, &second), (&second, &first)] {
            let TensorForm::Const(constant) = one else { continue };
            if is_neutral(constant) && constant.elements() == 1 {
                return Ok(match other {
                    TensorForm::Matrix(matrix) => Some(TensorForm::Matrix(matrix.of_rank(most))),
                    TensorForm::Const(other) => Some(TensorForm::Const(super::constant::of_rank(other, most).into())),
                    TensorForm::Pairs(pairs) => Some(TensorForm::Pairs(pairs.clone().of_rank(most))),
                    _ => None,
                });
            }
        }
        Ok(None)
    }

    /// A mean over all tokens: the sum divided by their number.
    fn mean_of_tokens(&mut self, node: &ShapedNode, op: Binary) -> Result<Option<Matrix>, String> {
        let (sum, is_reciprocal) = match (op, self.input(node, 0)?, self.input(node, 1)?) {
            (_, TensorForm::Matrix(sum), TensorForm::Count { of: Axis::Token, is_reciprocal }) => (sum, is_reciprocal),
            (Binary::Mul, TensorForm::Count { of: Axis::Token, is_reciprocal: true }, TensorForm::Matrix(sum)) => (sum, true),
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

    fn unary(&mut self, node: &ShapedNode) -> Lowered {
        let op = unary_of(&node.operator).ok_or("the plan has no such operator")?;
        if let (TensorForm::Count { of: of @ Axis::Token, is_reciprocal: false }, Unary::Recip) = (self.input(node, 0)?, op) {
            return Ok(vec![TensorForm::Count { of, is_reciprocal: true }]);
        }
        if let (TensorForm::Rotation(rotation), Unary::Neg) = (self.input(node, 0)?, op) {
            let negative = rotation.negative().ok_or("takes parts of columns in a way that no rotation does")?;
            return Ok(vec![negative]);
        }
        if let (TensorForm::Const(constant), Unary::Not) = (self.input(node, 0)?, op) {
            let not: Vec<u8> = constant.data.iter().map(|truth| u8::from(*truth == 0)).collect();
            return Ok(vec![TensorForm::Const(Constant { data: not.into(), ..(*constant).clone() }.into())]);
        }
        self.map(node, 1, &|places| vec![Instruction::Unary(op, places[0])])
    }

    /// Which scores are no numbers: only to be replaced by zero.
    pub(crate) fn is_nan(&mut self, node: &ShapedNode) -> Lowered {
        match self.input(node, 0)? {
            TensorForm::Scores(scores) if scores.is_softmax => Ok(vec![TensorForm::NaNs(scores)]),
            _ => Err("the plan has no such operator".into()),
        }
    }

    /// Select: the second operand where the first is true, else the third.
    pub(crate) fn choose(&mut self, node: &ShapedNode) -> Lowered {
        if let (TensorForm::NaNs(of), TensorForm::Scores(scores)) = (self.input(node, 0)?, self.input(node, 2)?) {
            let is_zero = self.constant(node, 1).is_ok_and(|number| number.as_deref().and_then(scalar) == Some(0.0));
            return if is_zero && of == scores {
                Ok(vec![TensorForm::Scores(super::form::Scores { is_guarded: true, ..scores })])
            } else {
                Err("replaces scores by something that is not a mask".into())
            };
        }
        if let Some(scores) = self.masked(node)? {
            return Ok(vec![TensorForm::Scores(scores)]);
        }
        if let Some(pairs) = self.chosen_pairs(node)? {
            return Ok(vec![TensorForm::Pairs(pairs)]);
        }
        if let TensorForm::Const(condition) = self.input(node, 0)?
            && condition.elements() == 1
        {
            let is_first = scalar(&condition) != Some(0.0);
            return Ok(vec![self.input(node, if is_first { 1 } else { 2 })?]);
        }
        self.map(node, 3, &|places| vec![Instruction::Where(places[0], places[1], places[2])])
    }

    pub(crate) fn cast(&mut self, node: &ShapedNode) -> Lowered {
        let output = node.outputs.first().copied().flatten().ok_or("makes nothing")?;
        let to = self.graph.tensor(output).datatype.ok_or("makes an unknown type")?;
        let is_whole = |kind: Option<Datatype>| {
            kind.is_none_or(|kind| !matches!(kind, Datatype::Fp16 | Datatype::Bf16 | Datatype::Fp32 | Datatype::Fp64))
        };
        let from = Self::tensor(node, 0).and_then(|tensor| self.graph.tensor(tensor).datatype);
        let made = match self.input(node, 0)? {
            TensorForm::ByPosition(constant, axis, at) => TensorForm::ByPosition(cast(&constant, to)?.into(), axis, at),
            TensorForm::Const(constant) => TensorForm::Const(cast(&constant, to)?.into()),
            form @ (TensorForm::Places(_) | TensorForm::Tuple(_)) if is_whole(Some(to)) && to != Datatype::Bool => form,
            form @ TensorForm::Count { .. } => form,
            form @ TensorForm::Flat(..) if is_whole(Some(to)) == is_whole(from) && to != Datatype::Bool => form,
            form @ (TensorForm::Scores(_) | TensorForm::Rotation(_)) if to == Datatype::Fp32 && from == Some(to) => form,
            form @ TensorForm::Pairs(_) if from == Some(to) => form,
            TensorForm::Places(places) if places.positions(self.has_past()).is_some() && to != Datatype::Bool => {
                positions(&places, self.has_past(), to)?
            }
            TensorForm::Matrix(matrix) => match to {
                Datatype::Fp32 if is_whole(from) || from == Some(Datatype::Fp32) => {
                    TensorForm::Matrix(Matrix { value: self.float(node, &matrix), ..matrix })
                }
                Datatype::Bool if from == Some(Datatype::Bool) => TensorForm::Matrix(matrix),
                Datatype::Bool => {
                    return self.map(node, 1, &|places| {
                        let not = |x| Instruction::Unary(Unary::Not, x);
                        vec![not(places[0]), not(places[0] + 1)]
                    });
                }
                to if is_whole(Some(to)) && is_whole(from) => TensorForm::Matrix(matrix),
                to => return Err(format!("makes {} of {}", to.name(), from.map_or("an unknown type", Datatype::name))),
            },
            _ => return Err("works on the tokens' places".into()),
        };
        Ok(vec![made])
    }

    /// A map over the first `count` inputs; `code` gets their indices and ends with the result.
    pub(crate) fn map(&mut self, node: &ShapedNode, count: usize, code: &dyn Fn(&[usize]) -> Vec<Instruction>) -> Lowered {
        let mut operands = Vec::with_capacity(count);
        for slot in 0..count {
            let form = self.input(node, slot)?;
            operands.push(self.operand(node, form)?);
        }
        self.mapped(node, &operands, code).map(|made| vec![TensorForm::Matrix(made)])
    }

    /// A map over these operands.
    pub(crate) fn mapped(
        &mut self,
        node: &ShapedNode,
        operands: &[Operand],
        code: &dyn Fn(&[usize]) -> Vec<Instruction>,
    ) -> Result<Matrix, String> {
        let operands = aligned(operands);
        let is_merged = operands.iter().any(|operand| matches!(operand, Operand::Matrix(matrix) if matrix.is_merged()));
        let is_number = |operand: &&Operand| matches!(operand, Operand::Const(constant) if constant.elements() == 1);
        if is_merged && operands.iter().filter(|operand| !is_number(operand)).count() > 1 {
            return Err("works on heads that are merged with the batch".into());
        }
        let mut layout = common(&operands)?;
        let (mut args, mut steps) = (Vec::new(), Vec::new());
        for operand in &operands {
            steps.push(match operand {
                Operand::Matrix(matrix) => {
                    args.push(matrix.value);
                    Instruction::Arg(args.len() - 1)
                }
                Operand::Const(constant) => match scalar(constant) {
                    Some(number) => Instruction::Scalar(number),
                    None => {
                        let row = row(constant, &layout)?;
                        Instruction::Weight(self.weight(&node.name, 1, row.len(), row))
                    }
                },
            });
        }
        let places: Vec<usize> = (0..steps.len()).collect();
        steps.extend(code(&places));
        layout.value = self.push(&node.name, layout.rows(), layout.width(), Op::Map { program: Program::new(steps), args });
        Ok(layout)
    }

    /// A map of one matrix by instructions that begin with its element.
    pub(crate) fn over(&mut self, node: &ShapedNode, matrix: &Matrix, code: Vec<Instruction>) -> Matrix {
        let program = Program::new([&[Instruction::Arg(0)][..], &code].concat());
        let value = self.push(&node.name, matrix.rows(), matrix.width(), Op::Map { program, args: vec![matrix.value] });
        Matrix { value, ..matrix.clone() }
    }

    /// A row of numbers that each column of a matrix is multiplied by, and one that is added.
    pub(crate) fn scaled(&mut self, node: &ShapedNode, x: &Matrix, scale: &[f32], shift: &[f32]) -> Result<Matrix, String> {
        let mut shape = vec![1; x.axes.len()];
        let column = x.axes.iter().position(|axis| matches!(axis, Axis::Column(_))).unwrap_or(0);
        shape[column] = scale.len();
        let operand = |numbers: &[f32]| Operand::Const(of_floats(shape.clone(), numbers));
        let (times, plus) = (operand(scale), operand(shift));
        let product = self.mapped(node, &[Operand::Matrix(x.clone()), times], &|places| {
            vec![Instruction::Binary(Binary::Mul, places[0], places[1])]
        })?;
        self.mapped(node, &[Operand::Matrix(product), plus], &|places| {
            vec![Instruction::Binary(Binary::Add, places[0], places[1])]
        })
    }

    /// The floats of a constant input.
    pub(crate) fn numbers_at(&self, node: &ShapedNode, slot: usize) -> Result<Option<Vec<f32>>, String> {
        self.constant(node, slot)?.map(|constant| floats(&constant)).transpose()
    }
}

/// A truth value that holds everywhere.
fn truth(rank: usize) -> TensorForm {
    TensorForm::Const(Constant { datatype: Datatype::Bool, shape: vec![1; rank], data: vec![1].into() }.into())
}
