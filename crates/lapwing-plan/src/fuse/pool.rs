//! Recognises masked means: the sum of masked rows divided by the sum of the mask.

use super::rewrite::{makers, uncopied, uses};
use super::simple::{Simple, simple};
use crate::plan::{Binary, ElementType, Fold, Op, Plan, Rows, Unary, ValueId};

/// Finds all masked means.
pub(crate) fn find(plan: &mut Plan) {
    for at in 0..plan.nodes.len() {
        let Some(Simple::Both(op, a, b)) = simple(&plan.nodes[at]) else { continue };
        let found = match op {
            Binary::Div => mean(plan, a, b),
            Binary::Mul => {
                reciprocal(plan, b).and_then(|b| mean(plan, a, b)).or_else(|| reciprocal(plan, a).and_then(|a| mean(plan, b, a)))
            }
            _ => None,
        };
        if let Some(Op::MeanPool { x, .. }) = found
            && plan.value(x).width == plan.value(plan.nodes[at].output).width
            && let Some(op) = found
        {
            plan.nodes[at].op = op;
        }
    }
}

/// The masked mean with this sum and count.
fn mean(plan: &Plan, total: ValueId, count: ValueId) -> Option<Op> {
    let (count, at_least) = match made(plan, count) {
        Some(Simple::Scalar(Binary::Max, sum, number, _)) => (sum, number),
        _ => (count, f32::NEG_INFINITY),
    };
    let weights = uncopied(plan, summed(plan, count)?);
    let masked = summed(plan, total)?;
    let uses = uses(plan);
    if uses[total.0] > 1 || uses[masked.0] > 1 {
        return None; // they are needed in any case
    }
    let Some(Simple::Both(Binary::Mul, a, b)) = made(plan, masked) else { return None };
    let x = if uncopied(plan, b) == weights {
        a
    } else if uncopied(plan, a) == weights {
        b
    } else {
        return None;
    };
    let fits = plan.value(weights).width == 1 && plan.value(x).rows == Rows::Token && plan.value(x).kind == ElementType::F32;
    (fits && plan.value(weights).rows == Rows::Token).then_some(Op::MeanPool { x, weights, at_least })
}

fn made(plan: &Plan, value: ValueId) -> Option<Simple> {
    makers(plan)[value.0].and_then(|at| simple(&plan.nodes[at]))
}

fn reciprocal(plan: &Plan, value: ValueId) -> Option<ValueId> {
    if let Some(Simple::Unary(Unary::Recip, of)) = made(plan, value) { Some(of) } else { None }
}

/// The value that this one is the sum of, over a sequence's tokens.
fn summed(plan: &Plan, value: ValueId) -> Option<ValueId> {
    match plan.nodes[makers(plan)[value.0]?].op {
        Op::Pool { x, fold: Fold::Sum } => Some(x),
        _ => None,
    }
}
