//! The shapes of a graph for a call of given lengths. Constants are not computed again.

use std::collections::HashMap;

use super::lengths::{Symbols, evaluate, fixed};
use super::node::made;
use crate::EngineError;
use crate::fold::Folding;
use crate::shaped::{KnownValue, Length, ShapedGraph, TensorFact, TensorId};

/// A graph whose inputs have the lengths of a call.
#[derive(Debug)]
pub(crate) struct Concrete<'g> {
    graph: &'g ShapedGraph,
    facts: Vec<TensorFact>,
}

impl<'g> Concrete<'g> {
    /// The graph for inputs of these shapes, in its own order.
    ///
    /// # Errors
    ///
    /// [`EngineError::Input`] names the input that does not fit; [`EngineError::Model`] the node that these lengths do not fit.
    pub(crate) fn of(graph: &'g ShapedGraph, shapes: &[Vec<usize>]) -> Result<Self, EngineError> {
        let mut facts = graph.tensors.clone();
        let mut names = HashMap::new();
        let mut symbols = Symbols::new();
        for (id, shape) in graph.inputs.iter().zip(shapes) {
            let fact = &mut facts[id.0];
            let fails = |reason: String| Err(EngineError::input(&fact.name, reason));
            if let Some(axes) = &fact.shape {
                if axes.len() != shape.len() {
                    return fails(format!("expected {} axes, got the shape {shape:?}", axes.len()));
                }
                for (axis, length) in axes.iter().zip(shape) {
                    match axis {
                        Length::Value(wanted) if usize::try_from(*wanted) != Ok(*length) => {
                            return fails(format!("expected an axis of length {wanted}, got the shape {shape:?}"));
                        }
                        Length::Var(symbol) => drop(names.entry(symbol.name.clone()).or_insert(*length as i64)),
                        _ => {}
                    }
                }
            }
            fact.shape = Some(shape.iter().map(|length| symbols.of(i64::try_from(*length).unwrap_or(i64::MAX))).collect());
        }
        let mut concrete = Self { graph, facts };
        concrete.infer(&names, &mut symbols)?;
        Ok(concrete)
    }

    fn infer(&mut self, names: &HashMap<String, i64>, symbols: &mut Symbols) -> Result<(), EngineError> {
        let mut folding = Folding::small();
        for node in &self.graph.nodes {
            let fails = |reason| EngineError::part(format!("node {} ({})", node.name, node.operator), reason);
            let all = made(node, &self.facts, symbols, &mut folding).map_err(fails)?;
            for (id, made) in node.outputs.iter().zip(all) {
                let Some(id) = id else { continue };
                let fact = &mut self.facts[id.0];
                if matches!(fact.value, KnownValue::Constant(_) | KnownValue::Weight) {
                    continue;
                }
                let before = fact.shape.take();
                // what the rule does not know may be known by its names
                let known = |shape: &[Length]| {
                    let lengths =
                        shape.iter().map(|length| evaluate(length, names).and_then(|length| i32::try_from(length).ok()));
                    lengths.map(|length| length.filter(|length| *length >= 0).map(Length::Value)).collect::<Option<Vec<_>>>()
                };
                fact.shape = match made.shape {
                    Some(shape) if fixed(&shape).is_some() => Some(shape),
                    other => before.as_deref().and_then(known).or(other),
                };
                fact.value = made.value;
            }
        }
        Ok(())
    }

    /// The lengths of a tensor; `None` if they depend on the call's values.
    pub(crate) fn shape(&self, id: TensorId) -> Option<Vec<usize>> {
        match &self.facts[id.0].value {
            KnownValue::Constant(constant) => Some(constant.shape.clone()),
            _ => fixed(self.facts[id.0].shape.as_deref()?),
        }
    }

    /// What is known of a tensor.
    pub(crate) fn fact(&self, id: TensorId) -> &TensorFact {
        &self.facts[id.0]
    }
}
