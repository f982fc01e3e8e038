//! Trees as a file has them: nodes that test a column, and leaves with weights. Checked for indices, not yet for cycles.

use std::ops::Range;

use crate::attributes::Reason;

/// The type of thresholds and of sums: that of the columns, single precision for whole numbers.
pub(crate) trait Number: Copy + Default + PartialOrd + std::fmt::Debug + Send + Sync + 'static {
    const NAN: Self;
    const ONE: Self;
    const HALF: Self;

    fn next_down(self) -> Self;
    fn truncated(self) -> Self;
    fn negated(self) -> Self;
    fn plus(self, other: Self) -> Self;
    fn over(self, count: usize) -> Self;
    /// The value that `self` and its equals have in common, for use as a key.
    fn key(self) -> u64;
    fn single(self) -> f32;
    fn from_single(single: f32) -> Self;
    /// A bit pattern that holds an index; it is not computed with.
    fn from_index(index: u32) -> Self;
    fn index(self) -> u32;

    fn is_missing(self) -> bool {
        self.partial_cmp(&self).is_none()
    }
}

macro_rules! number {
    ($type:ty, $bits:ty) => {
        impl Number for $type {
            const NAN: Self = <$type>::NAN;
            const ONE: Self = 1.0;
            const HALF: Self = 0.5;

            fn next_down(self) -> Self {
                <$type>::next_down(self)
            }
            fn truncated(self) -> Self {
                self.trunc()
            }
            fn negated(self) -> Self {
                -self
            }
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self + other
            }
            fn over(self, count: usize) -> Self {
                self / count as $type
            }
            fn key(self) -> u64 {
                // -0 and 0 are equal
                u64::from((self + 0.0).to_bits())
            }
            fn single(self) -> f32 {
                self as f32
            }
            fn from_single(single: f32) -> Self {
                <$type>::from(single)
            }
            fn from_index(index: u32) -> Self {
                <$type>::from_bits(<$bits>::from(index))
            }
            fn index(self) -> u32 {
                self.to_bits() as u32
            }
        }
    };
}

number!(f32, u32);
number!(f64, u64);

/// How a column is compared with a set of categories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Truncation {
    /// As it is.
    None,
    /// Without its fraction: so ONNX Runtime compares with sets that have many categories, or some outside of 0 to 30.
    Fraction,
}

/// The largest category of a set that ONNX Runtime keeps as a mask of bits, and the most categories of one.
const MOST_IN_MASK: f32 = 30.0;

impl Truncation {
    /// How ONNX Runtime compares a column with these values.
    pub(crate) fn of<T: Number>(values: &[T]) -> Self {
        let (least, most) = (T::default(), T::from_single(MOST_IN_MASK));
        let is_mask = values.len() as f32 <= MOST_IN_MASK && values.iter().all(|value| *value >= least && *value <= most);
        if is_mask || values.iter().any(|value| value.truncated() != *value) { Self::None } else { Self::Fraction }
    }
}

/// What a node asks of its column.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Test<T> {
    LessEqual(T),
    Less(T),
    GreaterEqual(T),
    Greater(T),
    Equal(T),
    NotEqual(T),
    /// Whether the column has one of these values, which are no NaN and in ascending order.
    Member(Vec<T>, Truncation),
}

impl<T: Number> Test<T> {
    /// The test of a set of values.
    pub(crate) fn of_set(mut values: Vec<T>, truncation: Truncation) -> Self {
        values.retain(|value| !value.is_missing());
        values.sort_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
        Self::Member(values, truncation)
    }

    /// The test of a mode's number in `TreeEnsemble`, but for set membership.
    pub(crate) const fn of_mode(mode: u8, threshold: T) -> Option<Self> {
        Some(match mode {
            0 => Self::LessEqual(threshold),
            1 => Self::Less(threshold),
            2 => Self::GreaterEqual(threshold),
            3 => Self::Greater(threshold),
            4 => Self::Equal(threshold),
            5 => Self::NotEqual(threshold),
            _ => return None,
        })
    }

    /// The answer for a column that is not missing, or where a missing one is compared like a number.
    pub(crate) fn holds(&self, column: T) -> bool {
        match self {
            Self::LessEqual(threshold) => column <= *threshold,
            Self::Less(threshold) => column < *threshold,
            Self::GreaterEqual(threshold) => column >= *threshold,
            Self::Greater(threshold) => column > *threshold,
            Self::Equal(threshold) => column == *threshold,
            Self::NotEqual(threshold) => column != *threshold,
            Self::Member(values, truncation) => {
                let column = if *truncation == Truncation::None { column } else { column.truncated() };
                values[..values.partition_point(|value| *value <= column)].last() == Some(&column)
            }
        }
    }
}

/// A node of a tree.
#[derive(Clone, Debug)]
pub(crate) enum TreeNode<T> {
    Branch {
        column: u32,
        test: Test<T>,
        /// Whether a missing column goes where the test holds.
        missing_holds: bool,
        /// The index of the node to go to if the test holds.
        holds: u32,
        /// The index of the node to go to otherwise.
        fails: u32,
    },
    /// The range of its weights.
    Leaf(Range<u32>),
}

/// All trees of an ensemble. Indices of nodes and ranges of weights are within the lists; targets are below `targets`.
#[derive(Clone, Debug)]
pub(crate) struct Trees<T> {
    pub(crate) nodes: Vec<TreeNode<T>>,
    pub(crate) roots: Vec<u32>,
    /// Target and weight.
    pub(crate) weights: Vec<(u32, T)>,
    pub(crate) targets: usize,
}

/// The most nodes of an ensemble; those of the largest forests have some ten million.
pub(crate) const MOST_NODES: usize = 1 << 26;
/// The most targets or classes.
pub(crate) const MOST_TARGETS: usize = 1 << 16;

/// Checks what the sizes of an ensemble may be.
pub(crate) fn check_sizes(nodes: usize, targets: usize) -> Result<(), Reason> {
    if nodes == 0 {
        return Err("has no nodes".into());
    }
    if nodes > MOST_NODES {
        return Err(format!("has {nodes} nodes; the bound is {MOST_NODES}"));
    }
    if targets == 0 || targets > MOST_TARGETS {
        return Err(format!("has {targets} targets or classes, outside of 1..={MOST_TARGETS}"));
    }
    Ok(())
}
