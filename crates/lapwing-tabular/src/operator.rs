//! What an operator of a tabular model does, and what it costs.

use crate::attributes::{Attributes, Reason};
use crate::lanes::Block;
use crate::value::Value;

/// Work of one run, counted and not measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TabularCost {
    /// Comparisons of a column with a threshold: those of the path to a leaf, averaged over the leaves of each tree.
    pub comparisons: u64,
    /// Additions, multiplications and other operations on numbers; a multiply-add is two, a transcendental function one.
    pub flops: u64,
    /// Bytes of columns, thresholds, coefficients and results that the operators read and write; those of strings are not counted.
    pub bytes: u64,
}

impl TabularCost {
    pub(crate) const fn plus(self, other: Self) -> Self {
        Self {
            comparisons: self.comparisons.saturating_add(other.comparisons),
            flops: self.flops.saturating_add(other.flops),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }
}

/// An operator with its attributes. It holds nothing that a run changes.
pub(crate) trait Operator: std::fmt::Debug + Send + Sync {
    /// Computes the results. An input that the node leaves out is `None`.
    fn run(&self, inputs: &[Option<&Value>], scratch: &mut Scratch) -> Result<Vec<Value>, Reason>;

    /// The work of a run that read `inputs` and made `outputs`. By default an operation per element that is made.
    fn cost(&self, inputs: &[Option<&Value>], outputs: &[Value]) -> TabularCost {
        let flops = outputs.iter().map(|value| value.elements.len() as u64).sum();
        TabularCost { comparisons: 0, flops, bytes: moved(inputs, outputs) }
    }
}

/// Bytes of the values that an operator reads and makes.
pub(crate) fn moved(inputs: &[Option<&Value>], outputs: &[Value]) -> u64 {
    inputs.iter().flatten().map(|value| value.bytes()).chain(outputs.iter().map(Value::bytes)).sum()
}

/// The input of an operator that needs it.
pub(crate) fn required<'a>(inputs: &[Option<&'a Value>], at: usize) -> Result<&'a Value, Reason> {
    inputs.get(at).copied().flatten().ok_or_else(|| format!("input {at} is missing"))
}

/// Makes an operator of a node. `inputs` are examples of what it will read: their types hold for every run, their lengths may not.
pub(crate) type Loader = fn(Attributes<'_>, inputs: &[Option<&Value>]) -> Result<Box<dyn Operator>, Reason>;

/// Memory that operators use while they run, and that is kept from run to run.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) single: Block<f32>,
    pub(crate) double: Block<f64>,
    /// Whether the inputs are synthetic: then a category that is unknown is no error.
    pub(crate) is_trial: bool,
}
