//! Removes duplicates: weights with the same elements, and nodes with the same operation and operands.

use super::rewrite::prune;
use crate::plan::{Node, Plan, ValueId, Weight, WeightId};

/// Merges equal weights, then equal nodes.
pub(crate) fn merge(plan: &mut Plan) {
    let first: Vec<WeightId> = (0..plan.weights.len())
        .map(|at| WeightId(plan.weights[..at].iter().position(|known| is_same(known, &plan.weights[at])).unwrap_or(at)))
        .collect();
    for node in &mut plan.nodes {
        node.op.replace_weights(|id| first[id.0]);
    }
    let mut renamed: Vec<ValueId> = (0..plan.values.len()).map(ValueId).collect();
    for at in 0..plan.nodes.len() {
        plan.nodes[at].op.replace(|id| renamed[id.0]);
        let (known, rest) = plan.nodes.split_at(at);
        let made = |node: &Node| plan.values[renamed[node.output.0].0];
        if let Some(twin) = known.iter().find(|node| node.op == rest[0].op && made(node) == plan.value(rest[0].output)) {
            renamed[rest[0].output.0] = twin.output;
        }
    }
    // two outputs never share a value: each is written to its own memory
    let mut taken: Vec<ValueId> = plan.outputs.iter().map(|port| port.value).collect();
    for port in &mut plan.outputs {
        let value = renamed[port.value.0];
        if !taken.contains(&value) {
            port.value = value;
            taken.push(value);
        }
    }
    prune(plan);
}

fn is_same(a: &Weight, b: &Weight) -> bool {
    let is_alike = (a.rows, a.width) == (b.rows, b.width);
    is_alike && (std::sync::Arc::ptr_eq(&a.data, &b.data) || a.data.iter().zip(&*b.data).all(|(a, b)| a.to_bits() == b.to_bits()))
}
