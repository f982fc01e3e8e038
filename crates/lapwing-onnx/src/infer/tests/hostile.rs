//! Files that are made to break what reads them.

use proptest::prelude::*;

use super::build::{input, ints, model, node};
use crate::OnnxFile;
use crate::messages::{NodeProto, TensorProto};
use crate::ports::GraphPorts;
use crate::shaped::{KnownValue, ShapedGraph};

const OPERATORS: [&str; 40] = [
    "Add",
    "Mul",
    "Div",
    "Reshape",
    "Slice",
    "Concat",
    "Gather",
    "Expand",
    "Tile",
    "Shape",
    "Size",
    "Squeeze",
    "Unsqueeze",
    "Transpose",
    "Split",
    "Range",
    "ConstantOfShape",
    "Where",
    "Equal",
    "Cast",
    "Pad",
    "Resize",
    "Conv",
    "ConvTranspose",
    "MaxPool",
    "MatMul",
    "Gemm",
    "ReduceSum",
    "ReduceProd",
    "CumSum",
    "Trilu",
    "OneHot",
    "TopK",
    "GatherND",
    "LSTM",
    "Flatten",
    "DepthToSpace",
    "Max",
    "DFT",
    "STFT",
];
const NAMES: [&str; 14] = [
    "axis",
    "axes",
    "perm",
    "pads",
    "strides",
    "dilations",
    "kernel_shape",
    "starts",
    "ends",
    "group",
    "to",
    "blocksize",
    "split",
    "hidden_size",
];
const NUMBERS: [i64; 14] = [0, 1, -1, 2, 3, 7, -2, 1 << 16, 1 << 31, -(1 << 31), 1 << 40, i64::MAX, i64::MIN, 65_535];

fn number() -> impl Strategy<Value = i64> {
    proptest::sample::select(&NUMBERS[..])
}

fn constant(name: &'static str) -> impl Strategy<Value = TensorProto> {
    proptest::collection::vec(number(), 0..5).prop_map(move |numbers| match &numbers[..] {
        [one] => ints(name, &[], &[*one]),
        many => ints(name, &[many.len() as i64], many),
    })
}

/// A node that reads what is made before it.
fn any_node(at: usize) -> impl Strategy<Value = NodeProto> {
    let made: Vec<String> =
        ["x", "z", "a", "b", "c"].map(str::to_owned).into_iter().chain((0..at).map(|at| format!("n{at}"))).collect();
    let inputs = proptest::collection::vec(proptest::sample::select(made), 0..5);
    let attributes =
        proptest::collection::vec((proptest::sample::select(&NAMES[..]), proptest::collection::vec(number(), 0..5)), 0..4);
    (proptest::sample::select(&OPERATORS[..]), inputs, attributes).prop_map(move |(operator, inputs, attributes)| {
        let given: Vec<(&str, &[i64])> = attributes.iter().map(|(name, ints)| (*name, &ints[..])).collect();
        node(&format!("n{at} = {operator} {}", inputs.join(" ")), &given)
    })
}

fn nodes() -> impl Strategy<Value = Vec<NodeProto>> {
    (1_usize..12).prop_flat_map(|count| (0..count).map(any_node).collect::<Vec<_>>())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn no_graph_makes_it_panic_or_grow(
        nodes in nodes(),
        a in constant("a"),
        b in constant("b"),
        c in constant("c"),
    ) {
        let made = model(17, &[input("x: batch sequence 8"), input("z: 2 3 4 5")], &[a, b, c], &nodes);
        match ShapedGraph::of(&made, None) {
            Ok(graph) => {
                let constants = graph.tensors.iter().filter_map(|fact| match &fact.value {
                    KnownValue::Constant(constant) => Some(constant.data.len()),
                    _ => None,
                });
                prop_assert!(constants.sum::<usize>() <= 8 << 25);
                drop(GraphPorts::of(&graph));
                if let Some(shapes) = graph.input_shapes(3, 1 << 20) {
                    drop(graph.work(&shapes));
                }
            }
            // a panic that was caught is a fault too
            Err(error) => prop_assert!(!error.to_string().contains("cannot be computed"), "{error}"),
        }
    }
}

#[test]
fn sums_of_many_names_stay_small() {
    let inputs: Vec<_> = (0..300).map(|at| input(&format!("i{at}: n{at} 4"))).collect();
    let names: Vec<String> = (0..300).map(|at| format!("i{at}")).collect();
    let made = model(17, &inputs, &[], &[node(&format!("y = Concat {}", names.join(" ")), &[("axis", &[0])])]);
    let shape = super::build::last(&made);
    assert!(shape.len() < 200, "{shape}");
}

#[test]
fn any_byte_may_be_wrong_and_any_end_missing() {
    let whole = include_bytes!("../../../../../tests/fixtures/digits/digits.onnx");
    let check = |bytes: Vec<u8>| {
        let Ok(file) = OnnxFile::parse(bytes.into()) else { return };
        if let Err(error) = file.graph() {
            assert!(!error.to_string().contains("cannot be computed"), "{error}");
        }
    };
    for at in (0..whole.len()).step_by(797) {
        let mut bytes = whole.to_vec();
        bytes[at] ^= 0x55;
        check(bytes);
        check(whole[..at].to_vec());
    }
}
