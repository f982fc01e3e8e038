//! Trees as `TreeEnsemble` (`ai.onnx.ml` 5) lists them: branches and leaves in two tables, which name one another by index.

use super::source::{Number, Test, TreeNode, Trees, Truncation, check_sizes};
use super::table::{column, typed};
use crate::attributes::{Attributes, Reason, same_length};
use crate::value::{Elements, from_proto};

/// Reads the trees of a node whose columns are of type `T`.
pub(crate) fn read<T: Number>(node: Attributes<'_>, take: fn(Elements) -> Option<Vec<T>>) -> Result<Trees<T>, Reason> {
    let numbers = |name: &str| match node.tensor(name)? {
        Some(tensor) => typed(from_proto(tensor)?.elements, name, take),
        None => Ok(Vec::new()),
    };
    let targets = usize::try_from(node.int("n_targets")?.unwrap_or(0)).unwrap_or(0);
    let (splits, leaf_weights) = (numbers("nodes_splits")?, numbers("leaf_weights")?);
    let columns = node.ints("nodes_featureids")?;
    let modes = modes(node)?;
    let missing = node.ints("nodes_missing_value_tracks_true")?;
    let (holds, holds_leaf) = (node.ints("nodes_truenodeids")?, node.ints("nodes_trueleafs")?);
    let (fails, fails_leaf) = (node.ints("nodes_falsenodeids")?, node.ints("nodes_falseleafs")?);
    let leaf_targets = node.indices("leaf_targetids", targets.max(1))?;
    same_length(
        ("nodes_featureids", columns.len()),
        &[
            ("nodes_modes", modes.len()),
            ("nodes_splits", splits.len()),
            ("nodes_truenodeids", holds.len()),
            ("nodes_trueleafs", holds_leaf.len()),
            ("nodes_falsenodeids", fails.len()),
            ("nodes_falseleafs", fails_leaf.len()),
        ],
    )?;
    same_length(("leaf_targetids", leaf_targets.len()), &[("leaf_weights", leaf_weights.len())])?;
    check_sizes(columns.len() + leaf_weights.len(), targets)?;
    let branches = columns.len();
    // leaves stand behind the branches in the common list
    let child = |at: usize, index: i64, is_leaf: i64| {
        let (table, first, length) = if is_leaf == 0 { ("nodes", 0, branches) } else { ("leaves", branches, leaf_weights.len()) };
        let index = usize::try_from(index).ok().filter(|index| *index < length);
        index.map(|index| (first + index) as u32).ok_or_else(|| format!("node {at} goes outside of the {length} {table}"))
    };
    let mut sets = sets(numbers("membership_values")?);
    let mut nodes = Vec::with_capacity(branches + leaf_weights.len());
    for at in 0..branches {
        let test = match modes[at] {
            6 => match sets.next() {
                Some(set) if !set.is_empty() => {
                    let truncation = Truncation::of(&set);
                    Test::of_set(set, truncation)
                }
                _ => return Err(format!("node {at} tests membership of a set that membership_values does not have")),
            },
            mode => Test::of_mode(mode, splits[at]).ok_or_else(|| format!("nodes_modes[{at}] is {mode}, which is unknown"))?,
        };
        let column = column(columns[at], || format!("node {at}"))?;
        let (holds, fails) = (child(at, holds[at], holds_leaf[at])?, child(at, fails[at], fails_leaf[at])?);
        nodes.push(TreeNode::Branch { column, test, missing_holds: missing.get(at) == Some(&1), holds, fails });
    }
    nodes.extend((0..leaf_weights.len() as u32).map(|leaf| TreeNode::Leaf(leaf..leaf + 1)));
    let weights = leaf_targets.iter().map(|target| *target as u32).zip(leaf_weights.iter().copied()).collect();
    let roots = node.indices("tree_roots", branches)?.into_iter().map(|root| root as u32).collect::<Vec<_>>();
    if roots.is_empty() {
        return Err("has no tree_roots".into());
    }
    Ok(Trees { nodes, roots, weights, targets })
}

fn modes(node: Attributes<'_>) -> Result<Vec<u8>, Reason> {
    let tensor = node.tensor("nodes_modes")?.ok_or("has no nodes_modes")?;
    if tensor.data_type != lapwing_onnx::messages::tensor_proto::DataType::Uint8 as i32 {
        return Err(format!("nodes_modes has the element type {} of ONNX, expected UINT8", tensor.data_type));
    }
    if !tensor.raw_data.is_empty() {
        return Ok(tensor.raw_data.to_vec());
    }
    let mode = |mode: &i32| u8::try_from(*mode).map_err(|_| format!("nodes_modes has {mode}"));
    tensor.int32_data.iter().map(mode).collect()
}

/// Sets that stand one behind the other, separated by NaN.
fn sets<T: Number>(values: Vec<T>) -> impl Iterator<Item = Vec<T>> {
    let mut values = values.into_iter().peekable();
    std::iter::from_fn(move || {
        values.peek()?;
        Some(values.by_ref().take_while(|value| !value.is_missing()).collect())
    })
}
