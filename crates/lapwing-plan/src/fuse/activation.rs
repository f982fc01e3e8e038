//! Recognises activations that are spelled as products, in whatever order exporters multiply: GELU by the error function, its
//! approximation by the hyperbolic tangent, and SiLU.

use super::rewrite::makers;
use super::simple::{Simple, simple};
use crate::plan::{Binary, Instruction, Op, Plan, Program, Unary, ValueId};

/// How far a factor may be from the one of the definition: exporters round it.
const NEAR: f32 = 1e-3;
/// The most products that are taken apart.
const DEEPEST: usize = 6;

/// Finds all of them.
pub(crate) fn find(plan: &mut Plan) {
    let makers = makers(plan);
    let found: Vec<_> = (0..plan.nodes.len()).map(|at| Reader { plan, makers: &makers }.activation(at)).collect();
    for (node, found) in plan.nodes.iter_mut().zip(found) {
        if let Some((op, x)) = found {
            let program = Program::new(vec![Instruction::Arg(0), Instruction::Unary(op, 0)]);
            node.op = Op::Map { program, args: vec![x] };
        }
    }
}

/// A product: a number, and the values that are multiplied.
struct Product {
    number: f32,
    values: Vec<ValueId>,
}

struct Reader<'p> {
    plan: &'p Plan,
    makers: &'p [Option<usize>],
}

impl Reader<'_> {
    fn made(&self, value: ValueId) -> Option<Simple> {
        self.makers[value.0].and_then(|at| simple(&self.plan.nodes[at]))
    }

    /// The activation that a node computes, and of which value.
    fn activation(&self, at: usize) -> Option<(Unary, ValueId)> {
        let node = &self.plan.nodes[at];
        if !matches!(simple(node)?, Simple::Both(Binary::Mul | Binary::Div, ..) | Simple::Scalar(Binary::Mul | Binary::Div, ..)) {
            return None;
        }
        let product = self.product(node.output, DEEPEST);
        let [a, b] = product.values[..] else { return None };
        let width = |value: ValueId| self.plan.value(value);
        let found = self.of(product.number, a, b).or_else(|| self.of(product.number, b, a));
        found.filter(|(_, x)| width(*x).width == width(node.output).width && width(*x).rows == width(node.output).rows)
    }

    /// The activation that is `number · x · gate`.
    fn of(&self, number: f32, x: ValueId, gate: ValueId) -> Option<(Unary, ValueId)> {
        if number == 1.0 && self.made(gate) == Some(Simple::Unary(Unary::Sigmoid, x)) {
            return Some((Unary::Silu, x));
        }
        if !is_near(number, 0.5) {
            return None;
        }
        let Simple::Scalar(Binary::Add, inner, 1.0, _) = self.made(gate)? else { return None };
        match self.made(inner)? {
            Simple::Unary(Unary::Erf, of) => {
                let of = self.product(of, DEEPEST);
                (of.values == [x] && is_near(of.number, std::f32::consts::FRAC_1_SQRT_2)).then_some((Unary::Gelu, x))
            }
            Simple::Unary(Unary::Tanh, of) => self.is_cubic(of, x).then_some((Unary::GeluTanh, x)),
            _ => None,
        }
    }

    /// Whether a value is `√(2/π) · (x + 0.044715 x³)`.
    fn is_cubic(&self, value: ValueId, x: ValueId) -> bool {
        let Product { number, values } = self.product(value, DEEPEST);
        if !is_near(number, (2.0 / std::f32::consts::PI).sqrt()) {
            return false;
        }
        let is_power = |value: ValueId, times: usize| {
            let of = self.product(value, DEEPEST);
            is_near(of.number, 0.044_715) && of.values.len() == times && of.values.iter().all(|own| *own == x)
        };
        match values[..] {
            [sum] => match self.made(sum) {
                Some(Simple::Both(Binary::Add, a, b)) => (a == x && is_power(b, 3)) || (b == x && is_power(a, 3)),
                _ => false,
            },
            [a, b] => [(a, b), (b, a)].into_iter().any(|(own, rest)| {
                let one =
                    if let Some(Simple::Scalar(Binary::Add, squares, 1.0, _)) = self.made(rest) { Some(squares) } else { None };
                own == x && one.is_some_and(|squares| is_power(squares, 2))
            }),
            _ => false,
        }
    }

    /// A value as a product, taken apart as far as it goes.
    fn product(&self, value: ValueId, deep: usize) -> Product {
        let itself = Product { number: 1.0, values: vec![value] };
        let Some(deep) = deep.checked_sub(1) else { return itself };
        let power = |of: ValueId, times: usize| {
            let base = self.product(of, deep);
            Product { number: base.number.powi(times as i32), values: base.values.repeat(times) }
        };
        match self.made(value) {
            Some(Simple::Both(Binary::Mul, a, b)) => {
                let (a, b) = (self.product(a, deep), self.product(b, deep));
                Product { number: a.number * b.number, values: [a.values, b.values].concat() }
            }
            Some(Simple::Scalar(Binary::Mul, of, number, _)) => self.product(of, deep).times(number),
            Some(Simple::Scalar(Binary::Div, of, number, true)) => self.product(of, deep).times(1.0 / number),
            Some(Simple::Unary(Unary::Square, of)) => power(of, 2),
            Some(Simple::Unary(Unary::Pow(3.0), of)) => power(of, 3),
            _ => itself,
        }
    }
}

impl Product {
    fn times(self, number: f32) -> Self {
        Self { number: self.number * number, ..self }
    }
}

fn is_near(number: f32, wanted: f32) -> bool {
    (number - wanted).abs() < NEAR * wanted
}
