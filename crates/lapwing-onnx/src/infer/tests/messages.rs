//! Graphs that no call can run.

use super::build::{input, ints, last, model, node, weight};
use crate::messages::TensorProto;

fn one(x: &str, weights: &[TensorProto], text: &str, attributes: &[(&str, &[i64])]) -> String {
    last(&model(17, &[input(x)], weights, &[node(text, attributes)]))
}

#[test]
fn the_node_is_named_with_its_reason() {
    let w = [weight("w", &[5, 6])];
    for (found, message) in [
        (
            one("x: n 4", &w, "y = MatMul x w", &[]),
            "node y (MatMul, ai.onnx 17): the shapes [n, 4] and [5, 6] cannot be multiplied",
        ),
        (
            one("x: n 4", &w, "y = Gemm x w", &[]),
            "node y (Gemm, ai.onnx 17): the shapes [n, 4] and [5, 6] cannot be multiplied (transA 0, transB 0)",
        ),
        (one("x: n 4", &w, "y = Add x w", &[]), "node y (Add, ai.onnx 17): the shapes [n, 4] and [5, 6] cannot be broadcast"),
        (
            one("x: n 4", &w, "y = Concat x w", &[("axis", &[0])]),
            "node y (Concat, ai.onnx 17): the shapes [n, 4] and [5, 6] cannot be joined along axis 0",
        ),
        (
            one("x: 3 4", &[ints("s", &[1], &[5])], "y = Reshape x s", &[]),
            "node y (Reshape, ai.onnx 17): the shape [3, 4] cannot become [5]",
        ),
        (
            one("x: 3 4", &[], "y = Transpose x", &[("perm", &[0, 2])]),
            "node y (Transpose, ai.onnx 17): perm: 2 in [0, 2] is no axis, or there twice",
        ),
        (
            one("x: 3 4", &[ints("a", &[1], &[1])], "y = Squeeze x a", &[]),
            "node y (Squeeze, ai.onnx 17): axis 1 of the shape [3, 4] does not have length 1",
        ),
        (
            one("x: n 4 9 9", &[weight("w", &[8, 3, 3, 3])], "y = Conv x w", &[]),
            "node y (Conv, ai.onnx 17): convolves 4 channels with [8, 3, 3, 3] in 1 groups",
        ),
        (
            one("x: n 3 2 9", &[weight("w", &[8, 3, 3, 3])], "y = Conv x w", &[]),
            "node y (Conv, ai.onnx 17): its window of 3 is larger than the padded length 2",
        ),
        (one("x: n 4", &[], "y = MatMul x", &[]), "node y (MatMul, ai.onnx 17): input 1 is missing"),
        (
            one("x: n 4", &[ints("i", &[1], &[9])], "y = Split x i", &[("axis", &[1])]),
            "node y (Split, ai.onnx 17): splits axis 1 of the shape [n, 4] in [9]",
        ),
        (
            one("x: n 4", &w, "y = com.microsoft.FusedMatMul x w", &[]),
            "node y (FusedMatMul, com.microsoft 1): the shapes [n, 4] and [5, 6] cannot be multiplied",
        ),
        (
            one("x: n 4", &[ints("i", &[1], &[7]), weight("t", &[5, 6])], "y = Gather t i", &[]),
            "node y (Gather, ai.onnx 17): takes element 7 of an axis of 5",
        ),
        (
            one("x: n 4", &[ints("s", &[2], &[1 << 40, 1])], "y = ConstantOfShape s", &[]),
            "node y (ConstantOfShape, ai.onnx 17): its shape [1099511627776, 1] has more than 4294967296 elements",
        ),
        (one("x: n 4", &[], "y = Softmax w", &[]), "node y (Softmax, ai.onnx 17): reads w, which nothing makes"),
        (
            one("x: n 4", &[], "y = TopK x y", &[]),
            "node y (TopK, ai.onnx 17): reads y, which is made by it or behind it: the graph has a cycle or is out of order",
        ),
        (one("x: n 4", &[], "y = example.Unheard x", &[]), "?"),
        (one("x: n 4", &[], "y = Unheard x", &[]), "?"),
    ] {
        assert_eq!(found, message);
    }
}

#[test]
fn what_two_nodes_make_together_is_bounded_too() {
    // a product of lengths that are computed; each is small
    let weights = [ints("s", &[2], &[65_536, 65_537]), ints("k", &[2], &[65_536, 1])];
    let nodes = [node("a = Mul s k", &[]), node("y = ConstantOfShape a", &[])];
    let found = last(&model(17, &[], &weights, &nodes));
    assert!(found.starts_with("node y (ConstantOfShape, ai.onnx 17): ") || found.starts_with("[?"), "{found}");
}
