//! Broken files of several kinds.

use std::path::Path;

use crate::messages::tensor_proto::DataType;
use crate::messages::{AttributeProto, GraphProto, ModelProto, NodeProto, StringStringEntryProto, TensorProto, ValueInfoProto};

use crate::check;
use crate::file::name_apart;
use crate::shaped::ShapedGraph;

const DIGITS: &[u8] = include_bytes!("../../../tests/fixtures/digits/digits.onnx");

fn error_of(bytes: &[u8]) -> String {
    ShapedGraph::parse(bytes, None).unwrap_err().to_string()
}

fn node(name: &str, reads: &[&str], makes: &str) -> NodeProto {
    let input = reads.iter().map(ToString::to_string).collect();
    NodeProto { name: name.into(), op_type: "Add".into(), input, output: vec![makes.into()], ..Default::default() }
}

fn tensor(dims: &[i64], floats: usize) -> TensorProto {
    let (data_type, float_data) = (DataType::Float as i32, vec![0.5; floats]);
    TensorProto { name: "w".into(), dims: dims.to_vec(), data_type, float_data, ..Default::default() }
}

fn model(node: Vec<NodeProto>, initializer: Vec<TensorProto>) -> ModelProto {
    let output = vec![ValueInfoProto { name: "y".into(), ..Default::default() }];
    ModelProto { graph: Some(GraphProto { node, initializer, output, ..Default::default() }), ..Default::default() }
}

fn checked(model: &ModelProto) -> String {
    check::check(model, None).map_or_else(|e| e.to_string(), |()| "fine".into())
}

#[test]
fn what_is_no_model_is_refused() {
    assert!(error_of(b"not an onnx file").starts_with("file: is no ONNX model: "));
    assert_eq!(error_of(b""), "graph: the model has none");
    for end in (1..DIGITS.len()).step_by(997) {
        let message = error_of(&DIGITS[..end]);
        assert!(message.starts_with("file: ") || message.starts_with("graph: "), "{end}: {message}");
    }
    let none = ShapedGraph::read(Path::new("/nowhere/model.onnx")).unwrap_err().to_string();
    assert_eq!(none, "/nowhere/model.onnx: No such file or directory (os error 2)");
}

#[test]
fn any_byte_may_be_wrong_without_a_panic() {
    for at in (0..DIGITS.len()).step_by(1499) {
        let mut bytes = DIGITS.to_vec();
        bytes[at] ^= 0x55;
        drop(ShapedGraph::parse(&bytes, None)); // if the byte belongs to a weight, the model is still valid
    }
}

#[test]
fn a_cycle_is_named_by_its_node() {
    let cyclic =
        model(vec![node("a", &["w", "z"], "x"), node("b", &["x", "w"], "z"), node("c", &["z", "z"], "y")], vec![tensor(&[1], 1)]);
    assert_eq!(
        checked(&cyclic),
        "node a (Add, ai.onnx): reads z, which is made by it or behind it: the graph has a cycle or is out of order"
    );
    let itself = model(vec![node("", &["y", "w"], "y")], vec![tensor(&[1], 1)]);
    assert!(checked(&itself).starts_with("node y (Add, ai.onnx): reads y, which is made by it"), "{}", checked(&itself));
    assert_eq!(checked(&model(vec![node("a", &["q", ""], "y")], vec![])), "node a (Add, ai.onnx): reads q, which nothing makes");
    assert_eq!(checked(&model(vec![], vec![])), "output y: nothing makes it");
    assert_eq!(checked(&model(vec![node("a", &["w", "w"], "y")], vec![tensor(&[2, 3], 6)])), "fine");
}

#[test]
fn sizes_are_those_of_the_data() {
    let with = |tensor: TensorProto| checked(&model(vec![node("a", &["w", "w"], "y")], vec![tensor]));
    assert_eq!(with(tensor(&[2, 3], 5)), "initializer w: its shape [2, 3] asks for 6 elements, it has 5");
    let raw = TensorProto { raw_data: vec![0; 23].into(), ..tensor(&[2, 3], 0) };
    assert_eq!(with(raw), "initializer w: its shape [2, 3] asks for 24 bytes, it has 23");
    let huge = [1 << 40, 1 << 40];
    assert_eq!(with(tensor(&huge, 0)), format!("initializer w: its shape {huge:?} has more than 4294967296 elements"));
    assert_eq!(with(tensor(&[-1], 0)), "initializer w: has an axis of length -1 in [-1]");
    let text = TensorProto { data_type: DataType::String as i32, ..tensor(&[1], 0) };
    assert_eq!(with(text), "initializer w: its element type, 8 in ONNX, is not supported");
    let mut filled = node("fill", &["w"], "y");
    filled.op_type = "ConstantOfShape".into();
    let shape = TensorProto { data_type: DataType::Int64 as i32, int64_data: huge.to_vec(), ..tensor(&[2], 0) };
    assert_eq!(
        checked(&model(vec![filled], vec![shape])),
        format!("node fill (ConstantOfShape, ai.onnx): its shape {huge:?} has more than 4294967296 elements")
    );
}

#[test]
fn weights_outside_of_the_folder_are_not_read() {
    let entry = |key: &str, value: &str| StringStringEntryProto { key: key.into(), value: value.into() };
    let outside = |location: &str| TensorProto {
        data_location: Some(1),
        external_data: vec![entry("location", location)],
        ..tensor(&[2], 0)
    };
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("model")).unwrap();
    std::fs::write(folder.path().join("secret.bin"), [0; 8]).unwrap();
    let file = folder.path().join("model/model.onnx");
    for location in ["../secret.bin", "/etc/hostname", "missing.bin"] {
        let model = model(vec![node("a", &["w", "w"], "y")], vec![outside(location)]);
        assert_eq!(checked(&model), "initializer w: lies outside of the file, which has no folder");
        std::fs::write(&file, prost::Message::encode_to_vec(&model)).unwrap();
        let message = ShapedGraph::read(&file).unwrap_err().to_string();
        assert!(message.starts_with("initializer w: lies ") && message.contains(location), "{message}");
    }
}

#[test]
fn a_node_may_be_called_like_a_tensor() {
    let named = NodeProto { op_type: "MatMul".into(), ..node("w", &["x", "w"], "y") };
    let mut model = model(vec![named, node("w", &["y", "y"], "z"), node("", &["z", "z"], "w#2")], vec![tensor(&[1], 1)]);
    model.graph.iter_mut().for_each(name_apart);
    let names: Vec<_> = model.graph.unwrap().node.into_iter().map(|node| node.name).collect();
    assert_eq!(names, ["w#2", "w#3", "w#2#2"]);
}

#[test]
fn what_operators_make_of_constants_is_bounded() {
    let numbers = |name: &str, values: &[i64]| TensorProto {
        name: name.into(),
        dims: vec![values.len() as i64],
        data_type: DataType::Int64 as i32,
        int64_data: values.to_vec(),
        ..Default::default()
    };
    let scales = TensorProto { name: "s".into(), float_data: vec![1e9, 1e9], ..tensor(&[2], 0) };
    let huge = 1 << 33;
    for (kind, reads, made) in [
        ("Pad", vec!["w", "n"], numbers("n", &[0, huge])),
        ("Tile", vec!["w", "n"], numbers("n", &[huge])),
        ("Expand", vec!["w", "n"], numbers("n", &[1 << 20, 1 << 20])),
        ("Resize", vec!["w", "", "s"], scales),
        ("Resize", vec!["w", "", "", "n"], numbers("n", &[1, huge])),
        ("OneHot", vec!["w", "n"], numbers("n", &[huge])),
    ] {
        let node = NodeProto { op_type: kind.into(), ..node("a", &reads, "y") };
        let found = checked(&model(vec![node], vec![tensor(&[1], 1), made]));
        assert!(found.starts_with(&format!("node a ({kind}, ai.onnx): its shape ")), "{found}");
    }
    let perm = AttributeProto { name: "perm".into(), ints: vec![0, 0], ..Default::default() };
    let twice = NodeProto { op_type: "Transpose".into(), attribute: vec![perm], ..node("a", &["w"], "y") };
    assert_eq!(
        checked(&model(vec![twice], vec![tensor(&[1, 1], 1)])),
        "node a (Transpose, ai.onnx): perm: 0 in [0, 0] is no axis, or there twice"
    );
    assert_eq!(checked(&model(vec![], vec![tensor(&[1; 33], 1)])), "initializer w: has 33 axes; the bound is 32");
    let many = vec![node("a", &["w"], "y"); 50_001];
    assert_eq!(checked(&model(many, vec![tensor(&[1], 1)])), "graph: has more than 50000 nodes, which is the bound");
}

#[test]
fn a_name_that_all_nodes_have_is_numbered_in_linear_time() {
    let mut model = model(vec![node("same", &["w"], "y"); 50_000], vec![tensor(&[1], 1)]);
    model.graph.iter_mut().for_each(name_apart);
    let names: std::collections::HashSet<_> = model.graph.unwrap().node.into_iter().map(|node| node.name).collect();
    assert!(names.len() == 50_000 && names.contains("same#50000"));
}
