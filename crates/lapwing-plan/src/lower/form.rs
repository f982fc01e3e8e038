//! How a tensor of the model maps to a value of the plan: which of its axes are the batch, the tokens, and columns.

use crate::plan::{Rows, ValueId};

/// The meaning of one axis of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Axis {
    /// The sequences, or the rows of a model without sequences.
    Batch,
    /// The tokens of a sequence.
    Token,
    /// A column axis; its index in [`Matrix::sizes`].
    Column(usize),
    /// Of length one.
    One,
    /// An axis that is broadcast to this length, or, with `None`, to a length that the batch determines; maps broadcast
    /// implicitly.
    Spread(Option<usize>),
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
        if self.axes.contains(&Axis::Token) { Rows::Token } else { Rows::Batch }
    }

    /// Elements of a row.
    pub(crate) fn width(&self) -> usize {
        self.sizes.iter().product()
    }

    /// The indices of the tensor's column axes, in memory order.
    pub(crate) fn columns(&self) -> Vec<usize> {
        let place = |column| self.axes.iter().position(|axis| *axis == Axis::Column(column));
        (0..self.sizes.len()).filter_map(place).collect()
    }

    /// Whether the column axes are in the tensor's own order, after batch and token.
    pub(crate) fn is_plain(&self) -> bool {
        let order = |axis: &Axis| match axis {
            Axis::Batch => Some(0),
            Axis::Token => Some(1),
            Axis::Column(place) => Some(2 + place),
            Axis::One | Axis::Spread(_) => None,
        };
        self.axes.iter().filter_map(order).is_sorted()
    }

    /// The same value with other axes.
    pub(crate) fn with_axes(&self, axes: Vec<Axis>) -> Self {
        Self { axes, ..self.clone() }
    }

    /// Drops column axes of length one, so that equal matrices compare equal.
    pub(crate) fn squeezed(mut self) -> Self {
        while let Some(column) = self.sizes.iter().position(|size| *size == 1) {
            self.sizes.remove(column);
            for axis in &mut self.axes {
                match axis {
                    Axis::Column(place) if *place == column => *axis = Axis::One,
                    Axis::Column(place) if *place > column => *place -= 1,
                    _ => {}
                }
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
                Axis::Batch | Axis::Token | Axis::Spread(_) => return None,
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
        let moved = |axis: &Axis| match axis {
            Axis::Column(place) if *place >= first + columns.len() => Axis::Column(place + to.len() - columns.len()),
            other => *other,
        };
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
#[derive(Clone, Debug)]
pub(crate) struct Scores {
    pub(crate) q: ValueId,
    pub(crate) k: ValueId,
    pub(crate) heads: usize,
    pub(crate) head: usize,
    pub(crate) scale: f32,
    /// Added to the scores of each key.
    pub(crate) bias: Option<ValueId>,
    pub(crate) axes: Vec<Score>,
    pub(crate) is_softmax: bool,
}
