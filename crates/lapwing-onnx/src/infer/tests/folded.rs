//! What is evaluated.

use super::build::{floats, graph, input, ints, model, node};
use crate::messages::tensor_proto::DataType;
use crate::messages::{AttributeProto, NodeProto, TensorProto};

/// The numbers that nodes make of constants; none if a node is left.
fn numbers(weights: &[TensorProto], nodes: &[NodeProto]) -> Option<Vec<f64>> {
    let made = graph(&model(17, &[input("x: n 4")], weights, nodes));
    let constant = made.constant(made.outputs[0])?;
    assert_eq!(made.nodes.len(), 0, "{:?}", made.nodes);
    Some(constant.floats().unwrap().collect())
}

fn one(weights: &[TensorProto], text: &str, attributes: &[(&str, &[i64])]) -> Option<Vec<f64>> {
    numbers(weights, std::slice::from_ref(&node(text, attributes)))
}

#[test]
fn elements_are_moved() {
    let w = floats("w", &[2, 3], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    let number = |name: &str, numbers: &[i64]| ints(name, &[numbers.len() as i64], numbers);
    let with = |more: &[TensorProto]| [std::slice::from_ref(&w), more].concat();
    assert_eq!(one(&with(&[]), "y = Transpose w", &[("perm", &[1, 0])]).unwrap(), [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
    assert_eq!(one(&with(&[number("i", &[-1, 0])]), "y = Gather w i", &[("axis", &[1])]).unwrap(), [2.0, 0.0, 5.0, 3.0]);
    let ends = [number("s", &[-1]), number("e", &[i64::MIN]), number("a", &[1]), number("t", &[-2])];
    assert_eq!(one(&with(&ends), "y = Slice w s e a t", &[]).unwrap(), [2.0, 0.0, 5.0, 3.0]);
    assert_eq!(one(&with(&[]), "y = Concat w w", &[("axis", &[1])]).unwrap()[..5], [0.0, 1.0, 2.0, 0.0, 1.0]);
    assert_eq!(one(&with(&[number("s", &[1, 2])]), "y z = Split w s", &[("axis", &[1])]).unwrap(), [0.0, 3.0]);
    assert_eq!(one(&with(&[number("r", &[1, 2])]), "y = Tile w r", &[]).unwrap()[..7], [0.0, 1.0, 2.0, 0.0, 1.0, 2.0, 3.0]);
    assert_eq!(one(&with(&[]), "y = Trilu w", &[("upper", &[0])]).unwrap(), [0.0, 0.0, 0.0, 3.0, 4.0, 0.0]);
    let row = [floats("w", &[1, 2], &[1.0, 2.0]), number("s", &[2, 2])];
    assert_eq!(one(&row, "y = Expand w s", &[]).unwrap(), [1.0, 2.0, 1.0, 2.0]);
}

#[test]
fn numbers_are_computed_in_their_type() {
    let number = |name: &str, numbers: &[i64]| ints(name, &[numbers.len() as i64], numbers);
    let two = [number("a", &[7, -7]), number("b", &[2, 2])];
    assert_eq!(one(&two, "y = Div a b", &[]).unwrap(), [3.0, -3.0]);
    assert_eq!(one(&two, "y = Less a b", &[]).unwrap(), [0.0, 1.0]);
    assert_eq!(one(&two, "y = Max a b", &[]).unwrap(), [7.0, 2.0]);
    // a division by zero is left to whoever runs it
    assert_eq!(one(&[number("a", &[7]), number("b", &[0])], "y = Div a b", &[]), None);
    let single = [floats("a", &[2], &[0.1, 16_777_216.0]), floats("b", &[], &[1.0])];
    assert_eq!(one(&single, "y = Add a b", &[]).unwrap(), [f64::from(0.1_f32 + 1.0), 16_777_216.0]);
    assert_eq!(one(&single, "y = Cast a", &[("to", &[DataType::Int64 as i64])]).unwrap(), [0.0, 16_777_216.0]);
    let ends = [ints("a", &[], &[2]), ints("b", &[], &[11]), ints("c", &[], &[3])];
    assert_eq!(one(&ends, "y = Range a b c", &[]).unwrap(), [2.0, 5.0, 8.0]);
    assert_eq!(one(&[number("a", &[1, 2, 3]), ints("i", &[], &[0])], "y = CumSum a i", &[]).unwrap(), [1.0, 3.0, 6.0]);
    let sum = [floats("a", &[2, 2], &[1.0, 2.0, 3.0, 4.0])];
    assert_eq!(one(&sum, "y = ReduceMean a", &[("axes", &[0]), ("keepdims", &[0])]).unwrap(), [2.0, 3.0]);
    let fill = AttributeProto { t: Some(floats("v", &[1], &[2.5])), ..super::build::attribute("value", &[]) };
    let mut filled = node("y = ConstantOfShape s", &[]);
    filled.attribute = vec![fill];
    assert_eq!(numbers(&[number("s", &[3])], &[filled]).unwrap(), [2.5; 3]);
}

#[test]
fn weights_of_8_bits_are_dequantized() {
    let weight = TensorProto {
        name: "w".into(),
        dims: vec![2, 2],
        data_type: DataType::Int8 as i32,
        raw_data: vec![1, 0xff, 10, 0x80].into(),
        ..Default::default()
    };
    let zero = TensorProto {
        name: "z".into(),
        dims: vec![2],
        data_type: DataType::Int8 as i32,
        int32_data: vec![0, 2],
        ..Default::default()
    };
    let given = [weight, zero, floats("s", &[2], &[0.5, 2.0])];
    assert_eq!(one(&given, "y = DequantizeLinear w s z", &[("axis", &[0])]).unwrap(), [0.5, -0.5, 16.0, -260.0]);
    assert_eq!(one(&given, "y = DequantizeLinear w s z", &[("axis", &[1])]).unwrap(), [0.5, -6.0, 5.0, -260.0]);
}

#[test]
fn chance_is_not_evaluated() {
    let shape = [ints("s", &[2], &[1, 2])];
    assert_eq!(one(&shape, "y = RandomNormalLike s", &[]), None);
    // nor what a small file would make large: 2^27 elements
    let large = [ints("s", &[2], &[1 << 13, 1 << 14])];
    assert_eq!(one(&large, "y = ConstantOfShape s", &[]), None);
}
