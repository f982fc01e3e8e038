//! What the steps of fusion share: who makes and reads a value, copies and slices undone, and the removal of what is unused.

use std::collections::BTreeMap;

use crate::plan::{Columns, Instruction, Node, Op, Plan, ValueId, Weight, WeightId};

/// How often each value is read, outputs included.
pub(crate) fn uses(plan: &Plan) -> Vec<usize> {
    let mut uses = vec![0; plan.values.len()];
    let reads = plan.nodes.iter().flat_map(|node| node.op.reads()).chain(plan.outputs.iter().map(|port| port.value));
    reads.for_each(|id| uses[id.0] += 1);
    uses
}

/// The index of the node that computes each value.
pub(crate) fn makers(plan: &Plan) -> Vec<Option<usize>> {
    let mut makers = vec![None; plan.values.len()];
    for (at, node) in plan.nodes.iter().enumerate() {
        makers[node.output.0] = Some(at);
    }
    makers
}

/// The only reader of a value; `None` if there are several, or if it is an output.
pub(crate) fn reader(plan: &Plan, uses: &[usize], value: ValueId) -> Option<usize> {
    let reads = |node: &Node| node.op.reads().contains(&value);
    if uses[value.0] == 1 { plan.nodes.iter().position(reads) } else { None }
}

/// The value that this one is a float32 conversion of; otherwise the value itself.
pub(crate) fn uncopied(plan: &Plan, value: ValueId) -> ValueId {
    let Some(node) = plan.nodes.iter().find(|node| node.output == value) else { return value };
    match &node.op {
        Op::Map { program, args } if program.code() == [Instruction::Arg(0)] => match args[..] {
            [source]
                if plan.value(source).rows == plan.value(value).rows && plan.value(source).width == plan.value(value).width =>
            {
                source
            }
            _ => value,
        },
        _ => value,
    }
}

/// The columns of the original value, if these were sliced out of it.
pub(crate) fn uncut(plan: &Plan, columns: Columns) -> Columns {
    match plan.nodes.iter().find(|node| node.output == columns.value).map(|node| &node.op) {
        Some(Op::Slice(of)) => uncut(plan, Columns { value: of.value, from: of.from + columns.from }),
        _ => columns,
    }
}

/// A weight of the same shape with each element derived from another weight's; the function gets the column.
pub(crate) fn derived(plan: &mut Plan, id: WeightId, of: impl Fn(usize, f32) -> f32) -> WeightId {
    let weight = plan.weight(id);
    let data = weight.data.iter().enumerate().map(|(at, x)| of(at % weight.width, *x)).collect();
    let made = Weight { data, ..weight.clone() };
    plan.weights.push(made);
    WeightId(plan.weights.len() - 1)
}

/// Removes nodes that no output depends on, and unused values and weights.
pub(crate) fn prune(plan: &mut Plan) {
    let mut needed = vec![false; plan.values.len()];
    plan.outputs.iter().for_each(|port| needed[port.value.0] = true);
    for node in plan.nodes.iter().rev() {
        if needed[node.output.0] {
            node.op.reads().into_iter().for_each(|id| needed[id.0] = true);
        }
    }
    plan.nodes.retain(|node| needed[node.output.0]);
    plan.inputs.iter().for_each(|port| needed[port.value.0] = true);
    let mut kept: BTreeMap<ValueId, ValueId> = BTreeMap::new();
    let mut values = Vec::new();
    for (at, value) in plan.values.iter().enumerate().filter(|(at, _)| needed[*at]) {
        kept.insert(ValueId(at), ValueId(values.len()));
        values.push(*value);
    }
    plan.values = values;
    let moved = |id: ValueId| kept.get(&id).copied().unwrap_or(id);
    for node in &mut plan.nodes {
        node.op.replace(moved);
        node.output = moved(node.output);
    }
    plan.inputs.iter_mut().chain(&mut plan.outputs).for_each(|port| port.value = moved(port.value));
    let used: std::collections::BTreeSet<WeightId> = plan.nodes.iter().flat_map(|node| node.op.weights()).collect();
    let places: BTreeMap<WeightId, WeightId> = used.iter().enumerate().map(|(at, id)| (*id, WeightId(at))).collect();
    plan.weights = used.iter().map(|id| plan.weights[id.0].clone()).collect();
    for node in &mut plan.nodes {
        node.op.replace_weights(|id| places.get(&id).copied().unwrap_or(id));
    }
}
