//! Files and calls that are broken or too large: each is refused by name, and none hangs.

use lapwing_onnx::messages::tensor_proto::DataType;
use lapwing_onnx::messages::{ModelProto, NodeProto};
use lapwing_onnx::tensor::Tensor;

use crate::{TabularModel, TabularState};
use lapwing_testing::onnx::{classical, f32s, floats, general, i64s, int, ints, model, port, strings, word};

fn refused(proto: &ModelProto) -> String {
    TabularModel::from_proto(proto).map_or_else(|error| error.to_string(), |_| "taken".to_owned())
}

fn one(node: NodeProto) -> ModelProto {
    let outputs: Vec<String> = node.output.clone();
    let outputs: Vec<&str> = outputs.iter().map(String::as_str).collect();
    model(vec![port("x", DataType::Float, &[0, 2])], vec![node], &outputs, vec![])
}

/// A tree of three nodes; 1 and 2 are leaves unless a change says otherwise.
fn tree(change: impl FnOnce(&mut Vec<lapwing_onnx::messages::AttributeProto>)) -> ModelProto {
    let mut attributes = vec![
        ints("nodes_treeids", &[0, 0, 0]),
        ints("nodes_nodeids", &[0, 1, 2]),
        ints("nodes_featureids", &[1, 0, 0]),
        floats("nodes_values", &[0.5, 0.0, 0.0]),
        strings("nodes_modes", &["BRANCH_LEQ", "LEAF", "LEAF"]),
        ints("nodes_truenodeids", &[1, 0, 0]),
        ints("nodes_falsenodeids", &[2, 0, 0]),
        ints("target_treeids", &[0, 0]),
        ints("target_nodeids", &[1, 2]),
        ints("target_ids", &[0, 0]),
        floats("target_weights", &[1.0, 2.0]),
        int("n_targets", 1),
    ];
    change(&mut attributes);
    one(classical("TreeEnsembleRegressor", &["x"], &["y"], attributes))
}

fn set(attributes: &mut Vec<lapwing_onnx::messages::AttributeProto>, new: lapwing_onnx::messages::AttributeProto) {
    attributes.retain(|attribute| attribute.name != new.name);
    attributes.push(new);
}

#[test]
fn broken_trees_are_named() {
    let head = "y (TreeEnsembleRegressor, ai.onnx.ml 3): ";
    let fault = |new| refused(&tree(|attributes| set(attributes, new)));
    assert_eq!(refused(&tree(|_| {})), "taken");
    let cycle = tree(|attributes| {
        set(attributes, strings("nodes_modes", &["BRANCH_LEQ", "BRANCH_LEQ", "LEAF"]));
        set(attributes, ints("nodes_truenodeids", &[1, 0, 0]));
    });
    assert!(refused(&cycle).starts_with(&format!("{head}its trees have a cycle, or share so many parts")), "{}", refused(&cycle));
    let cases = [
        (ints("nodes_truenodeids", &[7, 0, 0]), "node 0 of tree 0 goes to node 7, which is not there"),
        (ints("nodes_truenodeids", &[-1, 0, 0]), "node 0 of tree 0 goes to node -1, which is not there"),
        (ints("nodes_falsenodeids", &[2, 0]), "nodes_nodeids has 3 elements, nodes_falsenodeids has 2"),
        (ints("nodes_nodeids", &[0, 1, 1]), "tree 0 has two nodes 1"),
        (ints("nodes_treeids", &[0, 1, 0]), "the nodes of tree 0 do not stand together"),
        (ints("nodes_featureids", &[-2, 0, 0]), "node 0 of tree 0 tests column -2"),
        (ints("nodes_featureids", &[2, 0, 0]), "tests column 2 of rows that have 2"),
        (strings("nodes_modes", &["BRANCH_UP", "LEAF", "LEAF"]), "nodes_modes has \"BRANCH_UP\", which is unknown"),
        (ints("target_ids", &[0, 1]), "target_ids[1] is 1, outside of 0..1"),
        (ints("target_nodeids", &[1, 1]), "leaf 2 of tree 0 has no weight"),
        (ints("target_nodeids", &[1, 9]), "a weight is for node 9 of tree 0, which is not there"),
        (int("n_targets", 0), "has 0 targets or classes, outside of 1..=65536"),
        (floats("base_values", &[1.0, 2.0]), "base_values has 2 elements, expected one of [0, 1]"),
        (word("post_transform", "SQUARE"), "post_transform \"SQUARE\" is unknown"),
        (word("aggregate_function", "MEDIAN"), "aggregate_function \"MEDIAN\" is unknown"),
        (int("nodes_values", 3), "nodes_values has attribute type 2, expected 6 (Floats)"),
    ];
    for (new, wanted) in cases {
        let got = fault(new);
        assert!(got == format!("{head}{wanted}"), "{got}, not {wanted}");
    }
}

#[test]
fn shared_parts_are_repeated_within_a_bound() {
    // each node leads to the next by both ways with different tests: 2^40 paths
    let nodes = 41_i64;
    let ids: Vec<i64> = (0..nodes).collect();
    let next: Vec<i64> = (1..=nodes).map(|id| id.min(nodes - 1)).collect();
    let after: Vec<i64> = (2..=nodes + 1).map(|id| id.min(nodes - 1)).collect();
    let modes: Vec<&str> = ids.iter().map(|id| if *id == nodes - 1 { "LEAF" } else { "BRANCH_LEQ" }).collect();
    let proto = tree(|attributes| {
        set(attributes, ints("nodes_treeids", &vec![0; nodes as usize]));
        set(attributes, ints("nodes_nodeids", &ids));
        set(attributes, ints("nodes_featureids", &vec![0; nodes as usize]));
        set(attributes, floats("nodes_values", &vec![0.5; nodes as usize]));
        set(attributes, strings("nodes_modes", &modes));
        set(attributes, ints("nodes_truenodeids", &next));
        set(attributes, ints("nodes_falsenodeids", &after));
        set(attributes, ints("target_treeids", &[0]));
        set(attributes, ints("target_nodeids", &[nodes - 1]));
        set(attributes, ints("target_ids", &[0]));
        set(attributes, floats("target_weights", &[1.0]));
    });
    assert!(refused(&proto).contains("more than twice the nodes"), "{}", refused(&proto));
}

#[test]
fn what_is_unknown_is_named_with_its_version() {
    let unknown = one(NodeProto { name: "n".into(), ..classical("DictVectorizer", &["x"], &["y"], vec![]) });
    assert_eq!(refused(&unknown), "n (DictVectorizer, ai.onnx.ml 3): is no operator of tabular models");
    let general = one(general("Conv", &["x"], &["y"], vec![]));
    assert_eq!(refused(&general), "y (Conv, ai.onnx 17): is no operator of tabular models");
    let missing = one(classical("Normalizer", &["z"], &["y"], vec![]));
    assert_eq!(refused(&missing), "y (Normalizer, ai.onnx.ml 3): reads z, which nothing makes");
}

#[test]
fn graphs_are_taken_in_any_order_and_without_cycles() {
    let step = |from: &str, to: &str| classical("Normalizer", &[from], &[to], vec![]);
    let x = || vec![port("x", DataType::Float, &[0, 2])];
    assert_eq!(refused(&model(x(), vec![step("a", "b"), step("x", "a")], &["b"], vec![])), "taken");
    let cycle = model(x(), vec![step("b", "a"), step("a", "b")], &["b"], vec![]);
    assert_eq!(refused(&cycle), "a (Normalizer, ai.onnx.ml 3): is in a cycle, or behind one");
    let twice = model(x(), vec![step("x", "a"), step("x", "a")], &["a"], vec![]);
    assert_eq!(refused(&twice), "a (graph): is made by two nodes");
    assert_eq!(refused(&model(x(), vec![step("x", "a")], &["q"], vec![])), "q (graph): is an output that nothing makes");
    assert_eq!(refused(&model(x(), vec![step("x", "a")], &[], vec![])), "graph (graph): the model has no outputs");
    assert_eq!(refused(&ModelProto::default()), "graph (graph): the model has none");
    let many = model(x(), vec![step("x", "a"); 50_001], &["a"], vec![]);
    assert_eq!(refused(&many), "graph (graph): has 50001 nodes; the bound is 50000");
}

#[test]
fn sizes_that_a_file_asks_for_are_bounded() {
    let x = || vec![port("x", DataType::Float, &[0, 2])];
    let filled = |shape: &[i64]| {
        let nodes = vec![general("ConstantOfShape", &["s"], &["y"], vec![])];
        refused(&model(x(), nodes, &["y"], vec![i64s("s", &[shape.len() as i64], shape)]))
    };
    assert!(filled(&[1 << 40]).contains("more than 16777216 elements, which is the bound"), "{}", filled(&[1 << 40]));
    assert!(filled(&[-1]).contains("more than 16777216 elements"), "{}", filled(&[-1]));
    assert!(filled(&[1 << 40, 0]).contains("more than 16777216 elements"), "{}", filled(&[1 << 40, 0]));
    assert!(filled(&[1; 9]).contains("a value has 9 axes; the bound is 8"), "{}", filled(&[1; 9]));
    // many values that are each within the bound
    let names: Vec<String> = (0..8).map(|at| format!("v{at}")).collect();
    let nodes = names.iter().map(|name| general("ConstantOfShape", &["s"], &[name], vec![])).collect();
    let all = model(x(), nodes, &["v0"], vec![i64s("s", &[1], &[1 << 24])]);
    assert!(refused(&all).contains("a run has more than 67108864 elements in all its values"), "{}", refused(&all));
    let large = model(
        x(),
        vec![general("MatMul", &["a", "b"], &["y"], vec![])],
        &["y"],
        vec![f32s("a", &[4096, 4096], &vec![0.0; 1 << 24]), f32s("b", &[4096, 4096], &vec![0.0; 1 << 24])],
    );
    assert!(refused(&large).contains("which is the bound"), "{}", refused(&large));
    let short = model(x(), vec![general("Identity", &["w"], &["y"], vec![])], &["y"], vec![f32s("w", &[3], &[1.0])]);
    assert_eq!(refused(&short), "w (graph): the tensor w: 1 elements do not fill the shape [3]");
}

#[test]
fn calls_that_do_not_fit_are_named() {
    let model = TabularModel::from_proto(&tree(|_| {})).unwrap();
    let mut state = TabularState::default();
    let mut fault = |inputs: &[Tensor]| model.run(&mut state, inputs, &[true]).unwrap_err().to_string();
    assert_eq!(fault(&[]), "inputs: expected 1, got 0");
    let wide = Tensor::f32("x", &[1, 3], &[0.0; 3]);
    assert_eq!(fault(&[wide]), "x: expected shape [None, Some(2)] (None is open), got [1, 3]");
    assert_eq!(fault(&[Tensor::i64("x", &[1, 2], &[0; 2])]), "x: expected x of type FP32, got INT64");
    let short = Tensor { data: vec![0; 4].into(), ..Tensor::f32("x", &[1, 2], &[]) };
    assert_eq!(fault(&[short]), "x: 1 elements do not fill the shape [1, 2]");
    let odd = Tensor { data: vec![0; 7].into(), ..Tensor::f32("x", &[1, 2], &[]) };
    assert_eq!(fault(&[odd]), "x: 7 bytes are no whole number of elements");
    let none = model.run(&mut state, &[Tensor::f32("x", &[0, 2], &[])], &[true]).unwrap();
    assert_eq!((none[0].shape.as_slice(), none[0].data.len()), (&[0, 1][..], 0));
}

#[test]
fn a_text_that_does_not_fit_is_named() {
    let encoder = classical("LabelEncoder", &["x"], &["y"], vec![strings("keys_strings", &["a"]), ints("values_int64s", &[4])]);
    let proto = model(vec![port("x", DataType::String, &[0, 1])], vec![encoder], &["y"], vec![]);
    let model = TabularModel::from_proto(&proto).unwrap();
    let text = |data: &'static [u8]| Tensor {
        name: "x".into(),
        datatype: lapwing_onnx::tensor::Datatype::Bytes,
        shape: vec![2, 1],
        data: data.into(),
    };
    let got = model.run(&mut TabularState::default(), &[text(b"\x01\0\0\0a\x01\0\0\0b")], &[true]).unwrap();
    assert_eq!(got[0], Tensor::i64("y", &[2, 1], &[4, -1]));
    let error = model.run(&mut TabularState::default(), &[text(b"\x01\0\0\0a\xff\0\0\0b")], &[true]).unwrap_err();
    assert_eq!(error.to_string(), "x: element 1 has a length of 255 bytes, 1 are left");
}
