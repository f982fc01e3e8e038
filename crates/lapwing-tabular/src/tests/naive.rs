//! Trees by the letter of the specification: one node after the other, recursion, no layout.

use lapwing_onnx::messages::{AttributeProto, ModelProto};
use proptest::prelude::*;

use lapwing_onnx::messages::tensor_proto::DataType;
use lapwing_testing::onnx::{classical, floats, int, ints, model, port, strings, word};

#[derive(Clone, Debug)]
pub(crate) enum Tree {
    Leaf(Vec<f32>),
    Branch { mode: usize, column: usize, threshold: f32, missing_holds: bool, children: Box<(Tree, Tree)> },
}

const MODES: [&str; 6] = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"];

impl Tree {
    /// The weights of the leaf that a row ends at.
    pub(crate) fn leaf(&self, row: &[f32]) -> &[f32] {
        match self {
            Self::Leaf(weights) => weights,
            Self::Branch { mode, column, threshold, missing_holds, children } => {
                let (x, t) = (row[*column], *threshold);
                let holds = [x <= t, x < t, x >= t, x > t, x == t, x != t][*mode] || (x.is_nan() && *missing_holds);
                if holds { children.0.leaf(row) } else { children.1.leaf(row) }
            }
        }
    }

    pub(crate) fn leaves(&self) -> usize {
        match self {
            Self::Leaf(_) => 1,
            Self::Branch { children, .. } => children.0.leaves() + children.1.leaves(),
        }
    }
}

/// Trees with leaves of `targets` weights over `width` columns; thresholds meet the columns' values often.
pub(crate) fn trees(targets: usize, width: usize, most_leaves: u32) -> impl Strategy<Value = Vec<Tree>> {
    let weight = (-64_i32..64).prop_map(|weight| weight as f32 / 7.0);
    let leaf = prop::collection::vec(weight, targets).prop_map(Tree::Leaf);
    let threshold = prop_oneof![8 => (-4_i32..5).prop_map(|x| x as f32 / 2.0), 1 => Just(f32::INFINITY), 1 => Just(f32::NEG_INFINITY), 1 => Just(f32::NAN), 1 => Just(-0.0), 1 => Just(f32::MIN_POSITIVE)];
    let mode = prop_oneof![4 => Just(0_usize), 3 => 0..6_usize];
    let tree = leaf.prop_recursive(9, most_leaves * 2, 2, move |inner| {
        let parts = (mode.clone(), 0..width, threshold.clone(), any::<bool>(), inner.clone(), inner);
        parts.prop_map(|(mode, column, threshold, missing_holds, holds, fails)| Tree::Branch {
            mode,
            column,
            threshold,
            missing_holds,
            children: Box::new((holds, fails)),
        })
    });
    prop::collection::vec(tree, 1..20)
}

/// Rows of `width` columns.
pub(crate) fn rows(width: usize) -> impl Strategy<Value = Vec<Vec<f32>>> {
    let special =
        prop_oneof![Just(f32::NAN), Just(f32::INFINITY), Just(f32::NEG_INFINITY), Just(-0.0), Just(0.0), Just(f32::MIN_POSITIVE)];
    let number = prop_oneof![6 => (-6_i32..7).prop_map(|x| x as f32 / 2.0), 2 => special, 1 => any::<f32>()];
    prop::collection::vec(prop::collection::vec(number, width), 0..40)
}

/// The lists of nodes and weights, as attributes.
#[derive(Default)]
struct Lists {
    trees: Vec<i64>,
    ids: Vec<i64>,
    columns: Vec<i64>,
    values: Vec<f32>,
    modes: Vec<&'static str>,
    holds: Vec<i64>,
    fails: Vec<i64>,
    missing: Vec<i64>,
    weights: Vec<(i64, i64, i64, f32)>,
}

impl Lists {
    fn add(&mut self, number: i64, tree: &Tree) -> i64 {
        let at = self.ids.len();
        let id = self.trees.iter().filter(|tree| **tree == number).count() as i64;
        self.trees.push(number);
        self.ids.push(id);
        for list in [&mut self.columns, &mut self.holds, &mut self.fails, &mut self.missing] {
            list.push(0);
        }
        self.values.push(0.0);
        self.modes.push("LEAF");
        match tree {
            Tree::Leaf(weights) => {
                self.weights.extend(weights.iter().zip(0..).map(|(weight, target)| (number, id, target, *weight)));
            }
            Tree::Branch { mode, column, threshold, missing_holds, children } => {
                self.columns[at] = *column as i64;
                self.values[at] = *threshold;
                self.modes[at] = MODES[*mode];
                self.missing[at] = i64::from(*missing_holds);
                self.holds[at] = self.add(number, &children.0);
                self.fails[at] = self.add(number, &children.1);
            }
        }
        id
    }

    fn attributes(&self, prefix: &str) -> Vec<AttributeProto> {
        let of = |list: fn(&(i64, i64, i64, f32)) -> i64| self.weights.iter().map(list).collect::<Vec<_>>();
        vec![
            ints("nodes_treeids", &self.trees),
            ints("nodes_nodeids", &self.ids),
            ints("nodes_featureids", &self.columns),
            floats("nodes_values", &self.values),
            strings("nodes_modes", &self.modes),
            ints("nodes_truenodeids", &self.holds),
            ints("nodes_falsenodeids", &self.fails),
            ints("nodes_missing_value_tracks_true", &self.missing),
            ints(&format!("{prefix}_treeids"), &of(|weight| weight.0)),
            ints(&format!("{prefix}_nodeids"), &of(|weight| weight.1)),
            ints(&format!("{prefix}_ids"), &of(|weight| weight.2)),
            floats(&format!("{prefix}_weights"), &self.weights.iter().map(|weight| weight.3).collect::<Vec<_>>()),
        ]
    }
}

/// A regressor of these trees.
pub(crate) fn regressor(trees: &[Tree], targets: usize, width: usize, aggregate: &str) -> ModelProto {
    let mut lists = Lists::default();
    trees.iter().zip(0..).for_each(|(tree, number)| {
        lists.add(number, tree);
    });
    let mut attributes = lists.attributes("target");
    attributes.extend([int("n_targets", targets as i64), word("aggregate_function", aggregate)]);
    let node = classical("TreeEnsembleRegressor", &["x"], &["y"], attributes);
    model(vec![port("x", DataType::Float, &[0, width as i64])], vec![node], &["y"], vec![])
}

/// A classifier of these trees, with whole numbers as labels.
pub(crate) fn classifier(trees: &[Tree], labels: &[i64], width: usize) -> ModelProto {
    let mut lists = Lists::default();
    trees.iter().zip(0..).for_each(|(tree, number)| {
        lists.add(number, tree);
    });
    let mut attributes = lists.attributes("class");
    attributes.push(ints("classlabels_int64s", labels));
    let node = classical("TreeEnsembleClassifier", &["x"], &["label", "scores"], attributes);
    model(vec![port("x", DataType::Float, &[0, width as i64])], vec![node], &["label", "scores"], vec![])
}
