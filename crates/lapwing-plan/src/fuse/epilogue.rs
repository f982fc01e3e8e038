//! Fuses what follows a matrix product into its epilogue: bias, activation, residual, in this order. A factor of the
//! product scales the weight instead.

use super::rewrite::{derived, reader, uses};
use super::simple::{Simple, simple};
use crate::plan::{Activation, Binary, Op, Plan, Unary, ValueId, Weight, WeightId};

/// Fuses one map with the product before it; `false` if there is none.
pub(crate) fn absorb(plan: &mut Plan) -> bool {
    let uses = uses(plan);
    for at in 0..plan.nodes.len() {
        let Op::Gemm { .. } = plan.nodes[at].op else { continue };
        let output = plan.nodes[at].output;
        let Some(next) = reader(plan, &uses, output) else { continue };
        if plan.value(plan.nodes[next].output) != plan.value(output) {
            continue;
        }
        let Some(map) = simple(&plan.nodes[next]) else { continue };
        let fused = rows(plan, at, map).or_else(|| after(plan, at, map));
        if let Some(fused) = fused {
            // at the map's position, because the values that it adds are computed by then
            plan.nodes[next].op = fused;
            plan.nodes.remove(at);
            return true;
        }
    }
    false
}

/// Fuses a scalar or row that is added to the bare product, or multiplied with it.
fn rows(plan: &mut Plan, at: usize, map: Simple) -> Option<Op> {
    let Op::Gemm { x, weight, bias, activation: Activation::None, residual: None } = plan.nodes[at].op else { return None };
    let width = plan.value(plan.nodes[at].output).width;
    let (op, row) = match map {
        Simple::Row(op, _, row) if plan.weight(row).width == width => (op, plan.weight(row).data.to_vec()),
        Simple::Scalar(op, _, number, is_left) if is_left || matches!(op, Binary::Add | Binary::Mul) => (op, vec![number; width]),
        _ => return None,
    };
    let name = plan.nodes[at].name.clone();
    let (weight, bias) = match op {
        Binary::Add => (weight, Some(added(plan, bias, &row, &name))),
        Binary::Sub => (weight, Some(added(plan, bias, &row.iter().map(|x| -x).collect::<Vec<_>>(), &name))),
        Binary::Mul | Binary::Div if is_own(plan, weight) => {
            let times = |column: usize, x: f32| if op == Binary::Mul { x * row[column] } else { x / row[column] };
            let weight = derived(plan, weight, times);
            (weight, bias.map(|bias| derived(plan, bias, times)))
        }
        _ => return None,
    };
    Some(Op::Gemm { x, weight, bias, activation: Activation::None, residual: None })
}

/// A bias with another row added.
fn added(plan: &mut Plan, bias: Option<WeightId>, row: &[f32], name: &str) -> WeightId {
    if let Some(bias) = bias {
        return derived(plan, bias, |column, x| x + row[column]);
    }
    plan.weights.push(Weight { name: name.to_owned(), rows: 1, width: row.len(), data: row.into() });
    WeightId(plan.weights.len() - 1)
}

/// Whether only one node reads a weight; a scaled copy may then replace it.
fn is_own(plan: &Plan, weight: WeightId) -> bool {
    plan.nodes.iter().flat_map(|node| node.op.weights()).filter(|id| *id == weight).count() == 1
}

/// Fuses an activation, or another value that is added.
fn after(plan: &Plan, at: usize, map: Simple) -> Option<Op> {
    let Op::Gemm { x, weight, bias, activation, residual: None } = plan.nodes[at].op else { return None };
    let (output, is_bare) = (plan.nodes[at].output, activation == Activation::None);
    match map {
        Simple::Unary(op, _) if is_bare => Some(Op::Gemm { x, weight, bias, activation: of(op)?, residual: None }),
        Simple::Scalar(Binary::Max, _, number, _) if is_bare && number == 0.0 => {
            Some(Op::Gemm { x, weight, bias, activation: Activation::Relu, residual: None })
        }
        Simple::Both(Binary::Add, a, b) if a != b => {
            let other = other(output, a, b);
            let fits = plan.value(other) == plan.value(output);
            fits.then_some(Op::Gemm { x, weight, bias, activation, residual: Some(other) })
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
