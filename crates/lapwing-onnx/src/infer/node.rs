//! What one node makes: types, shapes, and what is known of values.

use std::sync::Arc;

use super::lengths::{Symbols, fixed, shown};
use super::rules::rule;
use super::{datatypes, values};
use crate::fold::Folding;
use crate::shaped::{Constant, KnownValue, Length, ShapedNode, TensorFact};
use crate::sizes;
use crate::tensor::Datatype;
use crate::view::{Reason, View};

/// The most axes of a tensor.
const MOST_AXES: usize = 32;

/// What is known of an output.
#[derive(Debug, Default)]
pub(crate) struct Made {
    pub(crate) datatype: Option<Datatype>,
    pub(crate) shape: Option<Vec<Length>>,
    pub(crate) value: KnownValue,
}

/// What is known of a node's outputs, each of them.
///
/// # Errors
///
/// Why the node cannot run, whatever a call gives.
pub(crate) fn made(
    node: &ShapedNode,
    tensors: &[TensorFact],
    symbols: &mut Symbols,
    folding: &mut Folding,
) -> Result<Vec<Made>, Reason> {
    made_of(&View { node, inputs: node.inputs.iter().map(|id| id.map(|id| &tensors[id.0])).collect() }, symbols, folding)
}

/// What a node makes of constants, in its inputs' order; `None` if it is not evaluated.
///
/// # Errors
///
/// Why the node cannot run with them.
pub fn computed(node: &ShapedNode, inputs: &[Option<Arc<Constant>>]) -> Result<Option<Vec<Arc<Constant>>>, Reason> {
    let mut symbols = Symbols::new();
    let fact = |constant: &Arc<Constant>, symbols: &mut Symbols| TensorFact {
        name: String::new(),
        datatype: Some(constant.datatype),
        shape: Some(symbols.shape(&constant.shape)),
        value: KnownValue::Constant(constant.clone()),
    };
    let facts: Vec<Option<TensorFact>> =
        inputs.iter().map(|input| input.as_ref().map(|constant| fact(constant, &mut symbols))).collect();
    let view = View { node, inputs: facts.iter().map(Option::as_ref).collect() };
    let all = made_of(&view, &mut symbols, &mut Folding::new(0))?;
    let constant = |made: Made| if let KnownValue::Constant(constant) = made.value { Some(constant) } else { None };
    Ok(all.into_iter().map(constant).collect())
}

fn made_of(view: &View<'_>, symbols: &mut Symbols, folding: &mut Folding) -> Result<Vec<Made>, Reason> {
    let node = view.node;
    let Some(rule) = rule(&node.domain, &node.operator) else {
        return Ok(node.outputs.iter().map(|_| Made::default()).collect());
    };
    let mut shapes = rule(view, symbols)?.into_iter();
    let kinds = datatypes::made(view);
    let mut all: Vec<Made> = Vec::with_capacity(kinds.len());
    for datatype in kinds {
        let shape = shapes.next().flatten();
        if let Some(shape) = &shape {
            check(shape)?;
        }
        all.push(Made { datatype, shape, value: KnownValue::Unknown });
    }
    let is_constant = view.inputs.iter().flatten().all(|fact| matches!(fact.value, KnownValue::Constant(_)));
    if is_constant && view.inputs.iter().any(Option::is_some) {
        let shapes: Vec<Option<Vec<usize>>> = all.iter().map(|made| made.shape.as_deref().and_then(fixed)).collect();
        if let Some(constants) = folding.fold(view, &shapes, all.first().and_then(|made| made.datatype))? {
            for (made, constant) in all.iter_mut().zip(constants) {
                *made = Made::of(constant, symbols);
            }
            return Ok(all);
        }
    }
    if node.operator == "Split" && node.domain.is_empty() {
        split(view, &mut all);
    } else if let Some(first) = all.first_mut()
        && let Some(count) = first.shape.as_deref().and_then(elements)
        && let Some(values) = values::made(view, count, symbols)
    {
        first.know(values);
    }
    Ok(all)
}

impl Made {
    /// What is known of a constant.
    pub(crate) fn of(constant: Constant, symbols: &mut Symbols) -> Self {
        let shape = symbols.shape(&constant.shape);
        Self { datatype: Some(constant.datatype), shape: Some(shape), value: KnownValue::Constant(Arc::new(constant)) }
    }

    /// Takes values: a constant if all are numbers.
    fn know(&mut self, values: Vec<Length>) {
        let numbers: Option<Vec<i64>> =
            values.iter().map(|value| if let Length::Value(number) = value { Some((*number).into()) } else { None }).collect();
        let constant = numbers
            .zip(self.datatype)
            .zip(self.shape.as_deref().and_then(fixed))
            .and_then(|((numbers, datatype), shape)| Constant::of_ints(datatype, &shape, numbers.into_iter()));
        self.value = constant.map_or(KnownValue::Lengths(values), |constant| KnownValue::Constant(Arc::new(constant)));
    }
}

/// The number of elements of a scalar, or of a vector of known length.
fn elements(shape: &[Length]) -> Option<usize> {
    match shape {
        [] => Some(1),
        [Length::Value(length)] => usize::try_from(*length).ok(),
        _ => None,
    }
}

/// The parts of a vector of lengths.
fn split(view: &View<'_>, all: &mut [Made]) {
    let Some(values) = view.lengths(0) else { return };
    let mut rest = &values[..];
    for made in all {
        let Some((part, behind)) = made.shape.as_deref().and_then(elements).and_then(|count| rest.split_at_checked(count)) else {
            return;
        };
        made.know(part.to_vec());
        rest = behind;
    }
}

fn check(shape: &[Length]) -> Result<(), Reason> {
    if shape.len() > MOST_AXES {
        return Err(format!("makes {} axes; the bound is {MOST_AXES}", shape.len()));
    }
    if shape.iter().any(|length| matches!(length, Length::Value(number) if *number < 0)) {
        return Err(format!("makes the shape {}", shown(shape)));
    }
    let numbers =
        shape.iter().filter_map(|length| if let Length::Value(number) = length { Some(i64::from(*number)) } else { None });
    sizes::elements(&numbers.filter(|number| *number > 0).collect::<Vec<_>>()).map(drop)
}
