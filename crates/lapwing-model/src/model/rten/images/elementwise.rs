//! Elementwise nodes as instructions of the engine's programs over pixels.

use std::sync::Arc;

use lapwing_engine::cpu::program::{CpuInstruction, MAX_INSTRUCTIONS};
use lapwing_onnx::messages::NodeProto;
use lapwing_plan::plan::{Binary, Unary};

use super::super::known::{attribute, text};
use super::constants::Constants;

/// A function of one to three operands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Function {
    Unary(Unary),
    Binary(Binary),
    /// `x · scale + shift`
    Affine,
    /// Between two bounds.
    Clip(f32, f32),
    /// Below 0 multiplied with the second operand.
    Leaky,
    /// `min(max(alpha · x + beta, 0), 1)`
    HardSigmoid(f32, f32),
    /// `x · min(max(x / 6 + 1/2, 0), 1)`
    HardSwish,
}

/// What a function reads.
#[derive(Clone, Debug)]
pub(crate) enum Operand {
    /// An image, by its name.
    Image(String),
    /// A number for each channel, or one for all.
    Constant(Arc<[f32]>),
}

/// An elementwise node.
#[derive(Clone, Debug)]
pub(crate) struct Elementwise {
    pub(crate) function: Function,
    pub(crate) operands: Vec<Operand>,
}

/// The most instructions that [`Function::write`] appends, with a constant for each operand.
const LONGEST: usize = 10;

/// Whether a program of so many instructions has room for a function.
pub(crate) const fn has_room(instructions: usize) -> bool {
    instructions + LONGEST <= MAX_INSTRUCTIONS
}

impl Elementwise {
    /// Reads a node; `None` if it is none of these, or its attributes and parameters are not known. Which of its operands are images, and
    /// whether constants fit their channels, says `operand`.
    pub(crate) fn read(node: &NodeProto, constants: &Constants, operand: impl Fn(&str) -> Option<Operand>) -> Option<Self> {
        let number = |name: &str, default: f32| attribute(node, name).map_or(default, |attribute| attribute.f);
        let input = |at: usize| node.input.get(at).filter(|name| !name.is_empty());
        let bound = |at: usize, default: f32| input(at).map_or(Some(default), |name| constants.number(name));
        let given = |count: usize| {
            let all = node.input.iter().take(count).map(|name| operand(name)).collect::<Option<Vec<_>>>()?;
            (all.len() == count && node.input.len() == count).then_some(all)
        };
        let unary = |function: Unary| Some(Self { function: Function::Unary(function), operands: given(1)? });
        let binary = |function: Binary| Some(Self { function: Function::Binary(function), operands: given(2)? });
        let of_first = |function: Function| Some(Self { function, operands: vec![operand(input(0)?)?] });
        match node.op_type.as_str() {
            "Relu" => unary(Unary::Relu),
            "Sigmoid" => unary(Unary::Sigmoid),
            "Tanh" => unary(Unary::Tanh),
            "Erf" => unary(Unary::Erf),
            "Neg" => unary(Unary::Neg),
            "Abs" => unary(Unary::Abs),
            "Sqrt" => unary(Unary::Sqrt),
            "Gelu" if matches!(text(node, "approximate"), None | Some("none")) => unary(Unary::Gelu),
            "Gelu" if text(node, "approximate") == Some("tanh") => unary(Unary::GeluTanh),
            "Add" => binary(Binary::Add),
            "Sub" => binary(Binary::Sub),
            "Mul" => binary(Binary::Mul),
            "Div" => binary(Binary::Div),
            "Pow" => of_first(Function::Unary(Unary::Pow(constants.number(input(1)?)?))),
            "Clip" => {
                of_first(Function::Clip(bound(1, number("min", f32::NEG_INFINITY))?, bound(2, number("max", f32::INFINITY))?))
            }
            "LeakyRelu" => {
                let slope = Operand::Constant([number("alpha", 0.01)].into());
                Some(Self { function: Function::Leaky, operands: vec![operand(input(0)?)?, slope] })
            }
            "PRelu" => {
                let operands = given(2)?;
                let is_constant = matches!(operands.get(1), Some(Operand::Constant(_)));
                is_constant.then_some(Self { function: Function::Leaky, operands })
            }
            "HardSigmoid" => of_first(Function::HardSigmoid(number("alpha", 0.2), number("beta", 0.5))),
            "HardSwish" => of_first(Function::HardSwish),
            "BatchNormalization" if node.output.iter().skip(1).all(String::is_empty) => {
                let [gamma, beta, mean, variance] = [1, 2, 3, 4].map(|at| constants.floats(node.input.get(at)?));
                let (gamma, beta, mean, variance) = (gamma?.1, beta?.1, mean?.1, variance?.1);
                let epsilon = number("epsilon", 1e-5);
                let scale: Vec<f32> = gamma.iter().zip(&variance).map(|(gamma, of)| gamma / (of + epsilon).sqrt()).collect();
                let shift: Vec<f32> =
                    beta.iter().zip(mean.iter().zip(&scale)).map(|(beta, (mean, scale))| beta - mean * scale).collect();
                let all = [gamma.len(), variance.len(), beta.len(), mean.len()];
                let operands = vec![operand(input(0)?)?, Operand::Constant(scale.into()), Operand::Constant(shift.into())];
                (all == [all[0]; 4]).then_some(Self { function: Function::Affine, operands })
            }
            _ => None,
        }
    }

    /// Appends its instructions; `image` gives the instruction that holds an image. Returns the one that holds the result.
    pub(crate) fn write(
        &self,
        code: &mut Vec<CpuInstruction>,
        mut image: impl FnMut(&str, &mut Vec<CpuInstruction>) -> usize,
    ) -> usize {
        let places: Vec<usize> = (self.operands.iter())
            .map(|operand| match operand {
                Operand::Image(name) => image(name, code),
                Operand::Constant(row) if row.len() == 1 => push(code, CpuInstruction::Scalar(row[0])),
                Operand::Constant(row) => push(code, CpuInstruction::Row(Arc::clone(row))),
            })
            .collect();
        let x = places[0];
        let second = places.get(1).copied().unwrap_or(x);
        let binary = |code: &mut Vec<CpuInstruction>, function, a, b| push(code, CpuInstruction::Binary(function, a, b));
        // a bound comes first: what is not a number stays so
        let between = |code: &mut Vec<CpuInstruction>, x, least: f32, most: f32| {
            let least = push(code, CpuInstruction::Scalar(least));
            let above = binary(code, Binary::Max, least, x);
            let most = push(code, CpuInstruction::Scalar(most));
            binary(code, Binary::Min, most, above)
        };
        match self.function {
            Function::Unary(function) => push(code, CpuInstruction::Unary(function, x)),
            Function::Binary(function) => binary(code, function, x, second),
            Function::Affine => {
                let scaled = binary(code, Binary::Mul, x, second);
                binary(code, Binary::Add, scaled, places.get(2).copied().unwrap_or(x))
            }
            Function::Clip(least, most) => between(code, x, least, most),
            Function::Leaky => {
                let scaled = binary(code, Binary::Mul, x, second);
                let zero = push(code, CpuInstruction::Scalar(0.0));
                let is_below = binary(code, Binary::Less, x, zero);
                push(code, CpuInstruction::Where([is_below, scaled, x]))
            }
            Function::HardSigmoid(alpha, beta) => {
                let line = line(code, x, alpha, beta);
                between(code, line, 0.0, 1.0)
            }
            Function::HardSwish => {
                let line = line(code, x, 1.0 / 6.0, 0.5);
                let gate = between(code, line, 0.0, 1.0);
                binary(code, Binary::Mul, x, gate)
            }
        }
    }
}

/// `alpha · x + beta`
fn line(code: &mut Vec<CpuInstruction>, x: usize, alpha: f32, beta: f32) -> usize {
    let alpha = push(code, CpuInstruction::Scalar(alpha));
    let scaled = push(code, CpuInstruction::Binary(Binary::Mul, x, alpha));
    let beta = push(code, CpuInstruction::Scalar(beta));
    push(code, CpuInstruction::Binary(Binary::Add, scaled, beta))
}

fn push(code: &mut Vec<CpuInstruction>, instruction: CpuInstruction) -> usize {
    code.push(instruction);
    code.len() - 1
}
