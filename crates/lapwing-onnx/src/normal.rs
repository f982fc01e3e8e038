//! Brings a graph into a form that all readers expect: nodes after what they read, and a name for each open axis.
//!
//! ONNX leaves an axis open in several ways: without a value, with -1 or 0 (exporters that know no names), as `?`, or by a name.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

use crate::messages::tensor_shape_proto::dimension::Value::{DimParam, DimValue};
use crate::messages::type_proto::{Tensor, Value::TensorType};
use crate::messages::{GraphProto, ValueInfoProto};

/// Puts each node behind those whose outputs it reads, and otherwise leaves the order as it is. Nodes of a cycle, and those that read
/// from one, come last, as they were. Subgraphs are ordered too.
pub(crate) fn order_nodes(graph: &mut GraphProto) {
    let attributes = graph.node.iter_mut().flat_map(|node| &mut node.attribute);
    attributes.flat_map(|attribute| attribute.g.iter_mut().chain(&mut attribute.graphs)).for_each(order_nodes);
    if is_ordered(graph) {
        return;
    }
    let NodeOrder { mut order, stuck } = node_order(graph);
    order.extend(stuck);
    let mut nodes: Vec<_> = std::mem::take(&mut graph.node).into_iter().map(Some).collect();
    graph.node = order.into_iter().filter_map(|at| nodes[at].take()).collect();
}

/// An order in which a graph's nodes can run, by their places in the file.
#[derive(Debug)]
pub struct NodeOrder {
    /// Each node behind those that it reads from, otherwise as they are in the file.
    pub order: Vec<usize>,
    /// Nodes of a cycle, and those that read from one.
    pub stuck: Vec<usize>,
}

/// Orders a graph's nodes.
#[must_use]
pub fn node_order(graph: &GraphProto) -> NodeOrder {
    let makers: HashMap<&str, usize> =
        graph.node.iter().enumerate().flat_map(|(at, node)| node.output.iter().map(move |name| (name.as_str(), at))).collect();
    let mut readers = vec![Vec::new(); graph.node.len()];
    let mut missing = vec![0_usize; graph.node.len()];
    for (at, node) in graph.node.iter().enumerate() {
        for maker in reads(node).into_iter().filter_map(|name| makers.get(name)) {
            readers[*maker].push(at);
            missing[at] += 1;
        }
    }
    // the earliest node that is ready comes next
    let mut ready: BinaryHeap<_> = (0..missing.len()).filter(|at| missing[*at] == 0).map(Reverse).collect();
    let mut order = Vec::with_capacity(missing.len());
    while let Some(Reverse(at)) = ready.pop() {
        order.push(at);
        for reader in &readers[at] {
            missing[*reader] -= 1;
            if missing[*reader] == 0 {
                ready.push(Reverse(*reader));
            }
        }
    }
    let stuck = (0..missing.len()).filter(|at| missing[*at] > 0).collect();
    NodeOrder { order, stuck }
}

/// Whether each node comes after the nodes that it reads from.
fn is_ordered(graph: &GraphProto) -> bool {
    let mut later: HashMap<&str, usize> = HashMap::new();
    for node in &graph.node {
        for name in &node.output {
            *later.entry(name).or_insert(0) += 1;
        }
    }
    graph.node.iter().all(|node| {
        let is_behind = reads(node).into_iter().all(|name| later.get(name).is_none_or(|left| *left == 0));
        for name in &node.output {
            later.entry(name).and_modify(|left| *left = left.saturating_sub(1));
        }
        is_behind
    })
}

/// Removes the nodes and the weights that no output needs. Nodes are in running order.
pub(crate) fn keep_needed(graph: &mut GraphProto) {
    let mut needed: HashSet<String> = graph.output.iter().map(|port| port.name.clone()).collect();
    let mut kept = Vec::new();
    for node in std::mem::take(&mut graph.node).into_iter().rev() {
        if node.output.iter().any(|made| needed.contains(made)) {
            needed.extend(reads(&node).into_iter().map(str::to_owned));
            kept.push(node);
        }
    }
    kept.reverse();
    graph.node = kept;
    graph.initializer.retain(|tensor| needed.contains(&tensor.name));
    graph.sparse_initializer.retain(|tensor| tensor.values.as_ref().is_some_and(|values| needed.contains(&values.name)));
}

/// What a node reads from its graph, each name once: its inputs, and what its subgraphs take from outside.
fn reads(node: &crate::messages::NodeProto) -> HashSet<&str> {
    let inputs = node.input.iter().map(String::as_str).filter(|name| !name.is_empty());
    let graphs = node.attribute.iter().flat_map(|attribute| attribute.g.iter().chain(&attribute.graphs));
    inputs.chain(graphs.flat_map(|graph| graph.node.iter().flat_map(reads))).collect()
}

/// Names the open axes of the inputs that have no name: each gets its own, so that nothing is assumed.
pub(crate) fn name_axes(graph: &mut GraphProto) {
    let weights: HashSet<&str> = graph.initializer.iter().map(|tensor| tensor.name.as_str()).collect();
    for input in graph.input.iter_mut().filter(|input| !weights.contains(input.name.as_str())) {
        let Some(TensorType(tensor)) = input.r#type.as_mut().and_then(|kind| kind.value.as_mut()) else { continue };
        for (axis, dim) in tensor.shape.iter_mut().flat_map(|shape| &mut shape.dim).enumerate() {
            let is_named = match &dim.value {
                Some(DimValue(length)) => *length > 0,
                Some(DimParam(name)) => !matches!(name.trim(), "" | "?"),
                None => false,
            };
            if !is_named {
                dim.value = Some(DimParam(format!("axis_{}_{axis}", plain(&input.name))));
            }
        }
    }
}

/// The name of the axis that [`open_rows`] opens.
const ROWS: &str = "rows_that_were_fixed";

/// The length of the first axis of each input, if the file fixes it at the same one in all of them.
pub(crate) fn fixed_rows(graph: &GraphProto) -> Option<i64> {
    let weights: HashSet<&str> = graph.initializer.iter().map(|tensor| tensor.name.as_str()).collect();
    let mut inputs = graph.input.iter().filter(|input| !weights.contains(input.name.as_str()));
    let rows = |input: &ValueInfoProto| {
        let TensorType(tensor) = input.r#type.as_ref()?.value.as_ref()? else { return None };
        match tensor.shape.as_ref()?.dim.first()?.value {
            Some(DimValue(length)) if length > 0 => Some(length),
            _ => None,
        }
    };
    let first = rows(inputs.next()?)?;
    inputs.all(|input| rows(input) == Some(first)).then_some(first)
}

/// Opens the first axis of each input. What the file declares of other tensors is of the length that it had, and is dropped.
pub(crate) fn open_rows(graph: &mut GraphProto) {
    let GraphProto { input, initializer, value_info, output, .. } = graph;
    let weights: HashSet<&str> = initializer.iter().map(|tensor| tensor.name.as_str()).collect();
    for input in input.iter_mut().filter(|input| !weights.contains(input.name.as_str())) {
        if let Some(dim) = tensor(input).and_then(|tensor| tensor.shape.as_mut()?.dim.first_mut()) {
            dim.value = Some(DimParam(ROWS.to_owned()));
        }
    }
    value_info.clear();
    output.iter_mut().filter_map(tensor).for_each(|output| output.shape = None);
}

fn tensor(port: &mut ValueInfoProto) -> Option<&mut Tensor> {
    if let TensorType(tensor) = port.r#type.as_mut()?.value.as_mut()? { Some(tensor) } else { None }
}

/// A name as a part of an axis's: letters, digits and underscores.
fn plain(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use crate::messages::tensor_shape_proto::Dimension;
    use crate::messages::{AttributeProto, NodeProto, TensorShapeProto, TypeProto};

    use super::*;

    fn node(reads: &[&str], makes: &str) -> NodeProto {
        let input = reads.iter().map(ToString::to_string).collect();
        NodeProto { name: makes.into(), input, output: vec![makes.into()], ..Default::default() }
    }

    fn ordered(nodes: Vec<NodeProto>) -> Vec<String> {
        let mut graph = GraphProto { node: nodes, ..Default::default() };
        order_nodes(&mut graph);
        graph.node.into_iter().map(|node| node.name).collect()
    }

    #[test]
    fn what_no_output_needs_is_dropped() {
        use crate::messages::TensorProto;

        let weight = |name: &str| TensorProto { name: name.into(), ..Default::default() };
        let inner = GraphProto { node: vec![node(&["outer", "own"], "z")], ..Default::default() };
        let branch = AttributeProto { g: Some(inner), ..Default::default() };
        let with_branch = NodeProto { attribute: vec![branch], ..node(&["a"], "b") };
        let mut graph = GraphProto {
            node: vec![node(&["x", "w"], "a"), node(&["x", "v"], "outer"), with_branch, node(&["b", "u"], "c")],
            output: vec![ValueInfoProto { name: "b".into(), ..Default::default() }],
            initializer: ["u", "v", "w"].map(weight).into(),
            ..Default::default()
        };
        keep_needed(&mut graph);
        // a branch reads what is outside of it
        assert_eq!(graph.node.iter().map(|node| &node.name[..]).collect::<Vec<_>>(), ["a", "outer", "b"]);
        assert_eq!(graph.initializer.iter().map(|tensor| &tensor.name[..]).collect::<Vec<_>>(), ["v", "w"]);
    }

    #[test]
    fn nodes_come_after_what_they_read() {
        assert_eq!(ordered(vec![node(&["x"], "a"), node(&["a"], "b")]), ["a", "b"]);
        assert_eq!(
            ordered(vec![node(&["b", "b"], "c"), node(&["a"], "b"), node(&["x"], "a"), node(&["x"], "d")]),
            ["a", "b", "c", "d"]
        );
        // a cycle, and what reads it, stays for the check to name
        assert_eq!(
            ordered(vec![node(&["c"], "a"), node(&["c"], "b"), node(&["b"], "c"), node(&["x"], "d")]),
            ["d", "a", "b", "c"]
        );
        assert_eq!(ordered(vec![node(&["a"], "a")]), ["a"]);
    }

    #[test]
    fn a_node_comes_after_what_its_subgraph_reads() {
        let inner = GraphProto { node: vec![node(&["y"], "z"), node(&["outer"], "y")], ..Default::default() };
        let attribute = vec![AttributeProto { g: Some(inner), ..Default::default() }];
        let branch = NodeProto { attribute, ..node(&["condition"], "branch") };
        let mut graph = GraphProto { node: vec![branch, node(&["x"], "outer")], ..Default::default() };
        order_nodes(&mut graph);
        assert_eq!(graph.node.iter().map(|node| node.name.as_str()).collect::<Vec<_>>(), ["outer", "branch"]);
        let inner = graph.node[1].attribute[0].g.as_ref().unwrap();
        assert_eq!(inner.node.iter().map(|node| node.name.as_str()).collect::<Vec<_>>(), ["y", "z"]);
    }

    fn input(name: &str, dims: &[Option<crate::messages::tensor_shape_proto::dimension::Value>]) -> ValueInfoProto {
        let dim = dims.iter().map(|value| Dimension { value: value.clone(), ..Default::default() }).collect();
        let tensor = Tensor { elem_type: 1, shape: Some(TensorShapeProto { dim }) };
        let kind = TypeProto { value: Some(TensorType(tensor)), ..Default::default() };
        ValueInfoProto { name: name.into(), r#type: Some(kind), ..Default::default() }
    }

    fn axes(graph: &GraphProto, at: usize) -> Vec<String> {
        let Some(TensorType(tensor)) = graph.input[at].r#type.as_ref().and_then(|kind| kind.value.as_ref()) else {
            return vec![];
        };
        let text = |dim: &Dimension| match &dim.value {
            Some(DimValue(length)) => length.to_string(),
            Some(DimParam(name)) => name.clone(),
            None => "none".to_owned(),
        };
        tensor.shape.iter().flat_map(|shape| &shape.dim).map(text).collect()
    }

    #[test]
    fn open_axes_get_names() {
        let param = |name: &str| Some(DimParam(name.to_owned()));
        let first = input("x:0", &[None, Some(DimValue(-1)), Some(DimValue(0)), Some(DimValue(8)), param("sequence")]);
        let second = input("y", &[param("?"), param("unk__3"), param("past + 1"), param("Dimension.1"), param("")]);
        let mut graph = GraphProto { input: vec![first, second], ..Default::default() };
        name_axes(&mut graph);
        assert_eq!(axes(&graph, 0), ["axis_x_0_0", "axis_x_0_1", "axis_x_0_2", "8", "sequence"]);
        assert_eq!(axes(&graph, 1), ["axis_y_0", "unk__3", "past + 1", "Dimension.1", "axis_y_4"]);
    }

    #[test]
    fn a_weight_is_no_input() {
        let mut graph = GraphProto { input: vec![input("w", &[None])], ..Default::default() };
        graph.initializer.push(crate::messages::TensorProto { name: "w".into(), ..Default::default() });
        name_axes(&mut graph);
        assert_eq!(axes(&graph, 0), ["none"]);
    }

    #[test]
    fn a_fixed_first_axis_that_all_inputs_have_is_opened() {
        let param = |name: &str| Some(DimParam(name.to_owned()));
        let fixed = |name: &str, rows: i64| input(name, &[Some(DimValue(rows)), Some(DimValue(3))]);
        let opened = |inputs: &[ValueInfoProto]| {
            let (output, value_info) = (vec![fixed("y", 1)], vec![fixed("h", 1)]);
            let mut graph = GraphProto { input: inputs.to_vec(), output, value_info, ..Default::default() };
            graph.initializer.push(crate::messages::TensorProto { name: "w".into(), ..Default::default() });
            fixed_rows(&graph).map(|_| {
                open_rows(&mut graph);
                graph
            })
        };
        let graph = opened(&[fixed("a", 1), fixed("w", 5), fixed("b", 1)]).unwrap();
        assert_eq!([0, 1, 2].map(|at| axes(&graph, at).join(" ")), [format!("{ROWS} 3"), "5 3".into(), format!("{ROWS} 3")]);
        assert!(graph.value_info.is_empty());
        let open = input("a", &[param("n"), Some(DimValue(3))]);
        for inputs in
            [vec![], vec![open.clone()], vec![fixed("b", 1), open], vec![fixed("a", 1), fixed("b", 2)], vec![input("a", &[])]]
        {
            assert!(opened(&inputs).is_none(), "{inputs:?}");
        }
    }
}
