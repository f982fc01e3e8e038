//! Ensembles against the interpreter of the specification.

use lapwing_onnx::tensor::Tensor;
use proptest::prelude::*;

use super::naive::{Tree, classifier, regressor, rows, trees};
use crate::{TabularModel, TabularState};

const WIDTH: usize = 3;

fn tensor(rows: &[Vec<f32>]) -> Tensor {
    Tensor::f32("x", &[rows.len(), WIDTH], &rows.concat())
}

/// The bits of numbers, with one for all that are NaN.
fn bits(numbers: impl IntoIterator<Item = f32>) -> Vec<u32> {
    numbers.into_iter().map(|x| if x.is_nan() { f32::NAN.to_bits() } else { x.to_bits() }).collect()
}

fn naive(trees: &[Tree], row: &[f32], targets: usize, aggregate: &str) -> Vec<f32> {
    let mut all = vec![Vec::new(); targets];
    for tree in trees {
        tree.leaf(row).iter().zip(&mut all).for_each(|(weight, target)| target.push(*weight));
    }
    let one = |weights: Vec<f32>| match aggregate {
        "SUM" => weights.iter().fold(0.0, |sum, weight| sum + weight) + 0.0,
        "AVERAGE" => weights.iter().fold(0.0, |sum, weight| sum + weight) / trees.len() as f32 + 0.0,
        "MIN" => weights.into_iter().fold(f32::INFINITY, f32::min) + 0.0,
        _ => weights.into_iter().fold(f32::NEG_INFINITY, f32::max) + 0.0,
    };
    all.into_iter().map(one).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn sums_are_those_of_the_specification_to_the_last_bit(
        (targets, trees) in (1_usize..4).prop_flat_map(|targets| (Just(targets), trees(targets, WIDTH, 50))),
        rows in rows(WIDTH),
        aggregate in prop_oneof![3 => Just("SUM"), 1 => Just("AVERAGE"), 1 => Just("MIN"), 1 => Just("MAX")],
    ) {
        let model = TabularModel::from_proto(&regressor(&trees, targets, WIDTH, aggregate)).unwrap();
        let got = model.run(&mut TabularState::default(), &[tensor(&rows)], &[true]).unwrap();
        let wanted: Vec<f32> = rows.iter().flat_map(|row| naive(&trees, row, targets, aggregate)).collect();
        prop_assert_eq!(bits(got[0].to_f32().into_iter().map(|x| x + 0.0)), bits(wanted));
    }

    #[test]
    fn large_trees_are_walked_to_the_same_leaves(trees in trees(1, WIDTH, 400), rows in rows(WIDTH)) {
        let model = TabularModel::from_proto(&regressor(&trees, 1, WIDTH, "SUM")).unwrap();
        let got = model.run(&mut TabularState::default(), &[tensor(&rows)], &[true]).unwrap();
        let wanted: Vec<f32> = rows.iter().flat_map(|row| naive(&trees, row, 1, "SUM")).collect();
        prop_assert_eq!(bits(got[0].to_f32().into_iter().map(|x| x + 0.0)), bits(wanted));
    }

    #[test]
    fn the_first_of_the_largest_classes_wins(trees in trees(3, WIDTH, 20), rows in rows(WIDTH)) {
        let model = TabularModel::from_proto(&classifier(&trees, &[5, -2, 9], WIDTH)).unwrap();
        let got = model.run(&mut TabularState::default(), &[tensor(&rows)], &[true, false]).unwrap();
        let label = |row: &Vec<f32>| {
            let scores = naive(&trees, row, 3, "SUM");
            let best = (0..3).fold(0, |best, class| if scores[class] > scores[best] { class } else { best });
            [5_i64, -2, 9][best]
        };
        let labels: Vec<i64> = got[0].data.as_chunks::<8>().0.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect();
        prop_assert_eq!(labels, rows.iter().map(label).collect::<Vec<_>>());
    }
}

#[test]
fn chains_and_full_trees_of_every_size_agree() {
    // chains have words of bits that most leaves share; full trees have them in halves
    for leaves in [1, 2, 31, 32, 33, 64, 65, 96, 97, 200] {
        let leaf = |at: usize| Tree::Leaf(vec![at as f32]);
        let branch = |at: usize, holds, fails| Tree::Branch {
            mode: at % 4,
            column: at % WIDTH,
            threshold: (at % 7) as f32 - 3.0,
            missing_holds: at.is_multiple_of(3),
            children: Box::new((holds, fails)),
        };
        let chain = (1..leaves)
            .fold(leaf(0), |tree, at| if at % 2 == 0 { branch(at, tree, leaf(at)) } else { branch(at, leaf(at), tree) });
        let mut full: Vec<Tree> = (0..leaves).map(leaf).collect();
        while full.len() > 1 {
            let mut pairs = full.into_iter();
            let mut joined = Vec::new();
            while let Some(first) = pairs.next() {
                joined.push(match pairs.next() {
                    Some(second) => branch(joined.len() + leaves, first, second),
                    None => first,
                });
            }
            full = joined;
        }
        let trees = [chain, full.remove(0)];
        assert_eq!(trees.each_ref().map(Tree::leaves), [leaves; 2]);
        let rows: Vec<Vec<f32>> =
            (0..50).map(|row| (0..WIDTH).map(|at| ((row * 5 + at * 3) % 8) as f32 - 3.5).collect()).collect();
        let model = TabularModel::from_proto(&regressor(&trees, 1, WIDTH, "SUM")).unwrap();
        for count in [1, 3, 4, 16, 17, 50] {
            let got = model.run(&mut TabularState::default(), &[tensor(&rows[..count])], &[true]).unwrap();
            let wanted: Vec<f32> = rows[..count].iter().flat_map(|row| naive(&trees, row, 1, "SUM")).collect();
            assert_eq!(got[0].to_f32(), wanted, "{leaves} leaves, {count} rows");
        }
    }
}

#[test]
fn work_is_counted_by_rows_and_trees() {
    let leaf = |weight| Tree::Leaf(vec![weight]);
    let two =
        Tree::Branch { mode: 0, column: 0, threshold: 0.0, missing_holds: false, children: Box::new((leaf(1.0), leaf(2.0))) };
    let model = TabularModel::from_proto(&regressor(&[two.clone(), two], 1, WIDTH, "SUM")).unwrap();
    let (one, many) = (model.cost(1), model.cost(100));
    assert_eq!((one.comparisons, one.flops), (2, 2));
    assert_eq!((many.comparisons, many.flops), (200, 200));
    assert!(many.bytes > one.bytes);
}
