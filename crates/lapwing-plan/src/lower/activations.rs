//! Operators that take several instructions, by their definitions in ONNX.

use lapwing_onnx::shaped::ShapedNode;

use super::constant::{integers, scalar};
use crate::plan::Instruction::{self, Binary as Two, Scalar, Unary as One};
use crate::plan::{Binary, Unary};

/// The instructions of an operator of one tensor, whose element is instruction 0; `None` if it is none of these.
///
/// # Errors
///
/// An attribute that has no meaning.
pub(crate) fn composed(node: &ShapedNode) -> Result<Option<Vec<Instruction>>, String> {
    let number = |name: &str, default: f32| node.float(name).unwrap_or(default);
    Ok(Some(match node.operator.as_str() {
        "Gelu" => match node.word("approximate").unwrap_or("none") {
            "none" => vec![One(Unary::Gelu, 0)],
            "tanh" => vec![One(Unary::GeluTanh, 0)],
            other => return Err(format!("approximates by {other}")),
        },
        "Swish" => {
            let alpha = number("alpha", 1.0);
            if alpha.to_bits() == 1.0_f32.to_bits() {
                vec![One(Unary::Silu, 0)]
            } else {
                vec![Scalar(alpha), Two(Binary::Mul, 0, 1), One(Unary::Sigmoid, 2), Two(Binary::Mul, 0, 3)]
            }
        }
        "LeakyRelu" => leaky(number("alpha", 0.01)),
        "HardSigmoid" => hard_sigmoid(number("alpha", 0.2), number("beta", 0.5)),
        "HardSwish" => [hard_sigmoid(1.0 / 6.0, 0.5), vec![Two(Binary::Mul, 0, 8)]].concat(),
        // max(x, 0) + alpha · (exp(min(x, 0)) − 1)
        "Elu" => elu(number("alpha", 1.0), 1.0, 1.0),
        "Selu" => elu(number("alpha", 1.673_263_2), number("gamma", 1.050_701), 1.0),
        "Celu" => {
            let alpha = number("alpha", 1.0);
            elu(alpha, 1.0, alpha)
        }
        "Softplus" => softplus().to_vec(),
        // x / (1 + |x|)
        "Softsign" => vec![One(Unary::Abs, 0), Scalar(1.0), Two(Binary::Add, 1, 2), Two(Binary::Div, 0, 3)],
        "ThresholdedRelu" => {
            let alpha = Scalar(number("alpha", 1.0));
            vec![alpha, Two(Binary::Greater, 0, 1), Scalar(0.0), Instruction::Where(2, 0, 3)]
        }
        // x · tanh(softplus(x))
        "Mish" => [&softplus()[..], &[One(Unary::Tanh, 9), Two(Binary::Mul, 0, 10)]].concat(),
        _ => return Ok(None),
    }))
}

/// `max(x, 0) + alpha · min(x, 0)`
fn leaky(alpha: f32) -> Vec<Instruction> {
    let (most, least) = (Two(Binary::Max, 0, 1), Two(Binary::Min, 0, 1));
    vec![Scalar(0.0), most, least, Scalar(alpha), Two(Binary::Mul, 3, 4), Two(Binary::Add, 2, 5)]
}

/// `max(0, min(1, alpha · x + beta))`, at instruction 8.
fn hard_sigmoid(alpha: f32, beta: f32) -> Vec<Instruction> {
    let line = [Scalar(alpha), Two(Binary::Mul, 0, 1), Scalar(beta), Two(Binary::Add, 2, 3)];
    let held = [Scalar(0.0), Two(Binary::Max, 4, 5), Scalar(1.0), Two(Binary::Min, 6, 7)];
    [line, held].concat()
}

/// `gamma · (max(x, 0) + alpha · (exp(min(x, 0) / divisor) − 1))`
fn elu(alpha: f32, gamma: f32, divisor: f32) -> Vec<Instruction> {
    vec![
        Scalar(0.0),
        Two(Binary::Max, 0, 1),
        Two(Binary::Min, 0, 1),
        Scalar(divisor),
        Two(Binary::Div, 3, 4),
        One(Unary::Exp, 5),
        Scalar(1.0),
        Two(Binary::Sub, 6, 7),
        Scalar(alpha),
        Two(Binary::Mul, 8, 9),
        Two(Binary::Add, 2, 10),
        Scalar(gamma),
        Two(Binary::Mul, 11, 12),
    ]
}

/// `max(x, 0) + log(1 + exp(−|x|))`, which is finite for every x, at instruction 9.
fn softplus() -> [Instruction; 9] {
    [
        One(Unary::Abs, 0),
        One(Unary::Neg, 1),
        One(Unary::Exp, 2),
        Scalar(1.0),
        Two(Binary::Add, 3, 4),
        One(Unary::Log, 5),
        Scalar(0.0),
        Two(Binary::Max, 0, 7),
        Two(Binary::Add, 6, 8),
    ]
}

/// The bounds of a `Clip`, from attributes or from constant inputs.
impl super::Lowering<'_> {
    pub(crate) fn clip(&mut self, node: &ShapedNode) -> super::Lowered {
        let bound = |attribute: &str, slot: usize| -> Result<Option<f32>, String> {
            match node.float(attribute) {
                Some(bound) => Ok(Some(bound)),
                None => Ok(self.constant(node, slot)?.and_then(|constant| scalar(&constant))),
            }
        };
        let (least, most) = (bound("min", 1)?, bound("max", 2)?);
        self.map(node, 1, &|places| {
            let mut steps = Vec::new();
            let mut last = places[0];
            for (op, bound) in [(Binary::Max, least), (Binary::Min, most)] {
                if let Some(bound) = bound {
                    steps.extend([Scalar(bound), Two(op, last, places.len() + steps.len())]);
                    last = places.len() + steps.len() - 1;
                }
            }
            if steps.is_empty() { vec![Scalar(0.0), Two(Binary::Add, places[0], places.len())] } else { steps }
        })
    }

    /// `max(x, 0) + slope · min(x, 0)`, with a slope for each column.
    pub(crate) fn parametric(&mut self, node: &ShapedNode) -> super::Lowered {
        self.map(node, 2, &|places| {
            let at = places.len();
            let (x, slope) = (places[0], places[1]);
            vec![
                Scalar(0.0),
                Two(Binary::Max, x, at),
                Two(Binary::Min, x, at),
                Two(Binary::Mul, slope, at + 2),
                Two(Binary::Add, at + 1, at + 3),
            ]
        })
    }

    /// The axes of an operator that takes them as an attribute or as an input; `None` if it names none.
    pub(crate) fn axes(&self, node: &ShapedNode, slot: usize, rank: usize) -> Result<Option<Vec<usize>>, String> {
        let named = match node.ints("axes") {
            Some(axes) => Some(axes.to_vec()),
            None => self.constant(node, slot)?.map(|constant| integers(&constant)).transpose()?,
        };
        named.map(|axes| axes.into_iter().map(|axis| super::axis_of(axis, rank)).collect()).transpose()
    }
}
