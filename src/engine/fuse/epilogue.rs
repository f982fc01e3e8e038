//! What is done to a matrix product's sum before it is written: bias, activation, residual, in this order.

use super::simple::{Simple, simple};
use super::{reader, uses};
use crate::engine::plan::{Activation, Binary, Node, Op, Plan, Unary, ValueId};

/// Takes one map into the product before it; `false` if there is none.
pub(super) fn absorb(plan: &mut Plan) -> bool {
    let uses = uses(plan);
    for at in 0..plan.nodes.len() {
        let Op::Gemm { .. } = plan.nodes[at].op else { continue };
        let output = plan.nodes[at].output;
        let Some(next) = reader(plan, &uses, output) else { continue };
        if plan.value(plan.nodes[next].output) != plan.value(output) {
            continue;
        }
        if let Some(fused) = fused(plan, &plan.nodes[at], &plan.nodes[next]) {
            // in the place of the map: what it adds is made by then
            plan.nodes[next].op = fused;
            plan.nodes.remove(at);
            return true;
        }
    }
    false
}

fn fused(plan: &Plan, gemm: &Node, map: &Node) -> Option<Op> {
    let Op::Gemm { x, weight, bias, activation, residual } = gemm.op else { return None };
    if residual.is_some() {
        return None;
    }
    let is_bare = activation == Activation::None;
    let value = plan.value(gemm.output);
    match simple(map)? {
        Simple::Row(Binary::Add, _, row) if bias.is_none() && is_bare && plan.weight(row).width == value.width => {
            Some(Op::Gemm { x, weight, bias: Some(row), activation, residual })
        }
        Simple::Unary(op, _) if is_bare => Some(Op::Gemm { x, weight, bias, activation: of(op)?, residual }),
        Simple::Scalar(Binary::Max, _, number, _) if is_bare && number == 0.0 => {
            Some(Op::Gemm { x, weight, bias, activation: Activation::Relu, residual })
        }
        Simple::Both(Binary::Add, a, b) if a != b => {
            let other = other(gemm.output, a, b);
            (plan.value(other) == value).then_some(Op::Gemm { x, weight, bias, activation, residual: Some(other) })
        }
        _ => None,
    }
}

fn other(own: ValueId, a: ValueId, b: ValueId) -> ValueId {
    if own == a { b } else { a }
}

const fn of(op: Unary) -> Option<Activation> {
    Some(match op {
        Unary::Relu => Activation::Relu,
        Unary::Gelu => Activation::Gelu,
        Unary::GeluTanh => Activation::GeluTanh,
        Unary::Sigmoid => Activation::Sigmoid,
        Unary::Tanh => Activation::Tanh,
        Unary::Silu => Activation::Silu,
        _ => return None,
    })
}
