//! The operations of plan nodes.

use super::program::{Fold, Program};
use super::value::{ValueId, WeightId};

/// The activation of a linear layer.
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

/// Consecutive columns of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Columns {
    /// The value.
    pub value: ValueId,
    /// The first column; the operation determines how many.
    pub from: usize,
}

/// Which row of a table a lookup reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The row whose index this column holds; negative ids count from the end.
    Id(Columns),
    /// The row at the token's position in its sequence plus this offset.
    Position(usize),
}

/// The cosines and sines of a rotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Angles {
    /// Weights with a row of `head` factors for each position: those of the token's position in its sequence.
    ByPosition {
        /// The cosines.
        cos: WeightId,
        /// The sines.
        sin: WeightId,
    },
    /// Values with `head` factors for each token.
    ByToken {
        /// The cosines.
        cos: ValueId,
        /// The sines.
        sin: ValueId,
    },
}

/// The parameters of a layer norm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Norm {
    /// Added to the variance, against division by zero.
    pub epsilon: f32,
    /// A row of factors.
    pub scale: Option<WeightId>,
    /// A row that is added.
    pub shift: Option<WeightId>,
}

/// The operation of a node. Every operand has as many rows as the node's output, unless stated otherwise.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// `activation(x · weight + bias) + residual`; the weight is `[width of x, width of the output]`.
    Gemm {
        /// The left operand.
        x: ValueId,
        /// The right operand.
        weight: WeightId,
        /// A row that is added.
        bias: Option<WeightId>,
        /// The activation.
        activation: Activation,
        /// Added last.
        residual: Option<ValueId>,
    },
    /// The sum of one row of each table, followed by the norm of [`Op::LayerNorm`] if there is one.
    Embed {
        /// The tables, as wide as the output, and the row of each.
        tables: Vec<(WeightId, Lookup)>,
        /// The norm of the sum.
        norm: Option<Norm>,
    },
    /// `(x − mean) / √(variance + epsilon) · scale + shift` over each row of `x + residual`.
    LayerNorm {
        /// The rows to normalise.
        x: ValueId,
        /// Added before.
        residual: Option<ValueId>,
        /// Added to the variance, against division by zero.
        epsilon: f32,
        /// A row of factors.
        scale: Option<WeightId>,
        /// A row that is added.
        shift: Option<WeightId>,
    },
    /// `x / √(mean of squares + epsilon) · scale` over each row.
    RmsNorm {
        /// The rows to normalise.
        x: ValueId,
        /// Added to the mean of squares, against division by zero.
        epsilon: f32,
        /// A row of factors.
        scale: Option<WeightId>,
    },
    /// For each head and sequence: `softmax(scale · q · kᵀ + bias of the key + bias of the distance) · v`, over the sequence's own
    /// tokens, or over its context if k, v and bias have rows of the context. A score below the lowest finite number counts as that number.
    Attention {
        /// `heads` × `head` columns.
        q: Columns,
        /// `key_heads` × `head` columns.
        k: Columns,
        /// `key_heads` × `head_out` columns.
        v: Columns,
        /// Number of heads.
        heads: usize,
        /// Heads of keys and values, a divisor of `heads`: each serves `heads / key_heads` consecutive heads.
        key_heads: usize,
        /// Columns of one head in q and k.
        head: usize,
        /// Columns of one head in v and the output.
        head_out: usize,
        /// The factor applied to the product.
        scale: f32,
        /// Of width 1: added to every score of this key.
        bias: Option<ValueId>,
        /// Added to every score by the distance from the query to the key: a row for each head, or one for all of them. Column
        /// `reach + d` of the `2 · reach + 1` is for the key that is `d` tokens behind the query; distances beyond the reach count as
        /// the reach.
        by_distance: Option<WeightId>,
        /// Whether a query with every key masked out, whose every score is below the lowest finite number, gets zeros and not the mean.
        is_zero_if_masked: bool,
    },
    /// For each head, `x · cos + turned · sin`, where `turned` is the head's columns with their halves swapped and the then first one
    /// negated (rotary position embeddings).
    Rotate {
        /// `heads` × `head` columns.
        x: Columns,
        /// Number of heads.
        heads: usize,
        /// Columns of one head, an even number.
        head: usize,
        /// `cos` and `sin`.
        angles: Angles,
    },
    /// The past of keys or values and behind it, for each head of each sequence, those of the call: rows of the context.
    Append {
        /// Rows of the past.
        past: ValueId,
        /// `heads` × `head` columns of rows of tokens.
        new: Columns,
        /// Number of heads.
        heads: usize,
        /// Columns of one head.
        head: usize,
    },
    /// The softmax of each row.
    Softmax(ValueId),
    /// An elementwise program. Operands of width 1 are broadcast over a row; operands with one row for each sequence
    /// are broadcast to its tokens. A fold is over the row.
    Map {
        /// The program.
        program: Program,
        /// Its arguments.
        args: Vec<ValueId>,
    },
    /// Folds each row of `x` to one element.
    Reduce {
        /// The operand.
        x: ValueId,
        /// The reduction.
        fold: Fold,
    },
    /// Folds the tokens of each sequence to one row: `x` has a row for each token, the output one for each sequence.
    Pool {
        /// The operand.
        x: ValueId,
        /// The reduction.
        fold: Fold,
    },
    /// `Σ weight · x / max(Σ weight, at_least)` over the tokens of each sequence: a mean over the unmasked tokens.
    MeanPool {
        /// The operand: a row for each token.
        x: ValueId,
        /// The weight of each token; of width 1, of any type.
        weights: ValueId,
        /// A lower limit of the sum of weights.
        at_least: f32,
    },
    /// For each token, the sum over the tokens of its sequence up to it.
    CumSum(ValueId),
    /// Values concatenated column-wise.
    Concat(Vec<ValueId>),
    /// Consecutive columns of a value.
    Slice(Columns),
}

impl Op {
    /// The name used in listings.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Gemm { .. } => "gemm",
            Self::Embed { .. } => "embed",
            Self::LayerNorm { .. } => "layer_norm",
            Self::RmsNorm { .. } => "rms_norm",
            Self::Attention { .. } => "attention",
            Self::Rotate { .. } => "rotate",
            Self::Append { .. } => "append",
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

    /// The values that it reads; a value that is read twice is listed twice.
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
            Self::Rotate { x, angles: Angles::ByToken { cos, sin }, .. } => vec![x.value, *cos, *sin],
            Self::Append { past, new, .. } => vec![*past, new.value],
            Self::Slice(columns) | Self::Rotate { x: columns, .. } => vec![columns.value],
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
            Self::Attention { by_distance, .. } => by_distance.iter().copied().collect(),
            Self::Rotate { angles: Angles::ByPosition { cos, sin }, .. } => vec![*cos, *sin],
            Self::Map { program, .. } => program.weights(),
            _ => Vec::new(),
        }
    }

    /// Replaces the values that it reads.
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
            Self::Rotate { x, angles, .. } => {
                put(&mut x.value);
                if let Angles::ByToken { cos, sin } = angles {
                    [cos, sin].into_iter().for_each(put);
                }
            }
            Self::Append { past, new, .. } => [past, &mut new.value].into_iter().for_each(put),
            Self::Slice(columns) => put(&mut columns.value),
        }
    }
}

impl Op {
    /// Replaces the weights that it reads.
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
            Self::Attention { by_distance, .. } => by_distance.iter_mut().for_each(put),
            Self::Rotate { angles: Angles::ByPosition { cos, sin }, .. } => [cos, sin].into_iter().for_each(put),
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
