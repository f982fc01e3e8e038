//! Makes each tree of an ensemble a binary tree of comparisons: cycles and great depth are refused, chains of equality tests become one
//! test of a set, and what several nodes share is repeated within a bound.

use super::columns::{Columns, Split};
use super::source::{Number, Test, TreeNode, Trees, Truncation};
use crate::attributes::Reason;

/// The longest path from a root to a leaf. Trainers stop at some hundreds.
const MOST_DEPTH: usize = 10_000;

/// A node of a grown tree.
#[derive(Clone, Copy, Debug)]
pub(crate) enum GrownNode<T> {
    /// The nodes to the left and right, by index; both come later.
    Branch { split: Split<T>, left: u32, right: u32 },
    /// The number of the leaf in its tree, from left to right.
    Leaf(u32),
}

/// A tree in preorder: a node, what is left of it, what is right.
#[derive(Clone, Debug)]
pub(crate) struct GrownTree<T> {
    pub(crate) nodes: Vec<GrownNode<T>>,
    /// The range of weights of each leaf.
    pub(crate) leaves: Vec<std::ops::Range<u32>>,
    /// The longest path to a leaf, in comparisons; and the sum of all paths' lengths.
    pub(crate) depth: usize,
    pub(crate) paths: u64,
}

/// How many nodes may still be grown: shared parts are repeated, which must not go on for ever.
pub(crate) struct Budget(usize);

impl Budget {
    pub(crate) const fn of(nodes: usize) -> Self {
        Self(nodes.saturating_mul(2).saturating_add(1 << 12))
    }
}

impl Budget {
    fn take(&mut self, nodes: usize) -> Result<(), Reason> {
        let fails = "its trees have a cycle, or share so many parts that, repeated, they have more than twice the nodes";
        self.0 = self.0.checked_sub(nodes).ok_or(fails)?;
        Ok(())
    }
}

/// A place in a tree that is to be grown.
struct Task {
    source: u32,
    /// The grown branch that leads here, and whether it does by its right side.
    parent: Option<(u32, bool)>,
    depth: usize,
}

/// Grows the tree with this root.
pub(crate) fn grow<T: Number>(
    trees: &Trees<T>,
    root: u32,
    columns: &mut Columns<T>,
    budget: &mut Budget,
) -> Result<GrownTree<T>, Reason> {
    let mut tree = GrownTree { nodes: Vec::new(), leaves: Vec::new(), depth: 0, paths: 0 };
    let mut open = vec![Task { source: root, parent: None, depth: 0 }];
    while let Some(Task { source, parent, depth }) = open.pop() {
        if depth > MOST_DEPTH {
            return Err(format!("the tree of node {root} is a cycle, or deeper than {MOST_DEPTH}, which is the bound"));
        }
        budget.take(1)?;
        let at = tree.nodes.len() as u32;
        if let Some((parent, is_right)) = parent
            && let GrownNode::Branch { left, right, .. } = &mut tree.nodes[parent as usize]
        {
            *(if is_right { right } else { left }) = at;
        }
        match &trees.nodes[source as usize] {
            TreeNode::Leaf(weights) => {
                tree.nodes.push(GrownNode::Leaf(tree.leaves.len() as u32));
                tree.leaves.push(weights.clone());
                tree.depth = tree.depth.max(depth);
                tree.paths += depth as u64;
            }
            // a tree that is one leaf may be listed as a branch that leads to it whatever it finds
            TreeNode::Branch { holds, fails, .. } if holds == fails => {
                open.push(Task { source: *holds, parent, depth: depth + 1 })
            }
            TreeNode::Branch { column, test, missing_holds, holds, fails } => {
                let (test, fails) = merged(trees, *column, test, *missing_holds, *holds, *fails);
                if let Test::Member(values, _) = &test {
                    budget.take(values.len())?;
                }
                let split = columns.split(*column, &test, *missing_holds);
                let (left, right) = if split.holds_right { (fails, *holds) } else { (*holds, fails) };
                tree.nodes.push(GrownNode::Branch { split, left: 0, right: 0 });
                // the last is taken first
                open.push(Task { source: right, parent: Some((at, true)), depth: depth + 1 });
                open.push(Task { source: left, parent: Some((at, false)), depth: depth + 1 });
            }
        }
    }
    Ok(tree)
}

/// A chain of equality tests of one column that lead to one node is one test of a set: converters write categories so.
fn merged<T: Number>(
    trees: &Trees<T>,
    column: u32,
    test: &Test<T>,
    missing_holds: bool,
    holds: u32,
    fails: u32,
) -> (Test<T>, u32) {
    let (Test::Equal(first), mut end) = (test, fails) else { return (test.clone(), fails) };
    let mut values = vec![*first];
    while let TreeNode::Branch { column: next, test: Test::Equal(value), missing_holds: next_missing, holds: target, fails } =
        &trees.nodes[end as usize]
        && (*next, *next_missing, *target) == (column, missing_holds, holds)
        && values.len() < trees.nodes.len()
    {
        values.push(*value);
        end = *fails;
    }
    if values.len() > 1 { (Test::of_set(values, Truncation::None), end) } else { (test.clone(), fails) }
}
