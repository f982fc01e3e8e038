//! The plan: a model as a list of fused nodes that every executor runs in order.
//!
//! A plan is independent of the batch size. Its values are row-major matrices: one row for each sequence (or row of a
//! table) of a batch, or one for each token of all its sequences, end to end; only the number of rows changes from
//! batch to batch. Only attention, [`Op::Pool`], [`Op::MeanPool`] and [`Op::CumSum`] read across rows, and never beyond
//! a sequence, so that a batch needs no padding. The past of a sequence, if the model has a cache, is ragged like its tokens.

mod account;
mod arena;
mod check;
mod listing;
mod op;
mod program;
mod trace;
mod value;

pub use account::{Cost, Total, Widths};
pub use arena::{Arena, ArenaRange};
pub use check::PlanError;
pub use op::{Activation, Angles, Columns, Lookup, Norm, Op};
pub use program::{Binary, Fold, Instruction, Program, Unary};
pub use trace::LONGEST;
pub use value::{ElementType, Rows, Value, ValueId, Weight, WeightId};

/// An input or output by its name in the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanPort {
    /// The tensor's name.
    pub name: String,
    /// Its value.
    pub value: ValueId,
    /// The lengths of the axes after the batch (and token) axis; their product is the value's width. Of keys and values: heads and
    /// columns of a head, between which the tokens' axis is.
    pub features: Vec<usize>,
}

impl PlanPort {
    /// The axis of the tokens, of a tensor with rows of this kind; `None` if it has none.
    #[must_use]
    pub fn token_axis(&self, rows: Rows) -> Option<usize> {
        match rows {
            Rows::Batch => None,
            Rows::Token => Some(1),
            Rows::Past | Rows::Context => Some(if self.features.is_empty() { 1 } else { 2 }),
        }
    }
}

/// One step of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The name of the last of the model's nodes that this one was made from.
    pub name: String,
    /// Its operation.
    pub op: Op,
    /// Its result.
    pub output: ValueId,
}

/// A lowered model. Nodes are in execution order; every value is computed once, before it is read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// All values.
    pub values: Vec<Value>,
    /// All constants.
    pub weights: Vec<Weight>,
    /// The inputs of a batch.
    pub inputs: Vec<PlanPort>,
    /// The outputs.
    pub outputs: Vec<PlanPort>,
    /// The nodes.
    pub nodes: Vec<Node>,
}

impl Plan {
    /// A value.
    #[must_use]
    pub fn value(&self, id: ValueId) -> Value {
        self.values[id.0]
    }

    /// A weight.
    #[must_use]
    pub fn weight(&self, id: WeightId) -> &Weight {
        &self.weights[id.0]
    }
}

/// The size of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchSize {
    /// Number of sequences; in a model without sequences, of rows.
    pub batch: usize,
    /// Total number of tokens.
    pub tokens: usize,
    /// The sum of the squares of the sequences' lengths, which determines the cost of attention.
    pub squares: usize,
    /// Total number of past tokens.
    pub past: usize,
    /// The sum of the products of the sequences' lengths and their pasts, which determines the cost of attention to the past.
    pub by_past: usize,
}

impl BatchSize {
    /// A batch of `batch` sequences of one length.
    #[must_use]
    pub const fn uniform(batch: usize, length: usize) -> Self {
        Self { batch, tokens: batch * length, squares: batch * length * length, past: 0, by_past: 0 }
    }

    /// The same with a past of `past` tokens for each sequence.
    #[must_use]
    pub const fn with_past(self, past: usize) -> Self {
        Self { past: self.batch * past, by_past: self.tokens * past, ..self }
    }

    /// A batch of sequences of these lengths.
    #[must_use]
    pub fn of(lengths: impl IntoIterator<Item = usize>) -> Self {
        Self::of_pairs(lengths.into_iter().map(|length| (length, 0)))
    }

    /// A batch of sequences of these lengths and pasts.
    #[must_use]
    pub fn of_pairs(pairs: impl IntoIterator<Item = (usize, usize)>) -> Self {
        let none = Self { batch: 0, tokens: 0, squares: 0, past: 0, by_past: 0 };
        let add = |sum: Self, (length, past): (usize, usize)| Self {
            batch: sum.batch + 1,
            tokens: sum.tokens + length,
            squares: sum.squares + length * length,
            past: sum.past + past,
            by_past: sum.by_past + length * past,
        };
        pairs.into_iter().fold(none, add)
    }

    /// The number of rows of a value.
    #[must_use]
    pub const fn rows(self, rows: Rows) -> usize {
        match rows {
            Rows::Batch => self.batch,
            Rows::Token => self.tokens,
            Rows::Past => self.past,
            Rows::Context => self.past + self.tokens,
        }
    }
}
