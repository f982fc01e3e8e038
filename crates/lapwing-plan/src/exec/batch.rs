//! The input of one run of a plan, and why a run fails.

use crate::plan::{BatchSize, ElementType, Plan};
use lapwing_onnx::tensor::Tensor;

/// Why a batch could not be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// An input's length or type is not the one that the batch requires.
    #[error("{input}: expected {expected} elements of {kind:?}, got {got}")]
    Input {
        /// The input's name.
        input: String,
        /// Number of elements required.
        expected: usize,
        /// Element type required.
        kind: ElementType,
        /// Number of elements given.
        got: usize,
    },
    /// The batch has no sequences, has a sequence without tokens, or has the wrong number of inputs.
    #[error("batch: {reason}")]
    Batch {
        /// The reason.
        reason: String,
    },
    /// An id is out of its table's range.
    #[error(transparent)]
    Id(#[from] IdError),
    /// A kernel rejected its node, which means that the plan is wrong.
    #[error("{node}: {reason}")]
    Node {
        /// The node's name in the model.
        node: String,
        /// The kernel's error.
        reason: String,
    },
}

/// An id is not a row of its table, or a sequence is longer than the table of positions.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("table {table} has {rows} rows, token {token} asks for row {value}")]
pub struct IdError {
    /// The table's name.
    pub table: String,
    /// How many rows it has.
    pub rows: usize,
    /// The token's index in the batch.
    pub token: usize,
    /// The id, or the position.
    pub value: i64,
}

/// The input of one run.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// Where each sequence's tokens begin, followed by the end of the last one. In a model without sequences each row
    /// counts as one token.
    pub offsets: &'a [usize],
    /// Where each sequence's past begins, followed by the end of the last one; empty if the model has no cache.
    pub past: &'a [usize],
    /// The data of each input, in the plan's order; rows are contiguous.
    pub inputs: &'a [Input<'a>],
}

/// The input of one run as its calls hold it: an executor that copies inputs anyway lays them end to end itself.
#[derive(Clone, Copy, Debug)]
pub struct CallBatch<'a> {
    /// As of a [`Batch`].
    pub offsets: &'a [usize],
    /// The calls, each with a tensor for every input, in the plan's order: little-endian elements of the plan's type, in whole rows.
    pub calls: &'a [&'a [Tensor]],
}

/// The data of one input.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// Float32.
    F32(&'a [f32]),
    /// 64-bit integers.
    I64(&'a [i64]),
    /// 32-bit integers.
    I32(&'a [i32]),
    /// Booleans.
    Bool(&'a [bool]),
}

impl Input<'_> {
    /// Number of elements.
    #[must_use]
    pub const fn len(&self) -> usize {
        match self {
            Self::F32(data) => data.len(),
            Self::I64(data) => data.len(),
            Self::I32(data) => data.len(),
            Self::Bool(data) => data.len(),
        }
    }

    /// Whether there are no elements.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Batch<'_> {
    /// Returns the batch's size if it fits the plan.
    ///
    /// # Errors
    ///
    /// [`RunError::Batch`] or [`RunError::Input`] says what does not fit.
    pub fn size(&self, plan: &Plan) -> Result<BatchSize, RunError> {
        let size = size_of(self.offsets, if plan.has_past() { Some(self.past) } else { None })?;
        has_inputs(self.inputs.len(), plan)?;
        for (port, input) in plan.inputs.iter().zip(self.inputs) {
            let value = plan.value(port.value);
            let expected = size.rows(value.rows) * value.width;
            let is_kind = matches!(
                (value.kind, input),
                (ElementType::F32, Input::F32(_))
                    | (ElementType::I64, Input::I64(_))
                    | (ElementType::I32, Input::I32(_))
                    | (ElementType::Bool, Input::Bool(_))
            );
            if !is_kind || input.len() != expected {
                return Err(RunError::Input { input: port.name.clone(), expected, kind: value.kind, got: input.len() });
            }
        }
        Ok(size)
    }
}

impl CallBatch<'_> {
    /// Returns the batch's size if it fits the plan.
    ///
    /// # Errors
    ///
    /// [`RunError::Batch`] or [`RunError::Input`] says what does not fit.
    pub fn size(&self, plan: &Plan) -> Result<BatchSize, RunError> {
        let size = size_of(self.offsets, None)?;
        self.calls.iter().try_for_each(|call| has_inputs(call.len(), plan))?;
        for (at, port) in plan.inputs.iter().enumerate() {
            let value = plan.value(port.value);
            let (width, bytes) = (value.width, value.kind.bytes());
            let lengths = || self.calls.iter().map(|call| call[at].data.len());
            if lengths().any(|length| length % (width * bytes).max(1) != 0) {
                return Err(RunError::Batch { reason: format!("{}: a call has a part of a row of {width}", port.name) });
            }
            let (expected, got) = (size.rows(value.rows) * width, lengths().sum::<usize>() / bytes);
            if got != expected {
                return Err(RunError::Input { input: port.name.clone(), expected, kind: value.kind, got });
            }
        }
        Ok(size)
    }
}

/// The size of a batch whose sequences, and their pasts if they have any, begin at these offsets.
fn size_of(offsets: &[usize], past: Option<&[usize]>) -> Result<BatchSize, RunError> {
    let fails = |reason: &str| Err(RunError::Batch { reason: reason.to_owned() });
    if offsets.len() < 2 || offsets[0] != 0 {
        return fails("has no sequences");
    }
    let lengths = || offsets.windows(2).map(|pair| pair[1].saturating_sub(pair[0]));
    if lengths().any(|length| length == 0) {
        return fails("has a sequence without tokens");
    }
    let Some(past) = past else { return Ok(BatchSize::of(lengths())) };
    if past.len() != offsets.len() || past[0] != 0 || !past.is_sorted() {
        return fails("has a sequence without a past, or one that ends before it begins");
    }
    Ok(BatchSize::of_pairs(lengths().zip(past.windows(2).map(|pair| pair[1] - pair[0]))))
}

fn has_inputs(given: usize, plan: &Plan) -> Result<(), RunError> {
    if given == plan.inputs.len() {
        return Ok(());
    }
    Err(RunError::Batch { reason: format!("has {given} inputs, the model {}", plan.inputs.len()) })
}
