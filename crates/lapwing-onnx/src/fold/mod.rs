//! Evaluates nodes that read constants only: weights that a file transposes, casts or dequantizes, masks and tables, and the numbers from
//! which shapes are made.
//!
//! An operator that is not evaluated stays a node. What all of them make and read together is bounded by the size of the file's own
//! constants, so that a small file cannot ask for much. Numbers are computed in double precision and rounded to their type once per node:
//! for sums, differences, products, quotients and roots of single precision that is the same as computing in it.

mod arithmetic;
mod movement;
mod reduce;
mod task;
mod walk;

use self::task::Task;
use crate::shaped::{Constant, KnownValue};
use crate::tensor::Datatype;
use crate::view::{Reason, View};

/// What may be made and read however small the file is, in elements.
const LEAST: usize = 1 << 24;
/// What may be made however large the file is, in elements.
const MOST: usize = 1 << 28;

/// What is left of the bounds.
#[derive(Debug)]
pub(crate) struct Folding {
    /// Elements that may still be made.
    made: usize,
    /// Elements that may still be read and made.
    touched: usize,
}

impl Folding {
    /// For a file whose constants have this many elements.
    pub(crate) const fn new(elements: usize) -> Self {
        let own = elements.saturating_mul(8);
        let made = if own < MOST - LEAST { LEAST + own } else { MOST };
        Self { made, touched: made.saturating_mul(4) }
    }

    /// For what is computed again with the lengths of a call.
    pub(crate) const fn small() -> Self {
        Self { made: 1 << 16, touched: 1 << 18 }
    }

    /// Evaluates a node whose inputs are constants; `shapes` are those of its outputs as far as they are known, `datatype` is the type of
    /// the first.
    ///
    /// # Errors
    ///
    /// An input that is out of its range.
    pub(crate) fn fold(
        &mut self,
        view: &View<'_>,
        shapes: &[Option<Vec<usize>>],
        datatype: Option<Datatype>,
    ) -> Result<Option<Vec<Constant>>, Reason> {
        if !matches!(view.node.domain.as_str(), "" | "ai.onnx") {
            return Ok(None);
        }
        let inputs: Vec<Option<&Constant>> = view.inputs.iter().map(|fact| fact.and_then(|fact| constant(&fact.value))).collect();
        let Some(shape) = shapes.first().cloned().flatten() else { return Ok(None) };
        let read: usize = inputs.iter().flatten().map(|constant| constant.elements()).fold(0, usize::saturating_add);
        let sizes =
            shapes.iter().flatten().map(|shape| shape.iter().fold(1_usize, |product, length| product.saturating_mul(*length)));
        let made = sizes.fold(0, usize::saturating_add);
        // numbers take their turn through memory in both directions
        let touched = read.saturating_add(made);
        if made > self.made || touched > self.touched {
            return Ok(None);
        }
        let task = Task { view, inputs: &inputs, shapes, shape: &shape, datatype };
        let constants = match movement::evaluate(&task)? {
            Some(constants) => Some(constants),
            None => match reduce::evaluate(&task)? {
                Some(constant) => Some(vec![constant]),
                None => arithmetic::evaluate(&task).map(|constant| vec![constant]),
            },
        };
        if constants.is_some() {
            (self.made, self.touched) = (self.made - made, self.touched - touched);
        }
        Ok(constants)
    }
}

fn constant(value: &KnownValue) -> Option<&Constant> {
    if let KnownValue::Constant(constant) = value { Some(constant) } else { None }
}
