//! Inputs whose axes have names of their own are taken to have batch and tokens in common. That holds only if the model brings them
//! together: a model of two texts that meet in one number has two lengths, and no plan.

use std::collections::BTreeMap;

use lapwing_onnx::UnsupportedNode;
use lapwing_onnx::shaped::{Length, ShapedGraph};

use super::{Lowering, refused_port};
use crate::plan::{Plan, Rows, ValueId};

impl Lowering<'_> {
    /// Checks that the axes of different names that were taken for one meet.
    pub(crate) fn check_lengths(&self) -> Result<(), UnsupportedNode> {
        let (graph, plan) = (self.graph, &self.plan);
        one_length(graph, plan, 0, |_| true)?;
        one_length(graph, plan, 1, |value| plan.value(value).rows == Rows::Token)
    }
}

/// Checks that all values of inputs that differ in the name of this axis are in one part of the plan, where nodes connect the values
/// that have the axis.
fn one_length(graph: &ShapedGraph, plan: &Plan, axis: usize, has_axis: impl Fn(ValueId) -> bool) -> Result<(), UnsupportedNode> {
    let mut parts: Vec<usize> = (0..plan.values.len()).collect();
    fn part(parts: &mut [usize], mut at: usize) -> usize {
        while parts[at] != at {
            parts[at] = parts[parts[at]];
            at = parts[at];
        }
        at
    }
    for node in &plan.nodes {
        let values = node.op.reads().into_iter().chain([node.output]).filter(|value| has_axis(*value));
        let mut first = None;
        for value in values {
            let own = part(&mut parts, value.0);
            match first {
                None => first = Some(own),
                Some(first) => parts[own] = first,
            }
        }
    }
    let mut named: BTreeMap<String, usize> = BTreeMap::new();
    for (port, input) in plan.inputs.iter().zip(&graph.inputs) {
        let length = graph.tensor(*input).shape.as_ref().and_then(|shape| shape.get(axis));
        let Some(Length::Var(symbol)) = length else { continue };
        // an input that nothing reads cannot tell
        if plan.nodes.iter().all(|node| !node.op.reads().contains(&port.value)) {
            continue;
        }
        named.entry(symbol.name.clone()).or_insert_with(|| part(&mut parts, port.value.0));
        if let Some((other, _)) =
            named.iter().find(|(_, at)| part(&mut parts.clone(), **at) != part(&mut parts.clone(), port.value.0))
        {
            let reason = format!("axis {axis} is {}, that of another input is {other}, and they do not meet", symbol.name);
            return Err(refused_port(graph, *input, "input", reason));
        }
    }
    Ok(())
}
