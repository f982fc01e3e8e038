//! From an ONNX graph to steps in order: names become numbers, what never changes is computed once, and each operator is loaded with an
//! example of what it will read.

use lapwing_onnx::UnsupportedNode;
use lapwing_onnx::messages::{GraphProto, ModelProto, NodeProto};
use lapwing_onnx::{NodeOrder, node_order};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::attributes::{Attributes, Reason};
use crate::operator::{Operator, Scratch};
use crate::operators::loader;
use crate::value::{Value, from_proto};

/// The most nodes, initializers, inputs or outputs of a model.
const MOST_PARTS: usize = 50_000;
/// The most elements that all values of one run have together.
pub(crate) const MOST_RUN_ELEMENTS: usize = 1 << 26;

/// A node with its operator. Values have numbers.
#[derive(Debug)]
pub(crate) struct Step {
    /// Name and operator, for errors.
    pub(crate) named: String,
    pub(crate) operator: Box<dyn Operator>,
    /// `None` where the node leaves an input out.
    pub(crate) inputs: Vec<Option<usize>>,
    /// `None` where nothing has a name.
    pub(crate) outputs: Vec<Option<usize>>,
}

/// The steps of a model, and the values that are constant.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) steps: Vec<Step>,
    pub(crate) constants: Vec<Option<Value>>,
    /// The number of each input.
    pub(crate) inputs: Vec<usize>,
    /// The number of each output.
    pub(crate) outputs: Vec<usize>,
}

/// Counts the elements of a run, which are bounded.
#[derive(Debug)]
pub(crate) struct ElementBudget(usize);

impl ElementBudget {
    pub(crate) const fn new() -> Self {
        Self(MOST_RUN_ELEMENTS)
    }

    pub(crate) fn take(&mut self, values: &[Value]) -> Result<(), Reason> {
        for value in values {
            let left = self.0.checked_sub(value.elements.len());
            self.0 = left.ok_or_else(|| {
                format!("a run has more than {MOST_RUN_ELEMENTS} elements in all its values, which is the bound")
            })?;
        }
        Ok(())
    }
}

/// A part of a model that is no node.
pub(crate) fn part(name: &str, reason: impl Into<Reason>) -> UnsupportedNode {
    UnsupportedNode { node: name.to_owned(), operator: "graph".into(), reason: reason.into() }
}

fn check_sizes(graph: &GraphProto) -> Result<(), UnsupportedNode> {
    let parts = [
        ("nodes", graph.node.len()),
        ("initializers", graph.initializer.len()),
        ("inputs", graph.input.len()),
        ("outputs", graph.output.len()),
    ];
    match parts.into_iter().find(|(_, count)| *count > MOST_PARTS) {
        Some((what, count)) => Err(part("graph", format!("has {count} {what}; the bound is {MOST_PARTS}"))),
        None if !graph.sparse_initializer.is_empty() => Err(part("graph", "has sparse initializers")),
        None => Ok(()),
    }
}

/// The nodes in an order in which each comes behind those that it reads from.
fn in_order<'a>(graph: &'a GraphProto, opsets: &Opsets) -> Result<Vec<&'a NodeProto>, UnsupportedNode> {
    let mut made: FxHashSet<&str> = FxHashSet::default();
    let mut outputs = graph.node.iter().flat_map(|node| &node.output).filter(|output| !output.is_empty());
    if let Some(twice) = outputs.find(|output| !made.insert(output)) {
        return Err(part(twice, "is made by two nodes"));
    }
    let NodeOrder { order, stuck } = node_order(graph);
    match stuck.first() {
        Some(at) => Err(opsets.attributes(&graph.node[*at]).unsupported("is in a cycle, or behind one".into())),
        None => Ok(order.into_iter().map(|at| &graph.node[at]).collect()),
    }
}

/// The versions of the operator sets that a model uses.
pub(crate) struct Opsets(Vec<(String, i64)>);

impl Opsets {
    pub(crate) fn of(model: &ModelProto) -> Self {
        Self(model.opset_import.iter().map(|set| (plain(&set.domain).to_owned(), set.version)).collect())
    }

    /// A node's attributes, and the version of its domain.
    fn attributes<'a>(&self, node: &'a NodeProto) -> Attributes<'a> {
        Attributes { node, opset: self.version(&node.domain) }
    }

    /// The version of a domain; 1 if the file names none.
    fn version(&self, domain: &str) -> i64 {
        self.0.iter().find(|(known, _)| known == plain(domain)).map_or(1, |(_, version)| *version)
    }
}

fn plain(domain: &str) -> &str {
    if domain == "ai.onnx" { "" } else { domain }
}

/// Loads all nodes. `examples` has, for each input that a call gives, its name and an example.
pub(crate) fn load(graph: &GraphProto, opsets: &Opsets, examples: Vec<(&str, Value)>) -> Result<Program, UnsupportedNode> {
    check_sizes(graph)?;
    let mut numbers: FxHashMap<&str, usize> = FxHashMap::default();
    let mut values: Vec<Option<Value>> = Vec::new();
    let mut is_constant: Vec<bool> = Vec::new();
    let mut add = |name, value, constant| {
        numbers.insert(name, values.len());
        values.push(value);
        is_constant.push(constant);
        values.len() - 1
    };
    let inputs = examples.into_iter().map(|(name, value)| add(name, Some(value), false)).collect();
    for tensor in &graph.initializer {
        let value = from_proto(tensor).map_err(|reason| part(&tensor.name, reason))?;
        add(&tensor.name, Some(value), true);
    }
    let (mut steps, mut scratch) = (Vec::new(), Scratch { is_trial: true, ..Scratch::default() });
    let mut budget = ElementBudget::new();
    for node in in_order(graph, opsets)? {
        let attributes = opsets.attributes(node);
        let fails = |reason| attributes.unsupported(reason);
        let loader = loader(&node.domain, &node.op_type).ok_or_else(|| fails("is no operator of tabular models".into()))?;
        let number = |name: &String| match numbers.get(name.as_str()) {
            _ if name.is_empty() => Ok(None),
            Some(number) => Ok(Some(*number)),
            None => Err(fails(format!("reads {name}, which nothing makes"))),
        };
        let inputs: Vec<Option<usize>> = node.input.iter().map(number).collect::<Result<_, _>>()?;
        let read: Vec<Option<&Value>> = inputs.iter().map(|number| number.and_then(|number| values[number].as_ref())).collect();
        let operator = loader(attributes, &read).map_err(fails)?;
        let made = operator.run(&read, &mut scratch).map_err(fails)?;
        budget.take(&made).map_err(fails)?;
        if node.output.len() > made.len() {
            return Err(fails(format!("has {} outputs; it makes {}", node.output.len(), made.len())));
        }
        // what passes a value on is no step: its result is another name for the value
        let is_same = node.op_type == "Identity" || node.op_type == "Cast";
        if let (true, [Some(number)], [name], [value]) = (is_same, &inputs[..], &node.output[..], &made[..])
            && read[0].is_some_and(|read| read.elements.datatype() == value.elements.datatype())
        {
            numbers.insert(name, *number);
            continue;
        }
        let constant = inputs.iter().flatten().all(|number| is_constant[*number]);
        let mut outputs = Vec::with_capacity(node.output.len());
        for (name, value) in node.output.iter().zip(made) {
            if name.is_empty() {
                outputs.push(None);
                continue;
            }
            numbers.insert(name, values.len());
            outputs.push(Some(values.len()));
            values.push(Some(value));
            is_constant.push(constant);
        }
        if !constant {
            let unsupported = attributes.unsupported(Reason::new());
            steps.push(Step { named: format!("{} ({})", unsupported.node, node.op_type), operator, inputs, outputs });
        }
    }
    let output = |name: &str| numbers.get(name).copied().ok_or_else(|| part(name, "is an output that nothing makes"));
    let outputs = graph.output.iter().map(|output_info| output(&output_info.name)).collect::<Result<_, _>>()?;
    for (value, constant) in values.iter_mut().zip(&is_constant) {
        *value = value.take().filter(|_| *constant);
    }
    Ok(Program { steps, constants: values, inputs, outputs })
}
