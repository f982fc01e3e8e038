//! Evaluates a forest: finds the leaf of each tree for each row, and adds up what the leaves give, tree by tree in the order of the
//! file, as ONNX Runtime does on one thread, so that sums are equal to the last bit.
//!
//! Rows go in tiles that fit the first cache with their columns. A tree is read once for a tile. Within it, lanes of rows take each
//! step together. A few rows alone go one by one, and several trees take each step together.

use pulp::{Arch, NullaryFnOnce};

use super::forest::{Forest, ForestTree, WORD};
use super::leaves::{Aggregate, LaneScores, Leaves};
use super::source::Number;
use crate::attributes::Reason;
use crate::lanes::{Block, LANES};

/// Trees that one row walks side by side.
const TREES: usize = 16;
/// Fewer rows than this are evaluated one by one.
const FEW_ROWS: usize = 4;
/// Bytes of the columns of a tile.
const TILE_BYTES: usize = 24 << 10;
/// The most rows of a tile.
const MOST_TILE_ROWS: usize = 256;
/// Steps of a walk between two looks whether all lanes are at leaves.
const STEPS: usize = 4;

/// What is evaluated.
#[derive(Debug)]
pub(crate) struct Evaluation<'a, T> {
    pub(crate) forest: &'a Forest<T>,
    pub(crate) leaves: &'a Leaves<T>,
    pub(crate) aggregate: Aggregate,
    pub(crate) targets: usize,
    /// Whether it must be known which targets a row has a score for.
    pub(crate) tracks_scores: bool,
    pub(crate) arch: Arch,
}

/// The trees for a tile, compiled for the widest vectors that the processor has: all that it calls is inlined into it.
struct AllTrees<'a, 'b, T> {
    evaluation: &'a Evaluation<'b, T>,
    lanes: usize,
    block: &'a mut Block<T>,
}

impl<T: Number> NullaryFnOnce for AllTrees<'_, '_, T> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        self.evaluation.all_trees(self.lanes, self.block);
    }
}

impl<T: Number> Evaluation<'_, T> {
    /// Evaluates rows of `width` columns; `row_done` takes the scores of each row, and which of them it has (empty: all).
    pub(crate) fn run(
        &self,
        rows: &[T],
        width: usize,
        block: &mut Block<T>,
        mut row_done: impl FnMut(&[T], &[bool]) -> Result<(), Reason>,
    ) -> Result<(), Reason> {
        let derived = self.forest.columns.derived.len();
        let fit = TILE_BYTES / (derived * size_of::<T>());
        let tile_rows = fit.next_multiple_of(LANES).clamp(LANES, MOST_TILE_ROWS);
        let (mut scores, mut has_score) = (vec![T::default(); self.targets], Vec::new());
        for tile in rows.chunks(tile_rows * width.max(1)) {
            let count = tile.len() / width.max(1);
            let lanes = count.div_ceil(LANES);
            block.scores.clear();
            block.scores.resize(lanes * self.targets, [T::default(); LANES]);
            block.has_score.clear();
            if self.tracks_scores {
                block.has_score.resize(lanes * self.targets, [false; LANES]);
            }
            if count < FEW_ROWS {
                for (lane, row) in tile.chunks_exact(width.max(1)).enumerate() {
                    self.one_row(row, lane, block)?;
                }
            } else {
                self.derive(tile, width, lanes, block)?;
                self.arch.dispatch(AllTrees { evaluation: self, lanes, block });
            }
            for row in 0..count {
                let (lanes, lane) = (row / LANES * self.targets, row % LANES);
                for (target, score) in scores.iter_mut().enumerate() {
                    *score = block.scores[lanes + target][lane];
                }
                if self.tracks_scores {
                    has_score.clear();
                    has_score.extend((0..self.targets).map(|target| block.has_score[lanes + target][lane]));
                }
                row_done(&scores, &has_score)?;
            }
        }
        Ok(())
    }

    /// Writes the derived columns of a tile; lanes behind the last row repeat it.
    fn derive(&self, tile: &[T], width: usize, lanes: usize, block: &mut Block<T>) -> Result<(), Reason> {
        let derived = self.forest.columns.derived.len();
        block.columns.resize(lanes * derived, [T::default(); LANES]);
        let count = tile.len() / width.max(1);
        for at in 0..lanes * LANES {
            let row = at.min(count - 1);
            let columns = &mut block.columns[at / LANES * derived..][..derived];
            let row = &tile[row * width..][..width];
            self.forest.columns.derive(row, |column, value| columns[column][at % LANES] = value)?;
        }
        Ok(())
    }

    #[inline(always)]
    fn all_trees(&self, lanes: usize, block: &mut Block<T>) {
        let derived = self.forest.columns.derived.len();
        let Block { columns, scores, has_score, .. } = block;
        for (at, tree) in self.forest.trees.iter().enumerate() {
            for lane in 0..lanes {
                let columns = &columns[lane * derived..][..derived];
                let ends = if tree.words.is_empty() {
                    self.forest.ends_by_walk(tree, columns)
                } else {
                    self.forest.ends_by_bits(tree, columns)
                };
                let scores = &mut scores[lane * self.targets..][..self.targets];
                let has_score =
                    if has_score.is_empty() { &mut [][..] } else { &mut has_score[lane * self.targets..][..self.targets] };
                self.leaves.add(self.aggregate, at, &ends, &mut LaneScores { scores, has_score });
            }
        }
    }

    /// Evaluates one row, whose scores go into a lane of the first lanes.
    fn one_row(&self, row: &[T], lane: usize, block: &mut Block<T>) -> Result<(), Reason> {
        let Block { scores, has_score, row: columns, .. } = block;
        columns.clear();
        columns.resize(self.forest.columns.derived.len(), T::default());
        self.forest.columns.derive(row, |column, value| columns[column] = value)?;
        let mut into = LaneScores { scores, has_score };
        for (group, trees) in self.forest.trees.chunks(TREES).enumerate() {
            let mut at = [trees[0].root; TREES];
            let depth = trees.iter().zip(&mut at).fold(0, |depth, (tree, at)| {
                *at = tree.root;
                depth.max(tree.depth)
            });
            self.forest.walk_lanes(&mut at, depth, |column, _| columns.get(column).copied());
            for (tree, at) in at[..trees.len()].iter().enumerate() {
                let leaf = self.forest.leaf(*at);
                self.leaves.add_one(self.aggregate, group * TREES + tree, leaf, lane, &mut into);
            }
        }
        Ok(())
    }
}

impl<T: Number> Forest<T> {
    /// The number of the leaf at a node.
    #[inline(always)]
    fn leaf(&self, node: u32) -> u32 {
        self.nodes.get(node as usize).map_or(0, |node| node.threshold.index())
    }

    /// Takes steps until each lane is at a leaf; `column` returns a column of a lane.
    #[inline(always)]
    fn walk_lanes<const N: usize>(&self, at: &mut [u32; N], depth: u32, column: impl Fn(usize, usize) -> Option<T>) {
        let distance_mask = (1_u32 << self.distance_bits) - 1;
        let step = |at: u32, lane: usize| {
            let Some(node) = self.nodes.get(at as usize) else { return (at, 0) };
            let value = column((node.column_distance >> self.distance_bits) as usize, lane).unwrap_or(T::NAN);
            let distance = node.column_distance & distance_mask;
            (at + distance + u32::from(value > node.threshold), distance)
        };
        let mut left = depth as usize;
        while left > 0 {
            for _ in 1..left.min(STEPS) {
                for (lane, at) in at.iter_mut().enumerate() {
                    *at = step(*at, lane).0;
                }
            }
            let mut moved = 0;
            for (lane, at) in at.iter_mut().enumerate() {
                let (next, distance) = step(*at, lane);
                *at = next;
                moved |= distance;
            }
            left = if moved == 0 { 0 } else { left.saturating_sub(STEPS) };
        }
    }

    #[inline(always)]
    fn ends_by_walk(&self, tree: &ForestTree, columns: &[[T; LANES]]) -> [u32; LANES] {
        let mut at = [tree.root; LANES];
        self.walk_lanes(&mut at, tree.depth, |column, lane| columns.get(column).map(|column| column[lane]));
        at.map(|at| self.leaf(at))
    }

    /// The leaf that a row ends at is the first that no test rules out.
    #[inline(always)]
    fn ends_by_bits(&self, tree: &ForestTree, columns: &[[T; LANES]]) -> [u32; LANES] {
        let mut ends = [tree.first_leaf; LANES];
        let words = &self.words[tree.words.start as usize..tree.words.end as usize];
        for (at, word) in words.iter().enumerate().rev() {
            let mut possible = [u32::MAX; LANES];
            for test in &self.tests[word.start as usize..word.end as usize] {
                let Some(column) = columns.get(test.column as usize) else { continue };
                let (threshold, ruled_out) = (test.threshold, test.ruled_out);
                // all bits or none, and no branch: the form that the compiler has vectors for
                for lane in 0..LANES {
                    possible[lane] &= !(u32::from(column[lane] > threshold).wrapping_neg() & ruled_out);
                }
            }
            let first = tree.first_leaf + (at * WORD) as u32;
            for (end, possible) in ends.iter_mut().zip(possible) {
                *end = if possible == 0 { *end } else { first + possible.trailing_zeros() };
            }
        }
        ends
    }
}
