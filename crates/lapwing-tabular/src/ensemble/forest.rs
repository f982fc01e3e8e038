//! The layouts of a forest that is walked. Every forest has a node of 8 bytes per test and leaf (16 in double precision): the threshold,
//! and in one word the column and the distance to the left child, behind which the right one stands. Trees of few leaves have a second
//! layout for many rows: per test the set of leaves that it rules out, as bits, so that no step waits for another.

use super::columns::Columns;
use super::grow::{Budget, GrownNode, GrownTree, grow};
use super::source::{Number, Test, TreeNode, Trees};
use crate::attributes::Reason;

/// Trees of at most this many leaves have the layout of bits. Its cost grows with the leaves, that of a walk with their logarithm.
const MOST_LEAVES_IN_BITS: usize = 96;
/// Leaves of a word of bits.
pub(crate) const WORD: usize = 32;

/// A node that a walk passes: from here it goes `distance` on, and one more where the column is greater than the threshold. A leaf has
/// distance 0, compares the column that is never greater, and has its number as threshold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WalkNode<T> {
    pub(crate) threshold: T,
    /// The column in the upper bits, the distance in the lower.
    pub(crate) column_distance: u32,
}

/// A test in the layout of bits: if the column is greater than the threshold, these leaves are ruled out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BitTest<T> {
    pub(crate) threshold: T,
    pub(crate) ruled_out: u32,
    pub(crate) column: u32,
}

/// A tree of a forest.
#[derive(Clone, Debug)]
pub(crate) struct ForestTree {
    /// Its root, by index in the forest's nodes.
    pub(crate) root: u32,
    pub(crate) depth: u32,
    /// The number of its first leaf.
    pub(crate) first_leaf: u32,
    /// Its words of bits; none if it is only walked.
    pub(crate) words: std::ops::Range<u32>,
}

/// All trees, in the order of the file, in which their weights are summed.
#[derive(Debug)]
pub(crate) struct Forest<T> {
    pub(crate) columns: Columns<T>,
    pub(crate) trees: Vec<ForestTree>,
    pub(crate) nodes: Vec<WalkNode<T>>,
    /// The lower bits of [`WalkNode::column_distance`] that are the distance.
    pub(crate) distance_bits: u32,
    /// The tests of each word of bits, by their ranges.
    pub(crate) words: Vec<std::ops::Range<u32>>,
    pub(crate) tests: Vec<BitTest<T>>,
    /// The comparisons of a row, as a mean over the leaves of each tree.
    pub(crate) comparisons: f64,
}

/// A forest, and the ranges of weights of all its leaves.
pub(crate) type Grown<T> = (Forest<T>, Vec<std::ops::Range<u32>>);

/// Lays out the trees of an ensemble.
pub(crate) fn lay_out<T: Number>(source: &Trees<T>) -> Result<Grown<T>, Reason> {
    let mut columns = Columns::new();
    let members = |node: &TreeNode<T>| match node {
        TreeNode::Branch { test: Test::Member(values, _), .. } => values.len(),
        _ => 0,
    };
    let members: usize = source.nodes.iter().map(members).sum();
    let mut budget = Budget::of(source.nodes.len().max(source.roots.len()) + members);
    let grown = source.roots.iter().map(|root| grow(source, *root, &mut columns, &mut budget));
    let grown: Vec<GrownTree<T>> = grown.collect::<Result<_, _>>()?;
    columns.shrink();
    let farthest = grown.iter().map(|tree| tree.nodes.len()).max().unwrap_or(0);
    let distance_bits = usize::BITS - farthest.leading_zeros();
    let column_bits = usize::BITS - (columns.derived.len() - 1).leading_zeros();
    if distance_bits + column_bits > 32 {
        let derived = columns.derived.len();
        return Err(format!("a tree of {farthest} nodes over {derived} columns: together they need more than 32 bits"));
    }
    let mut forest = Forest {
        columns,
        trees: Vec::with_capacity(grown.len()),
        nodes: Vec::new(),
        distance_bits,
        words: Vec::new(),
        tests: Vec::new(),
        comparisons: 0.0,
    };
    let mut leaves = Vec::new();
    for tree in &grown {
        let words = forest.bits(tree);
        let (root, first_leaf) = (forest.nodes.len() as u32, leaves.len() as u32);
        forest.trees.push(ForestTree { root, depth: tree.depth as u32, first_leaf, words });
        forest.walk(tree, first_leaf);
        forest.comparisons += tree.paths as f64 / tree.leaves.len() as f64;
        leaves.extend(tree.leaves.iter().cloned());
    }
    Ok((forest, leaves))
}

impl<T: Number> Forest<T> {
    /// Adds a tree's nodes for walks: pairs of siblings in preorder, so that a walk to the left reads on in memory.
    fn walk(&mut self, tree: &GrownTree<T>, first_leaf: u32) {
        let root = self.nodes.len();
        let unset = WalkNode { threshold: T::NAN, column_distance: 0 };
        self.nodes.push(unset);
        let mut open = vec![(0_u32, root)];
        while let Some((grown, place)) = open.pop() {
            self.nodes[place] = match tree.nodes[grown as usize] {
                GrownNode::Leaf(leaf) => WalkNode { threshold: T::from_index(first_leaf + leaf), column_distance: 0 },
                GrownNode::Branch { split, left, right } => {
                    let pair = self.nodes.len();
                    self.nodes.extend([unset; 2]);
                    open.extend([(right, pair + 1), (left, pair)]);
                    let column_distance = (split.column << self.distance_bits) | (pair - place) as u32;
                    WalkNode { threshold: split.threshold, column_distance }
                }
            };
        }
    }

    /// Adds a tree's words of bits, if it has few leaves.
    fn bits(&mut self, tree: &GrownTree<T>) -> std::ops::Range<u32> {
        let first = self.words.len() as u32;
        if tree.leaves.len() > MOST_LEAVES_IN_BITS {
            return first..first;
        }
        // leaves are numbered from left to right, so those left of a branch are an interval: from the first below it to the first to
        // the right of it
        let mut first_leaf = vec![0_usize; tree.nodes.len()];
        for (at, node) in tree.nodes.iter().enumerate().rev() {
            first_leaf[at] = match node {
                GrownNode::Leaf(leaf) => *leaf as usize,
                GrownNode::Branch { left, .. } => first_leaf[*left as usize],
            };
        }
        for word in 0..tree.leaves.len().div_ceil(WORD) {
            let start = self.tests.len() as u32;
            for (at, node) in tree.nodes.iter().enumerate() {
                let GrownNode::Branch { split, right, .. } = node else { continue };
                let inside = |leaf: usize| leaf.clamp(word * WORD, (word + 1) * WORD) - word * WORD;
                let (from, to) = (inside(first_leaf[at]), inside(first_leaf[*right as usize]));
                if from < to {
                    let ruled_out = (u32::MAX >> (WORD - (to - from))) << from;
                    self.tests.push(BitTest { threshold: split.threshold, ruled_out, column: split.column });
                }
            }
            self.words.push(start..self.tests.len() as u32);
        }
        first..self.words.len() as u32
    }

    /// Bytes of the nodes that a walk may read.
    pub(crate) fn bytes(&self) -> u64 {
        (self.nodes.len() * size_of::<WalkNode<T>>()) as u64
    }
}
