//! The plan: a model as a list of fused nodes that every executor runs in order.
//!
//! A plan knows no sizes of a batch. Its values are matrices, row-major: one row for each sequence (or row of a table) of a
//! batch, or one for each token of all its sequences, laid end to end; only the number of rows changes from batch to batch.
//! Nothing but attention, [`Op::Pool`], [`Op::MeanPool`] and [`Op::CumSum`] looks across rows, and these never beyond a
//! sequence, so that a batch needs no padding.

mod account;
mod arena;
mod check;
mod listing;
mod op;
mod program;
mod trace;

use std::sync::Arc;

pub use account::{Cost, Total, Widths};
pub use arena::{Arena, Place};
pub use check::PlanError;
pub use op::{Activation, Columns, Fold, Lookup, Norm, Op};
pub use program::{Binary, Instruction, Program, Unary};

/// How many rows a value has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rows {
    /// One for each sequence of the batch; in a model without sequences, one for each row.
    Batch,
    /// One for each token of every sequence.
    Token,
}

/// What a value's elements are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// Single precision.
    F32,
    /// Signed, 64 bits: token ids and masks, only as inputs.
    I64,
    /// Signed, 32 bits: the same.
    I32,
    /// True or false, a byte: masks, only as inputs.
    Bool,
}

impl Type {
    /// Bytes of one element.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::F32 | Self::I32 => 4,
            Self::I64 => 8,
            Self::Bool => 1,
        }
    }
}

/// A value's place in [`Plan::values`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub usize);

/// A weight's place in [`Plan::weights`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WeightId(pub usize);

/// A matrix that a batch brings or that a node makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    /// How many rows it has.
    pub rows: Rows,
    /// Elements of a row, at least one.
    pub width: usize,
    /// What they are.
    pub kind: Type,
}

/// A matrix that belongs to the model: `[rows, width]`, row-major, float32.
#[derive(Clone, Debug, PartialEq)]
pub struct Weight {
    /// Its name in the model, or of the first that it was made of.
    pub name: String,
    /// Rows; of a vector, one.
    pub rows: usize,
    /// Elements of a row.
    pub width: usize,
    /// All of it.
    pub data: Arc<[f32]>,
}

/// An input or output by its name in the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// The tensor's name.
    pub name: String,
    /// Its value.
    pub value: ValueId,
    /// The axes behind the batch (and token) axis, whose product is the value's width.
    pub features: Vec<usize>,
}

/// One step of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The name of the model's node that this one ends with.
    pub name: String,
    /// What it does.
    pub op: Op,
    /// What it makes.
    pub output: ValueId,
}

/// A model, lowered. Nodes stand in the order in which they run; every value is made once, before it is read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Every matrix.
    pub values: Vec<Value>,
    /// Every matrix of the model.
    pub weights: Vec<Weight>,
    /// What a batch brings.
    pub inputs: Vec<Port>,
    /// What it is asked for.
    pub outputs: Vec<Port>,
    /// What is done.
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

/// How large a batch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Sequences; in a model without, rows.
    pub batch: usize,
    /// Tokens of all of them.
    pub tokens: usize,
    /// The sum of the squares of the sequences' lengths, which attention costs.
    pub squares: usize,
}

impl Size {
    /// A batch of so many sequences of one length.
    #[must_use]
    pub const fn uniform(batch: usize, length: usize) -> Self {
        Self { batch, tokens: batch * length, squares: batch * length * length }
    }

    /// A batch of sequences of these lengths.
    #[must_use]
    pub fn of(lengths: impl IntoIterator<Item = usize>) -> Self {
        let none = Self { batch: 0, tokens: 0, squares: 0 };
        let add = |sum: Self, length: usize| Self {
            batch: sum.batch + 1,
            tokens: sum.tokens + length,
            squares: sum.squares + length * length,
        };
        lengths.into_iter().fold(none, add)
    }

    /// How many rows such values have.
    #[must_use]
    pub const fn rows(self, rows: Rows) -> usize {
        match rows {
            Rows::Batch => self.batch,
            Rows::Token => self.tokens,
        }
    }
}
