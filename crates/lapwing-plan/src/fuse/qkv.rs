//! Merges the products that compute queries, keys and values from the same rows into one product with the three weights
//! side by side. Attention reads its columns in place.

use super::rewrite::{makers, uncut, uses};
use crate::plan::{Activation, Columns, Node, Op, Plan, Value, ValueId, Weight, WeightId};

/// Merges the products before each attention.
pub(crate) fn merge(plan: &mut Plan) {
    let mut at = 0;
    while at < plan.nodes.len() {
        if matches!(plan.nodes[at].op, Op::Attention { .. })
            && let Some(merged) = merged(plan, at)
        {
            at = merged;
        }
        at += 1;
    }
    for at in 0..plan.nodes.len() {
        match plan.nodes[at].op {
            Op::Attention { q, k, v, .. } => {
                let whole = [q, k, v].map(|columns| uncut(plan, columns));
                if let Op::Attention { q, k, v, .. } = &mut plan.nodes[at].op {
                    [*q, *k, *v] = whole;
                }
            }
            Op::Rotate { x, .. } | Op::Append { new: x, .. } => {
                let whole = uncut(plan, x);
                if let Op::Rotate { x, .. } | Op::Append { new: x, .. } = &mut plan.nodes[at].op {
                    *x = whole;
                }
            }
            _ => {}
        }
    }
}

/// Merges the products read by the attention at this index; returns its new index.
fn merged(plan: &mut Plan, at: usize) -> Option<usize> {
    let Op::Attention { q, k, v, .. } = plan.nodes[at].op else { return None };
    let (uses, makers) = (uses(plan), makers(plan));
    let parts = [q, k, v].map(|columns| columns.value);
    let nodes: Vec<usize> = parts.iter().filter_map(|value| makers[value.0]).collect();
    let plain: Vec<(ValueId, WeightId, Option<WeightId>)> = nodes
        .iter()
        .filter_map(|node| match plan.nodes[*node].op {
            Op::Gemm { x, weight, bias, activation: Activation::None, residual: None } => Some((x, weight, bias)),
            _ => None,
        })
        .collect();
    let [(x, ..), (second, ..), (third, ..)] = plain[..] else { return None };
    let is_own = parts.iter().all(|value| uses[value.0] == 1) && [q, k, v].iter().all(|columns| columns.from == 0);
    if !is_own || x != second || x != third {
        return None;
    }
    let widths = parts.map(|value| plan.value(value).width);
    let weight = beside(plan, &plain.iter().map(|(_, weight, _)| *weight).collect::<Vec<_>>());
    let bias = if plain.iter().any(|(.., bias)| bias.is_some()) {
        let rows: Vec<WeightId> =
            plain.iter().zip(widths).map(|((.., bias), width)| bias.unwrap_or_else(|| zeros(plan, width))).collect();
        Some(beside(plan, &rows))
    } else {
        None
    };
    plan.values.push(Value { width: widths.iter().sum(), ..plan.value(parts[0]) });
    let output = ValueId(plan.values.len() - 1);
    let name = plan.nodes[nodes[0]].name.clone();
    if let Op::Attention { q, k, v, .. } = &mut plan.nodes[at].op {
        *q = Columns { value: output, from: 0 };
        *k = Columns { value: output, from: widths[0] };
        *v = Columns { value: output, from: widths[0] + widths[1] };
    }
    let first = nodes.iter().min().copied()?;
    let op = Op::Gemm { x, weight, bias, activation: Activation::None, residual: None };
    plan.nodes[first] = Node { name, op, output };
    let mut others: Vec<usize> = nodes.into_iter().filter(|node| *node != first).collect();
    others.sort_unstable();
    for node in others.iter().rev() {
        plan.nodes.remove(*node);
    }
    Some(at - others.len())
}

fn zeros(plan: &mut Plan, width: usize) -> WeightId {
    plan.weights.push(Weight { name: "zeros".into(), rows: 1, width, data: vec![0.0; width].into() });
    WeightId(plan.weights.len() - 1)
}

/// Concatenates weights with the same number of rows, column-wise.
fn beside(plan: &mut Plan, parts: &[WeightId]) -> WeightId {
    let parts: Vec<&Weight> = parts.iter().map(|id| plan.weight(*id)).collect();
    let (rows, width) = (parts[0].rows, parts.iter().map(|part| part.width).sum());
    let mut data = Vec::with_capacity(rows * width);
    for row in 0..rows {
        parts.iter().for_each(|part| data.extend_from_slice(&part.data[row * part.width..(row + 1) * part.width]));
    }
    let name = parts[0].name.clone();
    plan.weights.push(Weight { name, rows, width, data: data.into() });
    WeightId(plan.weights.len() - 1)
}
