//! The matrices of a plan: computed values and constants.

use std::sync::Arc;

/// The kind of rows that a value has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rows {
    /// One for each sequence of the batch; in a model without sequences, one for each row.
    Batch,
    /// One for each token of every sequence.
    Token,
    /// One for each token that was there before those of the call, of which a cache holds keys and values. Rows of more than one column
    /// are keys or values and lie by head: of each sequence `[heads, tokens, columns of a head]`.
    Past,
    /// One for each token of the past and then for each of the call: what queries attend to. Laid out as those of the past.
    Context,
}

/// The type of a value's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ElementType {
    /// Single precision.
    F32,
    /// 64-bit signed integers: token ids and masks, only as inputs.
    I64,
    /// 32-bit signed integers: the same.
    I32,
    /// Booleans, one byte each: masks, only as inputs.
    Bool,
}

impl ElementType {
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

/// A value's index in `Plan::values`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub usize);

/// A weight's index in `Plan::weights`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WeightId(pub usize);

/// A matrix that is an input of the batch or the result of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    /// The kind of its rows.
    pub rows: Rows,
    /// Elements per row, at least one.
    pub width: usize,
    /// The type of its elements.
    pub kind: ElementType,
}

/// A constant matrix of the model: `[rows, width]`, row-major, float32.
#[derive(Clone, Debug, PartialEq)]
pub struct Weight {
    /// Its name in the model; of a derived weight, the name of its first source.
    pub name: String,
    /// Number of rows; one for a vector.
    pub rows: usize,
    /// Elements per row.
    pub width: usize,
    /// All elements.
    pub data: Arc<[f32]>,
}
