//! Finds the first node at which an executor differs from ONNX Runtime: the file is cut behind one node after the other, and both run what
//! is left.

use std::collections::HashMap;

use lapwing_engine::clock::Stamp;
use lapwing_onnx::OnnxFile;
use lapwing_onnx::messages::NodeProto;

use super::executor::{Executor, ExecutorName};
use super::onnxruntime;
use super::options::ModelOptions;
use super::verify::{self, Verification};
use crate::choice::Backend;

/// How long it is looked for: a start waits for it.
const LONGEST_NS: u64 = 3_000_000_000;

/// Prepares a file for the executor that options name; `None` if that cannot run it.
pub(crate) type Load<'a> = &'a dyn Fn(&OnnxFile, &ModelOptions) -> Option<Box<dyn Executor>>;

/// The node, in words; `None` if it was not found: a file whose weights lie in other files is not cut.
pub(crate) fn find(file: &OnnxFile, executor: ExecutorName, options: &ModelOptions, load: Load<'_>) -> Option<String> {
    let backend = match executor {
        ExecutorName::Plan => Backend::Plan,
        ExecutorName::Tabular => Backend::Tabular,
        ExecutorName::Rten => Backend::Rten,
        ExecutorName::OnnxRuntime => return None,
    };
    let options = ModelOptions { backend, gpu: None, verify: false, measure: false, batch_trial: None, ..options.clone() };
    let nodes = &file.proto.graph.as_ref()?.node;
    Search { file, nodes, options, load, known: HashMap::new(), began: Stamp::now() }.first()
}

struct Search<'a> {
    file: &'a OnnxFile,
    nodes: &'a [NodeProto],
    options: ModelOptions,
    load: Load<'a>,
    /// What came of cutting behind a node, by its place.
    known: HashMap<usize, Outcome>,
    began: Stamp,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Same,
    Different,
    /// What is left cannot be run by both.
    Unknown,
}

impl Search<'_> {
    /// A node that differs although those that it reads from do not.
    fn first(mut self) -> Option<String> {
        let outputs = &self.file.proto.graph.as_ref()?.output;
        let makers: Vec<usize> = outputs.iter().filter_map(|port| self.maker(&port.name)).collect();
        let mut differs = makers.into_iter().find(|at| self.outcome(*at) == Outcome::Different)?;
        // most files are a chain: halves are thrown away as long as what is between is known
        let mut same = None;
        while self.is_in_time() {
            let first = same.map_or(0, |at: usize| at + 1);
            let Some(middle) = (first < differs).then(|| first.midpoint(differs)) else { break };
            match self.outcome(middle) {
                Outcome::Different => differs = middle,
                Outcome::Same | Outcome::Unknown => same = Some(middle),
            }
        }
        // and what it reads decides
        loop {
            let node = &self.nodes[differs];
            // a node that reads what comes after it has no first one before it
            let sources: Vec<usize> = node.input.iter().filter_map(|name| self.maker(name)).filter(|at| *at < differs).collect();
            // what a branch or a loop reads from outside of it is not looked at
            let mut is_known = !node.attribute.iter().any(|attribute| attribute.g.is_some() || !attribute.graphs.is_empty());
            let mut earlier = None;
            for source in sources {
                match self.outcome(source) {
                    Outcome::Different => earlier = earlier.or(Some(source)),
                    Outcome::Unknown => is_known = false,
                    Outcome::Same => {}
                }
            }
            match earlier {
                Some(source) => differs = source,
                None => return Some(said(&self.nodes[differs], is_known)),
            }
        }
    }

    fn is_in_time(&self) -> bool {
        self.began.elapsed() < LONGEST_NS
    }

    /// The place of the node that makes a tensor; an earlier one than any that reads it.
    fn maker(&self, tensor: &str) -> Option<usize> {
        if tensor.is_empty() { None } else { self.nodes.iter().position(|node| node.output.iter().any(|made| made == tensor)) }
    }

    fn outcome(&mut self, at: usize) -> Outcome {
        if let Some(known) = self.known.get(&at) {
            return *known;
        }
        let outcome = if self.is_in_time() { self.compared(at).unwrap_or(Outcome::Unknown) } else { Outcome::Unknown };
        self.known.insert(at, outcome);
        outcome
    }

    fn compared(&self, at: usize) -> Option<Outcome> {
        let made: Vec<&str> = self.nodes[at].output.iter().map(String::as_str).filter(|name| !name.is_empty()).collect();
        let cut = self.file.ending_with(&made).ok()?;
        let session = onnxruntime::reference(Some(&cut), &self.options).ok()?;
        let executor = (self.load)(&cut, &self.options)?;
        match verify::compare(&*executor, &session, Some(&cut)) {
            Verification::Agrees { .. } => Some(Outcome::Same),
            Verification::Differs(_) => Some(Outcome::Different),
            Verification::NotCompared(_) => None,
        }
    }
}

fn said(node: &NodeProto, is_known: bool) -> String {
    let name = if node.name.is_empty() { node.output.first() } else { Some(&node.name) };
    let name = name.map_or("", String::as_str);
    if is_known {
        format!("the first node that differs is {name} ({})", node.op_type)
    } else {
        format!("it differs at {name} ({}), or before", node.op_type)
    }
}
