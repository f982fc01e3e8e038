//! What rten says, in few words: node, operator, reason.

use std::any::Any;
use std::collections::HashMap;

use ::rten::{LoadError, RunError};

use lapwing_onnx::EngineError;

/// The most characters of a reason.
const MOST: usize = 240;

/// An error of loading.
pub(crate) fn load(error: &LoadError, operators: &HashMap<String, String>) -> EngineError {
    let said = error.to_string();
    match error.node() {
        Some(node) => {
            let reason = said.strip_prefix(&format!("in node {node:?}: ")).unwrap_or(&said);
            let reason = reason.strip_prefix("operator error: ").unwrap_or(reason);
            EngineError::part(named(node, operators), short(&format!("rten cannot load it: {reason}")))
        }
        None => EngineError::part("graph", short(&format!("rten cannot load it: {said}"))),
    }
}

/// An error of a run.
pub(crate) fn run(error: &RunError, operators: &HashMap<String, String>) -> EngineError {
    let said = error.to_string();
    match error.node_path().into_iter().flatten().last() {
        Some(node) => {
            let reason = said.strip_prefix(&format!("operator {node:?} failed: ")).unwrap_or(&said);
            EngineError::Run { reason: short(&format!("{}: rten: {reason}", named(node, operators))) }
        }
        None => EngineError::Run { reason: short(&format!("rten: {said}")) },
    }
}

/// An error of a node that the engine's kernels compute.
pub(crate) fn step(node: &str, reason: &str, operators: &HashMap<String, String>) -> String {
    short(&format!("{}: {reason}", named(node, operators)))
}

/// `node N (Operator, ai.onnx 17)`.
fn named(node: &str, operators: &HashMap<String, String>) -> String {
    match operators.get(node) {
        Some(operator) => format!("node {node} ({operator})"),
        None => format!("node {node}"),
    }
}

/// What a panic said.
pub(crate) fn panic(panic: &(dyn Any + Send)) -> String {
    let said = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("it gave up: {}", short(said.unwrap_or("without words")))
}

/// A text in one line, cut where it is too long.
pub(crate) fn short(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}
