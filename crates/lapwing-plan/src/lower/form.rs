//! How a tensor of the model maps to a value of the plan: which of its axes are the batch, the tokens, and columns.

use std::sync::Arc;

use lapwing_onnx::shaped::Constant;

use super::constant::of_rank;
use crate::plan::{Rows, ValueId, WeightId};

/// The meaning of one axis of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Axis {
    /// The sequences, or the rows of a model without sequences.
    Batch,
    /// The tokens of a sequence.
    Token,
    /// The tokens of its past.
    Past,
    /// The tokens of its past and its own.
    Context,
    /// A column axis; its index in [`Matrix::sizes`].
    Column(usize),
    /// A column axis whose every index is there this many times in a row: keys of fewer heads than the queries.
    Repeated(usize, usize),
    /// The sequences and their tokens, merged into one.
    AllTokens,
    /// The sequences and a column axis behind them, merged into one: its index as above, none if it is of length one, and how many
    /// times in a row each of its indices is there.
    BatchAnd(Option<usize>, usize),
    /// Of length one.
    One,
    /// An axis that is broadcast to this length, or, with `None`, to a length that the batch determines; maps broadcast
    /// implicitly.
    Spread(Option<usize>),
}

impl Axis {
    /// The same of a matrix whose column axes have other indices.
    pub(crate) fn renumbered(self, to: impl Fn(usize) -> usize) -> Self {
        match self {
            Self::Column(place) => Self::Column(to(place)),
            Self::Repeated(place, times) => Self::Repeated(to(place), times),
            Self::BatchAnd(place, times) => Self::BatchAnd(place.map(to), times),
            other => other,
        }
    }
}

/// A tensor of the model as a matrix of the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Matrix {
    /// The value.
    pub(crate) value: ValueId,
    /// The tensor's axes.
    pub(crate) axes: Vec<Axis>,
    /// The lengths of the column axes in memory order; the last one is contiguous.
    pub(crate) sizes: Vec<usize>,
}

impl Matrix {
    /// The rows of the value.
    pub(crate) fn rows(&self) -> Rows {
        let of = |axis: &Axis| match axis {
            Axis::Token | Axis::AllTokens => Some(Rows::Token),
            Axis::Past => Some(Rows::Past),
            Axis::Context => Some(Rows::Context),
            _ => None,
        };
        self.axes.iter().find_map(of).unwrap_or(Rows::Batch)
    }

    /// Whether it is keys or values of the past or the context, whose rows lie by head.
    pub(crate) fn is_by_head(&self) -> bool {
        !self.sizes.is_empty() && matches!(self.rows(), Rows::Past | Rows::Context)
    }

    /// Heads and columns of a head of a tensor `[batch, heads, tokens, columns]`; `None` if it has other axes.
    pub(crate) fn heads_and_columns(&self) -> Option<[usize; 2]> {
        let [Axis::Batch, heads, Axis::Token | Axis::Past | Axis::Context, columns] = self.axes[..] else { return None };
        let length = |axis: Axis| match axis {
            Axis::Column(place) => Some(self.sizes[place]),
            Axis::One => Some(1),
            _ => None,
        };
        self.columns().is_sorted().then_some([length(heads)?, length(columns)?])
    }

    /// Elements of a row.
    pub(crate) fn width(&self) -> usize {
        self.sizes.iter().product()
    }

    /// The indices of the tensor's column axes, in memory order.
    pub(crate) fn columns(&self) -> Vec<usize> {
        let is = |axis: &Axis, column: usize| matches!(axis, Axis::Column(own) | Axis::Repeated(own, _) if *own == column);
        let place = |column| self.axes.iter().position(|axis| is(axis, column));
        (0..self.sizes.len()).filter_map(place).collect()
    }

    /// Whether the column axes are in the tensor's own order, after batch and token.
    pub(crate) fn is_plain(&self) -> bool {
        let order = |axis: &Axis| match axis {
            Axis::Batch | Axis::AllTokens => Some(0),
            Axis::Token | Axis::Past | Axis::Context => Some(1),
            Axis::Column(place) | Axis::Repeated(place, _) => Some(2 + place),
            Axis::One | Axis::Spread(_) | Axis::BatchAnd(..) => None,
        };
        !self.is_merged() && self.axes.iter().filter_map(order).is_sorted()
    }

    /// Whether the axis at `at` has all columns of a row.
    pub(crate) fn is_only_column(&self, at: usize) -> bool {
        match self.axes.get(at) {
            Some(Axis::Column(0)) => self.sizes.len() == 1,
            Some(Axis::One) => self.sizes.is_empty(),
            _ => false,
        }
    }

    /// Whether the axes from `at` on have all columns of a row, in their order, and nothing else.
    pub(crate) fn is_all_columns(&self, at: usize) -> bool {
        let columns: Vec<usize> =
            self.axes[at..].iter().filter_map(|axis| if let Axis::Column(place) = axis { Some(*place) } else { None }).collect();
        let is_rest = self.axes[at..].iter().all(|axis| matches!(axis, Axis::Column(_) | Axis::One));
        is_rest && columns.len() == self.sizes.len() && columns.is_sorted()
    }

    /// Whether an axis is one of columns merged with the batch.
    pub(crate) fn is_merged(&self) -> bool {
        self.axes.iter().any(|axis| matches!(axis, Axis::BatchAnd(..)))
    }

    /// The same value with other axes.
    pub(crate) fn with_axes(&self, axes: Vec<Axis>) -> Self {
        Self { axes, ..self.clone() }
    }

    /// With axes of length one before its own, so that it has `rank` of them.
    pub(crate) fn of_rank(&self, rank: usize) -> Self {
        let mut axes = vec![Axis::One; rank.saturating_sub(self.axes.len())];
        axes.extend(&self.axes);
        self.with_axes(axes)
    }

    /// Drops column axes of length one, so that equal matrices compare equal.
    pub(crate) fn squeezed(mut self) -> Self {
        while let Some(column) = self.sizes.iter().position(|size| *size == 1) {
            self.sizes.remove(column);
            for axis in &mut self.axes {
                *axis = match *axis {
                    Axis::Column(place) if place == column => Axis::One,
                    Axis::Repeated(place, times) if place == column => Axis::Spread(Some(times)),
                    Axis::BatchAnd(Some(place), 1) if place == column => Axis::Batch,
                    Axis::BatchAnd(Some(place), times) if place == column => Axis::BatchAnd(None, times),
                    other => other.renumbered(|place| if place > column { place - 1 } else { place }),
                };
            }
        }
        self
    }

    /// Splits or merges columns: the axes from `at` on whose lengths are `from` become axes of lengths `to`. `None` if
    /// these are not contiguous in a row.
    pub(crate) fn reshaped(&self, at: usize, from: &[usize], to: &[usize]) -> Option<Self> {
        let taken = self.axes.get(at..at + from.len())?;
        let mut columns = Vec::new();
        for axis in taken {
            match axis {
                Axis::Column(place) => columns.push(*place),
                Axis::One => {}
                _ => return None,
            }
        }
        let first = columns.first().copied().unwrap_or(self.sizes.len());
        let is_run = columns.iter().enumerate().all(|(i, place)| *place == first + i);
        let length: usize = columns.iter().map(|place| self.sizes[*place]).product();
        if !is_run || length != to.iter().product::<usize>() {
            return None;
        }
        let mut sizes = self.sizes.clone();
        sizes.splice(first..first + columns.len(), to.iter().copied());
        let behind = |place| if place >= first + columns.len() { place + to.len() - columns.len() } else { place };
        let moved = |axis: &Axis| axis.renumbered(behind);
        let mut axes: Vec<Axis> = self.axes[..at].iter().map(moved).collect();
        axes.extend((0..to.len()).map(|i| Axis::Column(first + i)));
        axes.extend(self.axes[at + from.len()..].iter().map(moved));
        Some(Self { value: self.value, axes, sizes }.squeezed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix(axes: &[Axis], sizes: &[usize]) -> Matrix {
        Matrix { value: ValueId(0), axes: axes.to_vec(), sizes: sizes.to_vec() }
    }

    #[test]
    fn heads_are_split_off_and_merged_again() {
        use Axis::{Batch, Column, Token};
        let hidden = matrix(&[Batch, Token, Column(0)], &[384]);
        let heads = hidden.reshaped(2, &[384], &[12, 32]).unwrap();
        assert_eq!(heads, matrix(&[Batch, Token, Column(0), Column(1)], &[12, 32]));
        assert_eq!(heads.reshaped(2, &[12, 32], &[384]).unwrap(), hidden);
        let turned = heads.with_axes(vec![Batch, Column(0), Token, Column(1)]);
        assert!(!turned.is_plain() && heads.is_plain());
        assert_eq!(turned.reshaped(2, &[1, 32], &[32]), None, "tokens are not columns");
        let swapped = heads.with_axes(vec![Batch, Token, Column(1), Column(0)]);
        assert_eq!(swapped.reshaped(2, &[32, 12], &[384]), None, "no neighbours");
    }

    #[test]
    fn columns_of_one_are_none() {
        let wide = matrix(&[Axis::Batch, Axis::Column(0), Axis::Column(1)], &[1, 7]).squeezed();
        assert_eq!(wide, matrix(&[Axis::Batch, Axis::One, Axis::Column(0)], &[7]));
        assert_eq!((wide.width(), wide.columns()), (7, vec![2]));
    }
}

/// Whole numbers that are sums of indices: of the sequence in its batch, and of the token in its sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Places {
    /// The number of axes.
    pub(crate) rank: usize,
    /// What is added to the indices.
    pub(crate) from: usize,
    /// Whether the length of the past is added too.
    pub(crate) is_after_past: bool,
    /// The indices that are added.
    pub(crate) terms: Vec<Place>,
}

/// The index along one axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Which index: of the batch, of the tokens or of the context.
    pub(crate) of: Axis,
    /// The axis along which it counts.
    pub(crate) at: usize,
    /// The axis by whose length it is multiplied: of the tokens or of the context.
    pub(crate) times: Option<Axis>,
}

impl Places {
    /// The axis along which these are positions in the context, and whose: of the tokens, which come after a past if there is one, or
    /// of the whole context. `None` if they are anything else.
    pub(crate) fn positions(&self, has_past: bool) -> Option<(usize, Axis)> {
        match self.terms[..] {
            [Place { of: Axis::Token, at, times: None }] if self.is_after_past == has_past => Some((at, Axis::Token)),
            [Place { of: Axis::Context, at, times: None }] if !self.is_after_past => Some((at, Axis::Context)),
            _ => None,
        }
    }

    /// Whether an index along this axis is all there is, so that a cut up to the axis' length leaves it as it is.
    pub(crate) fn counts_along(&self, at: usize, of: Axis) -> bool {
        self.terms.iter().all(|term| term.at != at || term.of == of)
    }

    /// With axes of length one before its own.
    pub(crate) fn of_rank(mut self, rank: usize) -> Self {
        let added = rank.saturating_sub(self.rank);
        self.terms.iter_mut().for_each(|term| term.at += added);
        Self { rank: self.rank + added, ..self }
    }

    /// With each axis moved.
    pub(crate) fn moved(mut self, rank: usize, to: impl Fn(usize) -> usize) -> Self {
        self.terms.iter_mut().for_each(|term| term.at = to(term.at));
        Self { rank, ..self }
    }
}

/// The meaning of one axis of scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Score {
    Batch,
    Head,
    Query,
    Key,
    One,
}

/// Scores of queries against keys, or their softmax.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Scores {
    pub(crate) q: ValueId,
    pub(crate) k: ValueId,
    pub(crate) heads: usize,
    /// Heads of the keys: each is of as many consecutive heads of the queries.
    pub(crate) key_heads: usize,
    pub(crate) head: usize,
    pub(crate) scale: f32,
    /// Added to the scores of each key.
    pub(crate) bias: Option<ValueId>,
    /// Added to the scores by the distance from the query to the key, as in [`crate::plan::Op::Attention`].
    pub(crate) by_distance: Option<WeightId>,
    pub(crate) axes: Vec<Score>,
    /// Whether the keys are those of the context, and not of the tokens alone.
    pub(crate) is_of_context: bool,
    pub(crate) is_softmax: bool,
    /// Whether what is no number, as of a sequence whose keys are all masked, has been made zero.
    pub(crate) is_guarded: bool,
}

/// A tensor whose elements depend on how far a token is behind another one, and on constants.
#[derive(Clone, Debug)]
pub(crate) struct Distances {
    /// The elements. The axis `to` is that of the distances from `1 - LONGEST` to `LONGEST - 1`, the axis `from` is of length one.
    pub(crate) values: Arc<Constant>,
    /// The axis of the token from which the distance counts.
    pub(crate) from: usize,
    /// The axis of the other one.
    pub(crate) to: usize,
    /// Which of the two is that of the context; `None` without a past.
    pub(crate) context: Option<usize>,
}

impl Distances {
    /// With its axes moved.
    pub(crate) fn moved(self, values: Constant, to: impl Fn(usize) -> usize) -> Self {
        Self { values: values.into(), from: to(self.from), to: to(self.to), context: self.context.map(to) }
    }

    /// With axes of length one before its own.
    pub(crate) fn of_rank(self, rank: usize) -> Self {
        let added = rank.saturating_sub(self.values.shape.len());
        let values = of_rank(&self.values, rank);
        self.moved(values, |axis| axis + added)
    }
}

/// What has a value for each query and key: of the key, and of the distance from the query to it.
#[derive(Clone, Debug)]
pub(crate) struct Pairs {
    /// The values of the keys, with as many axes as those of the distances.
    pub(crate) keys: Matrix,
    pub(crate) distances: Distances,
    /// Whether it is the sum of both; else both are conditions, and it is whether they hold.
    pub(crate) is_sum: bool,
}

impl Pairs {
    /// With axes of length one before its own.
    pub(crate) fn of_rank(self, rank: usize) -> Self {
        Self { keys: self.keys.of_rank(rank), distances: self.distances.of_rank(rank), ..self }
    }
}

/// A part of a rotation.
#[derive(Clone, Debug)]
pub(crate) enum Rotation {
    /// A half of each head's columns.
    Half {
        /// The columns.
        of: Matrix,
        is_second: bool,
        is_negative: bool,
    },
    /// The columns with their halves swapped, the then first one negated.
    Turned(Matrix),
    /// The columns, or the turned ones, times a table by position.
    Product {
        /// The columns.
        of: Matrix,
        is_turned: bool,
        table: Factors,
    },
}

/// The cosines or the sines of a rotation.
#[derive(Clone, Debug)]
pub(crate) enum Factors {
    /// A row for each position.
    ByPosition(Arc<Constant>),
    /// A row for each token.
    ByToken(ValueId),
}

impl Rotation {
    /// The number of axes.
    pub(crate) fn rank(&self) -> usize {
        let (Self::Half { of, .. } | Self::Turned(of) | Self::Product { of, .. }) = self;
        of.axes.len()
    }
}
