//! Recognises norms: `x / √(mean(x²) + epsilon)` is an RMS norm, and that of `x − mean(x)` a layer norm.

use super::rewrite::{makers, reader, uses};
use super::simple::{Simple, simple};
use crate::plan::{Binary, Fold, Op, Plan, Unary, ValueId};

/// Finds layer norms, and fuses norms with their scale and shift.
pub(crate) fn find(plan: &mut Plan) {
    for at in 0..plan.nodes.len() {
        if let Some((x, epsilon)) = by_mean_of_squares(plan, at) {
            plan.nodes[at].op = Op::RmsNorm { x, epsilon, scale: None };
        }
        if let Op::RmsNorm { x, epsilon, scale } = plan.nodes[at].op
            && let Some(centred) = centred(plan, x)
        {
            plan.nodes[at].op = Op::LayerNorm { x: centred, residual: None, epsilon, scale, shift: None };
        }
    }
    while absorb(plan) {}
}

/// The x and epsilon of a node that is `x / √(mean(x²) + epsilon)`.
fn by_mean_of_squares(plan: &Plan, at: usize) -> Option<(ValueId, f32)> {
    let makers = makers(plan);
    let made = |value: ValueId| makers[value.0].and_then(|at| simple(&plan.nodes[at]));
    let root = |value: ValueId| if let Some(Simple::Unary(Unary::Sqrt, x)) = made(value) { Some(x) } else { None };
    let inverse = |value: ValueId| match made(value)? {
        Simple::Unary(Unary::Recip, x) => root(x),
        Simple::Scalar(Binary::Div, x, 1.0, false) => root(x),
        Simple::Unary(Unary::Rsqrt, x) => Some(x),
        _ => None,
    };
    let (x, sum) = match simple(&plan.nodes[at])? {
        Simple::Both(Binary::Div, x, divisor) => (x, root(divisor)?),
        Simple::Both(Binary::Mul, a, b) => inverse(b).map(|sum| (a, sum)).or_else(|| inverse(a).map(|sum| (b, sum)))?,
        _ => return None,
    };
    let Simple::Scalar(Binary::Add, mean, epsilon, _) = made(sum)? else { return None };
    let (squares, width) = (mean_of(plan, &makers, mean)?, plan.value(x).width);
    let is_square = match made(squares)? {
        Simple::Unary(Unary::Square, of) => of == x,
        Simple::Both(Binary::Mul, a, b) => a == x && b == x,
        _ => false,
    };
    (is_square && width > 1 && plan.value(plan.nodes[at].output).width == width).then_some((x, epsilon))
}

/// The value that this one is the mean of, over the columns of a row.
fn mean_of(plan: &Plan, makers: &[Option<usize>], value: ValueId) -> Option<ValueId> {
    let node = |value: ValueId| makers[value.0].map(|at| &plan.nodes[at]);
    let Simple::Scalar(op, sum, number, is_left) = simple(node(value)?)? else { return None };
    let Op::Reduce { x, fold: Fold::Sum } = node(sum)?.op else { return None };
    #[allow(clippy::cast_precision_loss, reason = "widths are small")]
    let width = plan.value(x).width as f32;
    let is_share = match op {
        Binary::Mul => (number * width - 1.0).abs() < 1e-5,
        Binary::Div => is_left && number.to_bits() == width.to_bits(),
        _ => false,
    };
    is_share.then_some(x)
}

/// The x of a value that is `x − mean(x)`.
fn centred(plan: &Plan, value: ValueId) -> Option<ValueId> {
    let makers = makers(plan);
    let node = |value: ValueId| makers[value.0].map(|at| &plan.nodes[at]);
    let Simple::Both(Binary::Sub, x, mean) = simple(node(value)?)? else { return None };
    (mean_of(plan, &makers, mean)? == x).then_some(x)
}

/// Fuses one sum with the norm that only reads it; `false` if there is none.
pub(crate) fn add(plan: &mut Plan) -> bool {
    let uses = uses(plan);
    for at in 0..plan.nodes.len() {
        let Some(Simple::Both(Binary::Add, a, b)) = simple(&plan.nodes[at]) else { continue };
        let output = plan.nodes[at].output;
        let Some(next) = reader(plan, &uses, output) else { continue };
        if [a, b].iter().any(|id| plan.value(*id) != plan.value(output)) {
            continue;
        }
        if let Op::LayerNorm { x, residual: residual @ None, .. } = &mut plan.nodes[next].op {
            (*x, *residual) = (a, Some(b));
            plan.nodes.remove(at);
            return true;
        }
    }
    false
}

/// Fuses one scale or shift with the norm before it.
fn absorb(plan: &mut Plan) -> bool {
    let uses = uses(plan);
    for at in 0..plan.nodes.len() {
        let output = plan.nodes[at].output;
        let width = plan.value(output).width;
        let Some(next) = reader(plan, &uses, output) else { continue };
        let Some(Simple::Row(op, _, row)) = simple(&plan.nodes[next]) else { continue };
        if plan.weight(row).width != width || plan.value(plan.nodes[next].output) != plan.value(output) {
            continue;
        }
        let fused = match (&plan.nodes[at].op, op) {
            (Op::LayerNorm { x, residual, epsilon, scale: None, shift: None }, Binary::Mul) => {
                Op::LayerNorm { x: *x, residual: *residual, epsilon: *epsilon, scale: Some(row), shift: None }
            }
            (Op::LayerNorm { x, residual, epsilon, scale, shift: None }, Binary::Add) => {
                Op::LayerNorm { x: *x, residual: *residual, epsilon: *epsilon, scale: *scale, shift: Some(row) }
            }
            (Op::RmsNorm { x, epsilon, scale: None }, Binary::Mul) => Op::RmsNorm { x: *x, epsilon: *epsilon, scale: Some(row) },
            _ => continue,
        };
        plan.nodes[next].op = fused;
        plan.nodes.remove(at);
        return true;
    }
    false
}
