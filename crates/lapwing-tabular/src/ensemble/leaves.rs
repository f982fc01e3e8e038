//! What leaves add to the scores of a row.

use std::ops::Range;

use super::source::{Number, Trees};
use crate::attributes::Reason;
use crate::lanes::LANES;

/// How the weights of all trees become one score.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aggregate {
    Average,
    Sum,
    Minimum,
    Maximum,
}

impl Aggregate {
    pub(crate) fn from_word(word: &str) -> Result<Self, Reason> {
        let words = [("AVERAGE", Self::Average), ("SUM", Self::Sum), ("MIN", Self::Minimum), ("MAX", Self::Maximum)];
        let found = words.into_iter().find(|(known, _)| *known == word);
        found.map(|(_, aggregate)| aggregate).ok_or_else(|| format!("aggregate_function {word:?} is unknown"))
    }

    pub(crate) fn from_number(number: i64) -> Result<Self, Reason> {
        let numbers = [Self::Average, Self::Sum, Self::Minimum, Self::Maximum];
        let found = usize::try_from(number).ok().and_then(|number| numbers.get(number));
        found.copied().ok_or_else(|| format!("aggregate_function {number} is unknown"))
    }

    /// The score after a weight, where it has one before.
    #[inline(always)]
    fn combine<T: Number>(self, score: T, weight: T) -> T {
        match self {
            Self::Average | Self::Sum => score.plus(weight),
            Self::Minimum if weight < score => weight,
            Self::Maximum if weight > score => weight,
            Self::Minimum | Self::Maximum => score,
        }
    }
}

/// The weights of all leaves, by the leaves' numbers.
#[derive(Debug)]
pub(crate) enum Leaves<T> {
    /// One weight per leaf, and one target per tree.
    Single { weights: Vec<T>, targets: Vec<u32> },
    /// Any number of weights per leaf, each with its target.
    Many { ranges: Vec<Range<u32>>, weights: Vec<(u32, T)> },
}

/// The scores of [`LANES`] rows: for each target theirs, and which of them have one.
#[derive(Debug)]
pub(crate) struct LaneScores<'a, T> {
    pub(crate) scores: &'a mut [[T; LANES]],
    /// Empty if every row of every call has a score for each target.
    pub(crate) has_score: &'a mut [[bool; LANES]],
}

impl<T: Number> Leaves<T> {
    /// The weights of a forest whose leaves have these ranges in `source`; `first_leaves` has the number of each tree's first leaf.
    pub(crate) fn of(source: Trees<T>, ranges: Vec<Range<u32>>, first_leaves: &[u32]) -> Self {
        let first = |range: &Range<u32>| source.weights.get(range.start as usize).copied().unwrap_or_default();
        // where there is one target, the first weight of a leaf counts, and its target does not
        let one_target = source.targets == 1;
        let bounds: Vec<usize> = first_leaves.iter().map(|leaf| *leaf as usize).chain([ranges.len()]).collect();
        let of_tree = |window: &[usize]| {
            let leaves = &ranges[window[0]..window[1]];
            let target = leaves.first().map_or(0, |range| first(range).0);
            let is_single = leaves.iter().all(|range| range.len() == 1 && first(range).0 == target);
            is_single.then_some(target)
        };
        let targets: Option<Vec<u32>> =
            if one_target { Some(vec![0; first_leaves.len()]) } else { bounds.windows(2).map(of_tree).collect() };
        match targets {
            Some(targets) => Self::Single { weights: ranges.iter().map(|range| first(range).1).collect(), targets },
            None => Self::Many { ranges, weights: source.weights },
        }
    }

    /// Whether each row has a score for each of `targets`, whatever its path: some tree gives it one on every leaf.
    pub(crate) fn reach_all(&self, targets: usize, first_leaves: &[u32]) -> bool {
        let mut reached = vec![false; targets];
        match self {
            Self::Single { targets, .. } => targets.iter().for_each(|target| reached[*target as usize] = true),
            Self::Many { ranges, weights } => {
                let bounds: Vec<usize> = first_leaves.iter().map(|leaf| *leaf as usize).chain([ranges.len()]).collect();
                for window in bounds.windows(2) {
                    let leaves = &ranges[window[0]..window[1]];
                    let of = |range: &Range<u32>| &weights[range.start as usize..range.end as usize];
                    let Some(first) = leaves.first() else { continue };
                    for (target, _) in of(first) {
                        let is_everywhere = leaves.iter().all(|range| of(range).iter().any(|(other, _)| other == target));
                        reached[*target as usize] |= is_everywhere;
                    }
                }
            }
        }
        reached.into_iter().all(|reached| reached)
    }

    /// Adds what a leaf of a tree gives to the row of one lane.
    #[inline(always)]
    pub(crate) fn add_one(&self, aggregate: Aggregate, tree: usize, leaf: u32, lane: usize, into: &mut LaneScores<'_, T>) {
        match self {
            Self::Single { weights, targets } => into.one(aggregate, targets[tree] as usize, lane, weights[leaf as usize]),
            Self::Many { ranges, weights } => {
                let range = &ranges[leaf as usize];
                for (target, weight) in &weights[range.start as usize..range.end as usize] {
                    into.one(aggregate, *target as usize, lane, *weight);
                }
            }
        }
    }

    /// Adds what the leaves of a tree give to the rows that ended at them.
    #[inline(always)]
    pub(crate) fn add(&self, aggregate: Aggregate, tree: usize, ends: &[u32; LANES], into: &mut LaneScores<'_, T>) {
        match self {
            Self::Single { weights, targets } => {
                let target = targets[tree] as usize;
                let scores = &mut into.scores[target];
                if into.has_score.is_empty() && aggregate == Aggregate::Sum {
                    for (score, leaf) in scores.iter_mut().zip(ends) {
                        *score = score.plus(weights[*leaf as usize]);
                    }
                    return;
                }
                for (lane, leaf) in ends.iter().enumerate() {
                    into.one(aggregate, target, lane, weights[*leaf as usize]);
                }
            }
            Self::Many { .. } => {
                for (lane, leaf) in ends.iter().enumerate() {
                    self.add_one(aggregate, tree, *leaf, lane, into);
                }
            }
        }
    }
}

impl<T: Number> LaneScores<'_, T> {
    #[inline(always)]
    fn one(&mut self, aggregate: Aggregate, target: usize, lane: usize, weight: T) {
        let score = &mut self.scores[target][lane];
        let Some(has_score) = self.has_score.get_mut(target) else {
            *score = aggregate.combine(*score, weight);
            return;
        };
        let is_first = !has_score[lane] && matches!(aggregate, Aggregate::Minimum | Aggregate::Maximum);
        *score = if is_first { weight } else { aggregate.combine(*score, weight) };
        has_score[lane] = true;
    }
}
