//! `If`, `Loop` and `Scan`. A branch whose condition is constant takes the node's place. Of other branches both are looked at, and what
//! they agree on is known; of loops, what their bodies declare.

use super::builder::Builder;
use super::node::Made;
use super::scope::declared;
use crate::EngineError;
use crate::messages::{GraphProto, NodeProto};
use crate::shaped::{KnownValue, ShapedNode, TensorFact, TensorId};

fn graph<'a>(node: &'a NodeProto, name: &str) -> Option<&'a GraphProto> {
    node.attribute.iter().find(|attribute| attribute.name == name).and_then(|attribute| attribute.g.as_ref())
}

impl<'a> Builder<'a> {
    /// Puts the branch of a constant condition in the place of its node, if there is one.
    pub(crate) fn taken_branch(&mut self, proto: &'a NodeProto, inputs: &[Option<TensorId>]) -> Result<bool, EngineError> {
        let condition = inputs.first().copied().flatten().and_then(|id| match &self.tensors[id.0].value {
            KnownValue::Constant(constant) => Some(constant),
            _ => None,
        });
        let Some(holds) = condition.and_then(|condition| condition.ints()?.next()) else { return Ok(false) };
        let name = if holds != 0 { "then_branch" } else { "else_branch" };
        let Some(branch) = graph(proto, name).filter(|branch| branch.output.len() >= proto.output.len()) else {
            return Ok(false);
        };
        self.enter(branch)?;
        let prefix = self.own_name(proto);
        if let Some(scope) = self.scopes.last_mut() {
            scope.prefix = Some(prefix);
        }
        let visited = self.visit(branch);
        let made: Vec<Option<TensorId>> = branch.output.iter().map(|output| self.find(&output.name)).collect();
        self.scopes.pop();
        visited?;
        let name = self.name(proto);
        for (at, (output, from)) in proto.output.iter().zip(made).enumerate() {
            let Some(from) = from.filter(|_| !output.is_empty()) else { continue };
            let fact = &self.tensors[from.0];
            let made = Made { datatype: fact.datatype, shape: fact.shape.clone(), value: fact.value.clone() };
            let is_constant = matches!(made.value, KnownValue::Constant(_));
            let id = self.add(output, made);
            if !is_constant {
                self.nodes.push(ShapedNode {
                    name: format!("{name}/{at}"),
                    operator: "Identity".to_owned(),
                    domain: String::new(),
                    version: self.opsets.get("").copied().unwrap_or(1),
                    inputs: vec![Some(from)],
                    outputs: vec![Some(id)],
                    attributes: Vec::new(),
                });
            }
        }
        Ok(true)
    }

    fn own_name(&self, proto: &NodeProto) -> String {
        if proto.name.is_empty() { proto.output.first().cloned().unwrap_or_default() } else { proto.name.clone() }
    }

    /// What is known of the outputs of a node with subgraphs.
    pub(crate) fn control_flow(&mut self, proto: &'a NodeProto, node: &ShapedNode) -> Result<Vec<Made>, EngineError> {
        match proto.op_type.as_str() {
            "If" => {
                let (Some(yes), Some(no)) = (graph(proto, "then_branch"), graph(proto, "else_branch")) else {
                    return Ok(Vec::new());
                };
                let (yes, no) = (self.looked_at(yes)?, self.looked_at(no)?);
                Ok(yes.into_iter().zip(no).map(|(yes, no)| self.common(&yes, &no)).collect())
            }
            kind => {
                let Some(body) = graph(proto, "body") else { return Ok(Vec::new()) };
                Ok(self.repeated(body, node, kind == "Loop"))
            }
        }
    }

    /// The outputs of a branch that may be taken. Its nodes are not kept.
    fn looked_at(&mut self, branch: &'a GraphProto) -> Result<Vec<TensorFact>, EngineError> {
        let (nodes, tensors) = (self.nodes.len(), self.tensors.len());
        self.maybe += 1;
        let visited = self.enter(branch).and_then(|()| self.visit(branch));
        let found = branch.output.iter().map(|output| self.find(&output.name));
        let unknown = || TensorFact { name: String::new(), datatype: None, shape: None, value: KnownValue::Unknown };
        let facts = found.map(|id| id.map_or_else(unknown, |id| self.tensors[id.0].clone())).collect();
        self.scopes.pop();
        self.maybe -= 1;
        self.nodes.truncate(nodes);
        self.tensors.truncate(tensors);
        visited.map(|()| facts)
    }

    /// What two branches have in common.
    fn common(&mut self, yes: &TensorFact, no: &TensorFact) -> Made {
        let shape = match (&yes.shape, &no.shape) {
            (Some(yes), Some(no)) if yes.len() == no.len() => {
                let pairs = yes.iter().zip(no);
                Some(pairs.map(|(a, b)| if a == b { a.clone() } else { self.symbols.fresh() }).collect())
            }
            _ => None,
        };
        Made { datatype: yes.datatype.filter(|_| yes.datatype == no.datatype), shape, value: KnownValue::Unknown }
    }

    /// The outputs of a loop: what is carried from step to step, then what each step adds. A body's own names say nothing outside.
    fn repeated(&mut self, body: &'a GraphProto, node: &ShapedNode, is_loop: bool) -> Vec<Made> {
        let (skipped, before) = if is_loop { (1, 2) } else { (0, 0) };
        let carried = match is_loop {
            true => node.inputs.len().saturating_sub(2),
            false => node.inputs.len().saturating_sub(usize::try_from(node.int("num_scan_inputs").unwrap_or(0)).unwrap_or(0)),
        };
        let outputs = body.output.iter().skip(skipped).enumerate();
        outputs
            .map(|(at, output)| {
                let (datatype, inner) = declared(output, false, &[], &mut self.symbols);
                let start = node.inputs.get(before + at).copied().flatten().filter(|_| at < carried);
                let start = start.map(|id| &self.tensors[id.0]);
                let shape = match start {
                    // a state keeps its shape; what a loop carries may change it
                    Some(start) if !is_loop => start.shape.clone().or(inner),
                    Some(_) => inner,
                    None => {
                        let steps = self.symbols.fresh();
                        inner.map(|inner| [&[steps], &inner[..]].concat())
                    }
                };
                Made { datatype: datatype.or(start.and_then(|start| start.datatype)), shape, value: KnownValue::Unknown }
            })
            .collect::<Vec<Made>>()
    }
}
