//! What operators make of shapes, in the forms of all operator sets.

use super::build::{attribute, floats, graph, input, ints, last, model, node, typed, weight};
use crate::messages::tensor_proto::DataType;
use crate::messages::{GraphProto, TensorProto, ValueInfoProto};
use crate::shaped::KnownValue;

type Attributes<'a> = &'a [(&'a str, &'a [i64])];

/// The shapes that one node makes of `x` and constants.
fn one(opset: i64, x: &str, weights: &[TensorProto], text: &str, attributes: Attributes<'_>) -> String {
    last(&model(opset, &[input(x)], weights, &[node(text, attributes)]))
}

#[test]
fn axes_are_an_attribute_and_then_an_input() {
    let axes = [ints("a", &[1], &[1])];
    assert_eq!(one(11, "x: n 1 7", &[], "y = Squeeze x", &[("axes", &[1])]), "[n, 7]");
    assert_eq!(one(13, "x: n 1 7", &axes, "y = Squeeze x a", &[]), "[n, 7]");
    assert_eq!(one(13, "x: 1 1 7", &[], "y = Squeeze x", &[]), "[7]");
    // which axes have length 1 is not known
    assert_eq!(one(13, "x: n 1 7", &[], "y = Squeeze x", &[]), "?");
    assert_eq!(one(11, "x: n 7", &[], "y = Unsqueeze x", &[("axes", &[0, -1])]), "[1, n, 7, 1]");
    assert_eq!(one(13, "x: n 7", &axes, "y = Unsqueeze x a", &[]), "[n, 1, 7]");
    assert_eq!(one(11, "x: n 5 7", &[], "y = ReduceSum x", &[("axes", &[1]), ("keepdims", &[0])]), "[n, 7]");
    assert_eq!(one(13, "x: n 5 7", &axes, "y = ReduceSum x a", &[]), "[n, 1, 7]");
    assert_eq!(one(13, "x: n 5 7", &[], "y = ReduceSum x", &[("keepdims", &[0])]), "[]");
    assert_eq!(one(13, "x: n 5 7", &[], "y = ReduceSum x", &[("noop_with_empty_axes", &[1])]), "[n, 5, 7]");
    assert_eq!(one(11, "x: n 9", &[], "y z = Split x", &[("axis", &[1]), ("split", &[2, 7])]), "[n, 2] [n, 7]");
    assert_eq!(one(13, "x: n 9", &[ints("s", &[2], &[4, 5])], "y z = Split x s", &[("axis", &[1])]), "[n, 4] [n, 5]");
    assert_eq!(one(18, "x: n 9", &[], "y z = Split x", &[("axis", &[1]), ("num_outputs", &[2])]), "[n, 5] [n, 4]");
    assert_eq!(one(9, "x: n 9", &[], "y = Pad x", &[("pads", &[0, 1, 0, 2])]), "[n, 12]");
    assert_eq!(one(11, "x: n 9", &[ints("p", &[4], &[0, 1, 0, 2])], "y = Pad x p", &[]), "[n, 12]");
    assert_eq!(
        one(7, "x: n 2 4 4", &[], "y = BatchNormalization x s s s s", &[]),
        "node y (BatchNormalization, ai.onnx 7): reads s, which nothing makes"
    );
    let four = [weight("s", &[2])];
    assert_eq!(one(7, "x: n 2 4 4", &four, "y = BatchNormalization x s s s s", &[]), "[n, 2, 4, 4]");
    assert_eq!(one(7, "x: n 4", &[], "y m = Dropout x", &[]), "[n, 4] [n, 4]");
    assert_eq!(one(6, "x: n 4", &[], "y = Clip x", &[]), "[n, 4]");
    assert_eq!(one(11, "x: n 4", &[weight("l", &[])], "y = Clip x l", &[]), "[n, 4]");
}

#[test]
fn slices_are_cut_where_their_axis_ends() {
    let slice = |x: &str, start: i64, end: i64, step: i64| {
        let (first, second) = ("starts", "ends");
        let given = [ints("a", &[1], &[1]), ints(first, &[1], &[start]), ints(second, &[1], &[end]), ints("s", &[1], &[step])];
        one(13, x, &given, "y = Slice x starts ends a s", &[])
    };
    assert_eq!(one(9, "x: n 9", &[], "y = Slice x", &[("starts", &[1]), ("ends", &[5]), ("axes", &[1])]), "[n, 4]");
    assert_eq!(slice("x: n 9", 2, i64::MAX, 2), "[n, 4]");
    assert_eq!(slice("x: n 9", -1, i64::MIN, -1), "[n, 9]");
    assert_eq!(slice("x: n 9", 7, 3, 1), "[n, 0]");
    assert_eq!(slice("x: n s", 0, i64::MAX, 1), "[n, s]");
    assert_eq!(slice("x: n s", 1, i64::MAX, 1), "[n, -1 + s]");
    assert_eq!(slice("x: n s", 0, -1, 1), "[n, -1 + s]");
    assert_eq!(slice("x: n s", -1, i64::MAX, 1), "[n, 1]");
    assert_eq!(slice("x: n s", -1, i64::MIN, -1), "[n, s]");
    assert!(slice("x: n s", -3, 2, 1).starts_with("[n, ?"));
    assert_eq!(slice("x: n 9", 0, 1, 0), "node y (Slice, ai.onnx 13): has a step of 0");
}

#[test]
fn windows_move_as_they_are_told() {
    let conv = |x: &str, attributes: Attributes<'_>| one(13, x, &[weight("w", &[8, 3, 3, 3])], "y = Conv x w", attributes);
    assert_eq!(conv("x: n 3 h w", &[("pads", &[1, 1, 1, 1])]), "[n, 8, h, w]");
    assert_eq!(conv("x: n 3 9 9", &[("strides", &[2, 2])]), "[n, 8, 4, 4]");
    assert_eq!(conv("x: n 3 9 9", &[("dilations", &[2, 4]), ("pads", &[0, 0, 0, 0])]), "[n, 8, 5, 1]");
    assert_eq!(conv("x: n 3 h 9", &[("strides", &[2, 2]), ("pads", &[1, 1, 1, 1])]), "[n, 8, 1 + (-1 + h) / 2, 5]");
    let up = [weight("w", &[3, 8, 2, 2])];
    assert_eq!(one(11, "x: n 3 h 5", &up, "y = ConvTranspose x w", &[("strides", &[2, 2])]), "[n, 8, 2 * h, 10]");
    let pool = |x: &str, ceil: i64| {
        one(11, x, &[], "y = MaxPool x", &[("kernel_shape", &[2, 2]), ("strides", &[2, 2]), ("ceil_mode", &[ceil])])
    };
    assert_eq!((pool("x: n 3 7 8", 0), pool("x: n 3 7 8", 1)), ("[n, 3, 3, 4]".to_owned(), "[n, 3, 4, 4]".to_owned()));
    assert_eq!(one(11, "x: n 3 h w", &[], "y = GlobalAveragePool x", &[]), "[n, 3, 1, 1]");
    let scales = [floats("s", &[4], &[1.0, 1.0, 2.0, 1.5]), floats("r", &[0], &[])];
    assert_eq!(one(9, "x: n 3 h 5", &scales, "y = Upsample x s", &[]), "[n, 3, 2 * h, 7]");
    assert_eq!(one(10, "x: n 3 h 5", &scales, "y = Resize x s", &[]), "[n, 3, 2 * h, 7]");
    assert_eq!(one(13, "x: n 3 h 5", &scales, "y = Resize x r s", &[]), "[n, 3, 2 * h, 7]");
    let sizes = [ints("z", &[4], &[1, 3, 8, 9]), floats("r", &[0], &[])];
    assert_eq!(one(11, "x: n 3 h 5", &sizes, "y = Resize x r r z", &[]), "[1, 3, 8, 9]");
}

#[test]
fn reshapes_divide_what_is_left() {
    let reshape = |x: &str, to: &[i64]| one(13, x, &[ints("s", &[to.len() as i64], to)], "y = Reshape x s", &[]);
    assert_eq!(reshape("x: n s 768", &[0, 0, 12, 64]), "[n, s, 12, 64]");
    assert_eq!(reshape("x: n s 768", &[0, -1, 12, 64]), "[n, s, 12, 64]");
    assert_eq!(reshape("x: n s 768", &[-1, 768]), "[n * s, 768]");
    assert_eq!(reshape("x: n 4 768", &[-1]), "[3072 * n]");
    assert_eq!(one(5, "x: n 4", &[], "y = Flatten x", &[("axis", &[2])]), "[4 * n, 1]");
    assert_eq!(one(13, "x: n 65536 65536", &[], "y = Flatten x", &[]).split(' ').next(), Some("[n,"));
}

#[test]
fn shapes_that_are_computed_come_back_as_names() {
    // the head of an attention: Reshape to [batch, sequence, 12, 64] by way of Shape, Gather, Unsqueeze and Concat
    let weights = [
        ints("0", &[], &[0]),
        ints("1", &[], &[1]),
        ints("a", &[1], &[0]),
        ints("heads", &[1], &[12]),
        ints("rest", &[1], &[-1]),
    ];
    let nodes = [
        node("shape = Shape x", &[]),
        node("b = Gather shape 0", &[]),
        node("s = Gather shape 1", &[]),
        node("bv = Unsqueeze b a", &[]),
        node("sv = Unsqueeze s a", &[]),
        node("to = Concat bv sv heads rest", &[("axis", &[0])]),
        node("y = Reshape x to", &[]),
    ];
    let made = model(17, &[input("x: batch sequence 768")], &weights, &nodes);
    assert_eq!(last(&made), "[batch, sequence, 12, 64]");
    let graph = graph(&made);
    let to = graph.tensors.iter().find(|fact| fact.name == "to").unwrap();
    assert!(matches!(&to.value, KnownValue::Lengths(lengths) if lengths.len() == 4), "{to:?}");
    // of fixed lengths the whole is a constant, and only the last node is left
    let fixed = super::build::graph(&model(17, &[input("x: 2 5 768")], &weights, &nodes));
    assert_eq!(fixed.nodes.iter().map(|node| node.operator.as_str()).collect::<Vec<_>>(), ["Reshape"]);
}

#[test]
fn a_table_that_is_cut_is_as_long_as_what_it_is_added_to() {
    let weights = [weight("table", &[1, 512, 8]), ints("1", &[1], &[1]), ints("0", &[1], &[0])];
    let nodes = [
        node("shape = Shape x", &[("start", &[1]), ("end", &[2])]),
        node("cut = Slice table 0 shape 1", &[]),
        node("y = Add x cut", &[]),
    ];
    assert_eq!(last(&model(17, &[input("x: batch sequence 8")], &weights, &nodes)), "[batch, sequence, 8]");
}

#[test]
fn names_of_axes_may_compute() {
    let inputs = [input("x: batch past+1 4"), input("z: batch past+1 4")];
    assert_eq!(last(&model(17, &inputs, &[], &[node("y = Concat x z", &[("axis", &[1])])])), "[batch, 2 + past + past, 4]");
    assert_eq!(super::super::lengths::named("a b").to_string(), "a b");
    assert_eq!(super::super::lengths::named("2*(n-1)").to_string(), "2 * (-1 + n)");
}

#[test]
fn products_broadcast_what_is_around_them() {
    let two = |a: &str, b: &str| last(&model(13, &[input(a), input(b)], &[], &[node("y = MatMul a b", &[])]));
    assert_eq!(two("a: n 12 s 64", "b: n 12 64 t"), "[n, 12, s, t]");
    assert_eq!((two("a: s 64", "b: 64"), two("a: 64", "b: n 64 t")), ("[s]".to_owned(), "[n, t]".to_owned()));
    let gemm = [weight("w", &[10, 4])];
    assert_eq!(one(13, "x: n 4", &gemm, "y = Gemm x w", &[("transB", &[1])]), "[n, 10]");
    let lstm = [weight("w", &[2, 32, 5]), weight("r", &[2, 32, 8])];
    let mut bidirectional = node("y h c = LSTM x w r", &[("hidden_size", &[8])]);
    let word = crate::messages::AttributeProto { s: b"bidirectional".to_vec(), ..attribute("direction", &[]) };
    bidirectional.attribute.push(word);
    let made = last(&model(14, &[input("x: t n 5")], &lstm, &[bidirectional]));
    assert_eq!(made, "[t, 2, n, 8] [2, n, 8] [2, n, 8]");
}

#[test]
fn a_branch_that_is_certain_takes_its_nodes_place() {
    let branch = |text: &str| {
        let output = vec![ValueInfoProto { name: "z".into(), ..Default::default() }];
        GraphProto { node: vec![node(text, &[])], output, ..Default::default() }
    };
    let with = |condition: &[TensorProto], inputs: &[ValueInfoProto], no: &str| {
        let of = |name: &str, text: &str| crate::messages::AttributeProto { g: Some(branch(text)), ..attribute(name, &[]) };
        let mut choice = node("y = If c", &[]);
        choice.attribute = vec![of("then_branch", "z = Relu x"), of("else_branch", no)];
        let made = model(17, inputs, condition, &[choice]);
        (last(&made), graph(&made).nodes.iter().map(|node| node.operator.clone()).collect::<Vec<_>>().join(" "))
    };
    let holds = TensorProto { name: "c".into(), data_type: DataType::Bool as i32, int32_data: vec![1], ..Default::default() };
    let x = input("x: n 4");
    assert_eq!(with(&[holds], std::slice::from_ref(&x), "z = Shape x"), ("[n, 4]".to_owned(), "Relu Identity".to_owned()));
    let open = [x, typed("c:", DataType::Bool)];
    assert_eq!(with(&[], &open, "z = Exp x"), ("[n, 4]".to_owned(), "If".to_owned()));
    assert_eq!(with(&[], &open, "z = Shape x").0, "?");
    // a branch that may never be taken may be wrong
    assert_eq!(with(&[], &open, "z = MatMul x").0, "?");
}
