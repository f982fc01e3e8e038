//! Trees as `TreeEnsembleClassifier` and `TreeEnsembleRegressor` list them: one table of nodes with the numbers of their trees, and one
//! of weights that names nodes.

use rustc_hash::FxHashMap;

use super::source::{Number, Test, TreeNode, Trees, check_sizes};
use crate::attributes::{Attributes, Reason, same_length};
use crate::value::{Elements, from_proto};

/// Reads numbers that are a list of floats or, in the type of the columns, a tensor.
pub(crate) fn numbers<T: Number>(
    node: Attributes<'_>,
    name: &str,
    take: fn(Elements) -> Option<Vec<T>>,
) -> Result<Vec<T>, Reason> {
    let floats = node.floats(name)?;
    let tensor_name = format!("{name}_as_tensor");
    let Some(tensor) = node.tensor(&tensor_name)? else {
        return Ok(floats.iter().map(|x| T::from_single(*x)).collect());
    };
    if !floats.is_empty() {
        return Err(format!("has both {name} and {tensor_name}"));
    }
    typed(from_proto(tensor)?.elements, &tensor_name, take)
}

/// Elements in the type of the columns.
pub(crate) fn typed<T: Number>(elements: Elements, name: &str, take: fn(Elements) -> Option<Vec<T>>) -> Result<Vec<T>, Reason> {
    let kind = elements.datatype().name();
    take(elements).ok_or_else(|| format!("{name} is {kind}, which is not the type of the columns"))
}

/// The prefix of the attributes for weights: `class` or `target`.
pub(crate) fn read<T: Number>(
    node: Attributes<'_>,
    prefix: &str,
    targets: usize,
    take: fn(Elements) -> Option<Vec<T>>,
) -> Result<Trees<T>, Reason> {
    let ids = node.ints("nodes_nodeids")?;
    let (trees, columns) = (node.ints("nodes_treeids")?, node.ints("nodes_featureids")?);
    let (modes, values) = (node.strings("nodes_modes")?, numbers(node, "nodes_values", take)?);
    let (holds, fails) = (node.ints("nodes_truenodeids")?, node.ints("nodes_falsenodeids")?);
    let missing = node.ints("nodes_missing_value_tracks_true")?;
    same_length(
        ("nodes_nodeids", ids.len()),
        &[
            ("nodes_treeids", trees.len()),
            ("nodes_featureids", columns.len()),
            ("nodes_modes", modes.len()),
            ("nodes_values", values.len()),
            ("nodes_truenodeids", holds.len()),
            ("nodes_falsenodeids", fails.len()),
        ],
    )?;
    check_sizes(ids.len(), targets)?;
    let mut places: FxHashMap<(i64, i64), u32> = FxHashMap::default();
    let mut roots = Vec::new();
    let mut seen = rustc_hash::FxHashSet::default();
    for (at, (tree, id)) in trees.iter().zip(ids).enumerate() {
        if places.insert((*tree, *id), at as u32).is_some() {
            return Err(format!("tree {tree} has two nodes {id}"));
        }
        if at == 0 || trees[at - 1] != *tree {
            if !seen.insert(*tree) {
                return Err(format!("the nodes of tree {tree} do not stand together"));
            }
            roots.push(at as u32);
        }
    }
    let (ranges, weights) = weights(node, prefix, targets, &places, ids.len(), take)?;
    let mut nodes = Vec::with_capacity(ids.len());
    for at in 0..ids.len() {
        if modes[at] == b"LEAF" {
            if ranges[at].is_empty() {
                return Err(format!("leaf {} of tree {} has no weight", ids[at], trees[at]));
            }
            nodes.push(TreeNode::Leaf(ranges[at].clone()));
            continue;
        }
        let child = |id: i64| {
            let found = places.get(&(trees[at], id)).copied();
            found.ok_or_else(|| format!("node {} of tree {} goes to node {id}, which is not there", ids[at], trees[at]))
        };
        nodes.push(TreeNode::Branch {
            column: column(columns[at], || format!("node {} of tree {}", ids[at], trees[at]))?,
            test: test(&modes[at], values[at])?,
            missing_holds: missing.get(at) == Some(&1),
            holds: child(holds[at])?,
            fails: child(fails[at])?,
        });
    }
    Ok(Trees { nodes, roots, weights, targets })
}

/// The index of a column that a node tests.
pub(crate) fn column(number: i64, named: impl Fn() -> String) -> Result<u32, Reason> {
    u32::try_from(number).ok().filter(|column| *column < 1 << 31).ok_or_else(|| format!("{} tests column {number}", named()))
}

fn test<T: Number>(mode: &[u8], threshold: T) -> Result<Test<T>, Reason> {
    let modes: [&[u8]; 6] = [b"BRANCH_LEQ", b"BRANCH_LT", b"BRANCH_GTE", b"BRANCH_GT", b"BRANCH_EQ", b"BRANCH_NEQ"];
    let number = modes.iter().position(|known| *known == mode);
    let test = number.and_then(|number| Test::of_mode(number as u8, threshold));
    test.ok_or_else(|| format!("nodes_modes has {:?}, which is unknown", String::from_utf8_lossy(mode)))
}

type Weights<T> = (Vec<std::ops::Range<u32>>, Vec<(u32, T)>);

/// The weights of each node, in the order of trees and nodes' numbers, and those of one node as listed. Weights of nodes that are no
/// leaves are read and not used, as old converters write them.
fn weights<T: Number>(
    node: Attributes<'_>,
    prefix: &str,
    targets: usize,
    places: &FxHashMap<(i64, i64), u32>,
    nodes: usize,
    take: fn(Elements) -> Option<Vec<T>>,
) -> Result<Weights<T>, Reason> {
    let named = |what: &str| format!("{prefix}_{what}");
    let ids = node.indices(&named("ids"), targets)?;
    let (trees, node_ids) = (node.ints(&named("treeids"))?, node.ints(&named("nodeids"))?);
    let values = numbers(node, &named("weights"), take)?;
    let lengths = [(named("treeids"), trees.len()), (named("nodeids"), node_ids.len()), (named("weights"), values.len())];
    same_length((named("ids").as_str(), ids.len()), &lengths.each_ref().map(|(name, length)| (name.as_str(), *length)))?;
    let mut listed: Vec<(u32, u32)> = Vec::with_capacity(ids.len());
    for (at, (tree, id)) in trees.iter().zip(node_ids).enumerate() {
        let place =
            places.get(&(*tree, *id)).ok_or_else(|| format!("a weight is for node {id} of tree {tree}, which is not there"))?;
        listed.push((*place, at as u32));
    }
    listed.sort_unstable();
    let mut ranges = vec![0..0; nodes];
    let mut weights = Vec::with_capacity(ids.len());
    for (place, at) in listed {
        let end = weights.len() as u32;
        let range = &mut ranges[place as usize];
        *range = if range.start == range.end { end..end + 1 } else { range.start..end + 1 };
        weights.push((ids[at as usize] as u32, values[at as usize]));
    }
    Ok((ranges, weights))
}
