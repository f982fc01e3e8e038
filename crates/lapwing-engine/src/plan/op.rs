//! What the nodes of a plan do.

use super::{Program, ValueId, WeightId};

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
    /// The row that this one column names; from the end where it is negative.
    Id(Columns),
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
    /// The sum over their number.
    Mean,
}

/// What a layer norm does besides taking away the mean and dividing by the deviation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Norm {
    /// Against division by zero.
    pub epsilon: f32,
    /// A row that is multiplied.
    pub scale: Option<WeightId>,
    /// A row that is added.
    pub shift: Option<WeightId>,
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
    /// The sum of one row of each table, normed as by [`Op::LayerNorm`] where there is a norm.
    Embed {
        /// The tables, as wide as the output, and which row of each.
        tables: Vec<(WeightId, Lookup)>,
        /// What is done to the sum.
        norm: Option<Norm>,
    },
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
    /// sequence are the same for all its tokens. A fold is over the row.
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
    /// `Σ weight · x / max(Σ weight, at_least)` over the tokens of each sequence: a mean over those that a mask leaves.
    MeanPool {
        /// What is taken together: a row for each token.
        x: ValueId,
        /// Of width 1, of any type: how much each token counts.
        weights: ValueId,
        /// What the weights' sum is at least.
        at_least: f32,
    },
    /// For each token, the sum over its sequence up to it.
    CumSum(ValueId),
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
            Self::Embed { .. } => "embed",
            Self::LayerNorm { .. } => "layer_norm",
            Self::RmsNorm { .. } => "rms_norm",
            Self::Attention { .. } => "attention",
            Self::Softmax(_) => "softmax",
            Self::Map { .. } => "map",
            Self::Reduce { .. } => "reduce",
            Self::Pool { .. } => "pool",
            Self::MeanPool { .. } => "mean_pool",
            Self::CumSum(_) => "cum_sum",
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
            Self::Embed { tables, .. } => tables.iter().filter_map(|(_, row)| row.value()).collect(),
            Self::MeanPool { x, weights, .. } => vec![*x, *weights],
            Self::RmsNorm { x, .. } | Self::Softmax(x) | Self::CumSum(x) | Self::Reduce { x, .. } | Self::Pool { x, .. } => {
                vec![*x]
            }
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
            Self::Embed { tables, norm } => {
                let rows = norm.iter().flat_map(|norm| [norm.scale, norm.shift]).flatten();
                tables.iter().map(|(table, _)| *table).chain(rows).collect()
            }
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
            Self::Embed { tables, .. } => tables.iter_mut().filter_map(|(_, row)| row.value_mut()).for_each(put),
            Self::MeanPool { x, weights, .. } => [x, weights].into_iter().for_each(put),
            Self::RmsNorm { x, .. } | Self::Softmax(x) | Self::CumSum(x) | Self::Reduce { x, .. } | Self::Pool { x, .. } => {
                put(x)
            }
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
            Self::Embed { tables, norm } => {
                tables.iter_mut().for_each(|(table, _)| put(table));
                norm.iter_mut().flat_map(|norm| norm.scale.iter_mut().chain(&mut norm.shift)).for_each(put);
            }
            Self::LayerNorm { scale, shift, .. } => scale.iter_mut().chain(shift).for_each(put),
            Self::RmsNorm { scale, .. } => scale.iter_mut().for_each(put),
            Self::Map { program, .. } => program.replace_weights(put),
            _ => {}
        }
    }
}

impl Lookup {
    const fn value(self) -> Option<ValueId> {
        if let Self::Id(id) = self { Some(id.value) } else { None }
    }

    const fn value_mut(&mut self) -> Option<&mut ValueId> {
        if let Self::Id(id) = self { Some(&mut id.value) } else { None }
    }
}
