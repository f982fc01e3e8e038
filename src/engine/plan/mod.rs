//! The plan: a model as a list of fused nodes that every executor runs in order.
//!
//! A plan knows no sizes of a batch. Its values are matrices, row-major: one row for each sequence (or row of a table) of a
//! batch, or one for each token of all its sequences, laid end to end; only the number of rows changes from batch to batch.
//! Nothing but attention and [`Op::Pool`] looks across rows, so that a batch needs no padding.

mod account;
mod arena;
mod check;
mod listing;
mod program;

use std::sync::Arc;

pub use account::{Cost, Total};
pub use arena::{Arena, Place};
pub use check::PlanError;
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

/// What a linear layer does to its sum before it is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Activation {
    /// Nothing.
    #[default]
    None,
    /// `max(x, 0)`
    Relu,
    /// `x / 2 · (1 + erf(x / √2))`
    Gelu,
    /// `x / 2 · (1 + tanh(√(2/π) · (x + 0.044715 x³)))`
    GeluTanh,
    /// `1 / (1 + exp(−x))`
    Sigmoid,
    /// Hyperbolic tangent.
    Tanh,
    /// `x · sigmoid(x)`
    Silu,
}

/// Some columns of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Columns {
    /// Of which value.
    pub value: ValueId,
    /// From which column on; how many is told by who uses them.
    pub from: usize,
}

/// Where the row of a table comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The row that this value of width 1 names; from the end where it is negative.
    Id(ValueId),
    /// The row of the token's place in its sequence, and so many more.
    Position(usize),
}

/// Over what rows are taken together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fold {
    /// The sum.
    Sum,
    /// The greatest.
    Max,
    /// The least.
    Min,
    /// The first.
    First,
}

/// What a node does. Every operand has as many rows as the node's output, if nothing else is said.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// `activation(x · weight + bias) + residual`; the weight is `[width of x, width of the output]`.
    Gemm {
        /// The left side.
        x: ValueId,
        /// The right side.
        weight: WeightId,
        /// A row that is added.
        bias: Option<WeightId>,
        /// What is done then.
        activation: Activation,
        /// What is added last.
        residual: Option<ValueId>,
    },
    /// The sum of one row of each table; all are as wide as the output.
    Embed(Vec<(WeightId, Lookup)>),
    /// `(x − mean) / √(variance + epsilon) · scale + shift` over each row of `x + residual`.
    LayerNorm {
        /// What is normed.
        x: ValueId,
        /// What is added to it before.
        residual: Option<ValueId>,
        /// Against division by zero.
        epsilon: f32,
        /// A row.
        scale: Option<WeightId>,
        /// A row.
        shift: Option<WeightId>,
    },
    /// `x / √(mean of squares + epsilon) · scale` over each row.
    RmsNorm {
        /// What is normed.
        x: ValueId,
        /// Against division by zero.
        epsilon: f32,
        /// A row.
        scale: Option<WeightId>,
    },
    /// For each head and sequence: `softmax(scale · q · kᵀ + bias of the key) · v`, over the sequence's own tokens.
    Attention {
        /// `heads` × `head` columns.
        q: Columns,
        /// The same.
        k: Columns,
        /// `heads` × `head_out` columns.
        v: Columns,
        /// How many heads.
        heads: usize,
        /// Columns of one head in q and k.
        head: usize,
        /// Columns of one head in v and the output.
        head_out: usize,
        /// What the product is multiplied by.
        scale: f32,
        /// Of width 1: added to every score of this key.
        bias: Option<ValueId>,
    },
    /// The softmax of each row.
    Softmax(ValueId),
    /// A program over each element. Operands of width 1 are the same for a whole row; operands of one row for each
    /// sequence are the same for all its tokens.
    Map {
        /// What is done.
        program: Program,
        /// To what.
        args: Vec<ValueId>,
    },
    /// Each row of `x` folded to one element.
    Reduce {
        /// What is folded.
        x: ValueId,
        /// How.
        fold: Fold,
    },
    /// The tokens of each sequence folded to one row: `x` has a row for each token, the output one for each sequence.
    Pool {
        /// What is folded.
        x: ValueId,
        /// How.
        fold: Fold,
    },
    /// Values side by side.
    Concat(Vec<ValueId>),
    /// Some columns.
    Slice(Columns),
}

impl Op {
    /// The name in listings.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Gemm { .. } => "gemm",
            Self::Embed(_) => "embed",
            Self::LayerNorm { .. } => "layer_norm",
            Self::RmsNorm { .. } => "rms_norm",
            Self::Attention { .. } => "attention",
            Self::Softmax(_) => "softmax",
            Self::Map { .. } => "map",
            Self::Reduce { .. } => "reduce",
            Self::Pool { .. } => "pool",
            Self::Concat(_) => "concat",
            Self::Slice(_) => "slice",
        }
    }

    /// The values that it reads; one that it reads twice comes twice.
    #[must_use]
    pub fn reads(&self) -> Vec<ValueId> {
        match self {
            Self::Gemm { x, residual, .. } | Self::LayerNorm { x, residual, .. } => {
                [Some(*x), *residual].into_iter().flatten().collect()
            }
            Self::Embed(tables) => tables.iter().filter_map(|(_, row)| row.value()).collect(),
            Self::RmsNorm { x, .. } | Self::Softmax(x) | Self::Reduce { x, .. } | Self::Pool { x, .. } => vec![*x],
            Self::Attention { q, k, v, bias, .. } => {
                [Some(q.value), Some(k.value), Some(v.value), *bias].into_iter().flatten().collect()
            }
            Self::Map { args, .. } | Self::Concat(args) => args.clone(),
            Self::Slice(columns) => vec![columns.value],
        }
    }

    /// The weights that it reads.
    #[must_use]
    pub fn weights(&self) -> Vec<WeightId> {
        match self {
            Self::Gemm { weight, bias, .. } => [Some(*weight), *bias].into_iter().flatten().collect(),
            Self::Embed(tables) => tables.iter().map(|(table, _)| *table).collect(),
            Self::LayerNorm { scale, shift, .. } => [*scale, *shift].into_iter().flatten().collect(),
            Self::RmsNorm { scale, .. } => scale.iter().copied().collect(),
            Self::Map { program, .. } => program.weights(),
            _ => Vec::new(),
        }
    }

    /// Puts other values in the place of those that it reads.
    pub fn replace(&mut self, mut with: impl FnMut(ValueId) -> ValueId) {
        let mut put = |value: &mut ValueId| *value = with(*value);
        match self {
            Self::Gemm { x, residual, .. } | Self::LayerNorm { x, residual, .. } => {
                put(x);
                residual.iter_mut().for_each(put);
            }
            Self::Embed(tables) => tables.iter_mut().filter_map(|(_, row)| row.value_mut()).for_each(put),
            Self::RmsNorm { x, .. } | Self::Softmax(x) | Self::Reduce { x, .. } | Self::Pool { x, .. } => put(x),
            Self::Attention { q, k, v, bias, .. } => {
                [&mut q.value, &mut k.value, &mut v.value].into_iter().chain(bias).for_each(put);
            }
            Self::Map { args, .. } | Self::Concat(args) => args.iter_mut().for_each(put),
            Self::Slice(columns) => put(&mut columns.value),
        }
    }
}

impl Op {
    /// Puts other weights in the place of those that it reads.
    pub fn replace_weights(&mut self, mut with: impl FnMut(WeightId) -> WeightId) {
        let mut put = |weight: &mut WeightId| *weight = with(*weight);
        match self {
            Self::Gemm { weight, bias, .. } => {
                put(weight);
                bias.iter_mut().for_each(put);
            }
            Self::Embed(tables) => tables.iter_mut().for_each(|(table, _)| put(table)),
            Self::LayerNorm { scale, shift, .. } => scale.iter_mut().chain(shift).for_each(put),
            Self::RmsNorm { scale, .. } => scale.iter_mut().for_each(put),
            Self::Map { program, .. } => program.replace_weights(put),
            _ => {}
        }
    }
}

impl Lookup {
    const fn value(self) -> Option<ValueId> {
        if let Self::Id(value) = self { Some(value) } else { None }
    }

    const fn value_mut(&mut self) -> Option<&mut ValueId> {
        if let Self::Id(value) = self { Some(value) } else { None }
    }
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
    pub fn of(lengths: &[usize]) -> Self {
        Self { batch: lengths.len(), tokens: lengths.iter().sum(), squares: lengths.iter().map(|n| n * n).sum() }
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

