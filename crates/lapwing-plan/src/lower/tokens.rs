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
        if !has_axis(port.value) || plan.nodes.iter().all(|node| !node.op.reads().contains(&port.value)) {
            continue;
        }
        let own = part(&mut parts, port.value.0);
        // axes of one name are the same, as the file says
        if let Some((other, _)) = named.iter().find(|(name, at)| **name != symbol.name && **at != own) {
            let reason = format!("axis {axis} is {}, that of another input is {other}, and they do not meet", symbol.name);
            return Err(refused_port(graph, *input, "input", reason));
        }
        named.entry(symbol.name.clone()).or_insert(own);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use lapwing_onnx::messages::AttributeProto;
    use lapwing_onnx::shaped::{KnownValue, ShapedNode, TensorFact, TensorId};
    use lapwing_onnx::tensor::Datatype;

    use super::*;
    use crate::lower::lower;

    fn node(operator: &str, reads: &[usize], makes: usize, attributes: Vec<AttributeProto>) -> ShapedNode {
        ShapedNode {
            name: format!("the_{operator}_{makes}"),
            operator: operator.into(),
            domain: String::new(),
            version: 17,
            inputs: reads.iter().map(|at| Some(TensorId(*at))).collect(),
            outputs: vec![Some(TensorId(makes))],
            attributes,
        }
    }

    /// Two inputs of tokens, 0 and 1, whose axes have names of their own, and one output.
    fn graph(names: [[&str; 2]; 2], nodes: Vec<ShapedNode>, output: usize) -> ShapedGraph {
        let fact = |shape: Option<Vec<Length>>| TensorFact {
            name: "t".into(),
            datatype: Some(Datatype::Fp32),
            shape,
            value: KnownValue::Unknown,
        };
        let port = |[batch, token]: [&str; 2]| fact(Some(vec![Length::pos_var(batch), Length::pos_var(token), Length::Value(4)]));
        let mut tensors: Vec<TensorFact> = names.into_iter().map(port).collect();
        tensors.resize_with(output + 1, || fact(None));
        let inputs = vec![TensorId(0), TensorId(1)];
        ShapedGraph { nodes, tensors, inputs, outputs: vec![TensorId(output)], parameters: 0 }
    }

    #[test]
    fn lengths_are_one_where_they_meet() {
        let own = [["b", "s"], ["c", "t"]];
        let sum = lower(&graph(own, vec![node("Add", &[0, 1], 2, vec![])], 2)).unwrap();
        assert_eq!(sum.nodes.len(), 1);
        // two texts that meet in one row for each: their lengths do not
        let means = || {
            let axes = || vec![AttributeProto { name: "axes".into(), ints: vec![1], ..Default::default() }];
            vec![node("ReduceMean", &[0], 2, axes()), node("ReduceMean", &[1], 3, axes()), node("Add", &[2, 3], 4, vec![])]
        };
        let error = lower(&graph(own, means(), 4)).unwrap_err().to_string();
        assert_eq!(error, "t (input): axis 1 is t, that of another input is s, and they do not meet");
        // but a file that gives both one name says that they are the same
        assert!(lower(&graph([["b", "s"], ["c", "s"]], means(), 4)).is_ok());
    }
}
