//! rten on files of a few nodes: what it is given, what it answers, and what is refused with which words.

mod cubic;
mod eight_bits;
mod fused;
mod lengths;

use lapwing_onnx::messages::type_proto::{self, Value::TensorType};
use lapwing_onnx::messages::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, StringStringEntryProto, TensorProto, TypeProto,
    ValueInfoProto,
};
use lapwing_onnx::tensor::{Datatype, Tensor};
use lapwing_testing::onnx::{f32s, i64s, int, ints, port, word};
use prost::Message;

use crate::choice::Backend;
use crate::model::{ExecutorName, Model, ModelOptions, Workspace};

/// Element types by their numbers in ONNX.
pub(crate) const FLOAT: i32 = 1;
const UINT8: i32 = 2;
const INT8: i32 = 3;
const INT32: i32 = 6;
const INT64: i32 = 7;
const BOOL: i32 = 9;
const DOUBLE: i32 = 11;

pub(crate) fn node(kind: &str, reads: &[&str], attribute: Vec<AttributeProto>) -> NodeProto {
    NodeProto {
        name: format!("the_{kind}"),
        op_type: kind.into(),
        input: reads.iter().map(ToString::to_string).collect(),
        output: vec!["y".into()],
        attribute,
        ..Default::default()
    }
}

fn tensor(name: &str, data_type: i32, dims: &[i64]) -> TensorProto {
    TensorProto { name: name.into(), data_type, dims: dims.to_vec(), ..Default::default() }
}

fn small(name: &str, data_type: i32, dims: &[i64], values: &[i32]) -> TensorProto {
    TensorProto { int32_data: values.to_vec(), ..tensor(name, data_type, dims) }
}

/// A file of one node from `inputs` to `y`.
pub(crate) fn file(opset: i64, node: NodeProto, inputs: Vec<ValueInfoProto>, constants: Vec<TensorProto>, made: i32) -> Vec<u8> {
    let set = |domain: &str, version| OperatorSetIdProto { domain: domain.into(), version };
    let rankless = ValueInfoProto {
        name: "y".into(),
        r#type: Some(TypeProto {
            value: Some(TensorType(type_proto::Tensor { elem_type: made, shape: None })),
            ..Default::default()
        }),
        ..Default::default()
    };
    let graph = GraphProto {
        name: "g".into(),
        node: vec![node],
        input: inputs,
        output: vec![rankless],
        initializer: constants,
        ..Default::default()
    };
    let opset_import = vec![set("", opset), set("ai.onnx.ml", 3), set("com.microsoft", 1)];
    ModelProto { ir_version: 8, graph: Some(graph), opset_import, ..Default::default() }.encode_to_vec()
}

pub(crate) fn load(bytes: &[u8]) -> Result<Model, String> {
    let options = ModelOptions { backend: Backend::Rten, ..ModelOptions::default() };
    Model::parse(bytes, &options).map_err(|error| error.to_string())
}

pub(crate) fn answer(model: &Model, mut call: Vec<Tensor>) -> Result<Tensor, String> {
    model.accept(&mut call).map_err(|error| error.to_string())?;
    let ran = model.run(&mut Workspace::default(), &[&call]).map_err(|error| error.to_string())?;
    Ok(ran.outputs.into_iter().flatten().next().unwrap())
}

fn answered(bytes: &[u8], call: Vec<Tensor>) -> Tensor {
    let model = load(bytes).unwrap();
    assert_eq!((model.executor(), model.batches()), (ExecutorName::Rten, false));
    answer(&model, call).unwrap()
}

#[test]
fn each_datatype_goes_in_and_comes_out_as_it_is() {
    let kinds = [9, 2, 4, 12, 13, 3, 5, 6, 7, 10, 16, 1, 11, 8];
    for (datatype, kind) in Datatype::ALL.into_iter().zip(kinds) {
        let loaded = load(&file(17, node("Identity", &["x"], vec![]), vec![port("x", kind, &[0, 3])], vec![], kind));
        if matches!(datatype, Datatype::Uint32 | Datatype::Uint64 | Datatype::Bytes) {
            assert_eq!(loaded.unwrap_err(), format!("input x: rten has no elements of type {}", datatype.name()));
            continue;
        }
        let model = loaded.unwrap();
        let one: &[u8] = match datatype {
            Datatype::Fp16 => &[0, 0x3c],
            Datatype::Bf16 => &[0x80, 0x3f],
            Datatype::Fp32 => &[0, 0, 0x80, 0xbf],
            Datatype::Fp64 => &[0, 0, 0, 0, 0, 0, 0xf0, 0x3f],
            other => &[1, 0, 0, 0, 0, 0, 0, 0][..other.least_bytes()],
        };
        let memory: bytes::Bytes = [&[0][..], &one.repeat(6)].concat().into();
        // one byte further on, elements are not aligned
        for data in [one.repeat(6).into(), memory.slice(1..)] {
            let call = Tensor { name: "x".into(), datatype, shape: vec![2, 3], data };
            let got = answer(&model, vec![call.clone()]).unwrap();
            assert_eq!((got.datatype, &got.shape, &got.data), (datatype, &call.shape, &call.data));
        }
    }
}

#[test]
fn whole_numbers_that_do_not_fit_are_named() {
    let identity = load(&file(17, node("Identity", &["x"], vec![]), vec![port("x", INT64, &[0])], vec![], INT64)).unwrap();
    let least = i64::from(i32::MIN) + 1;
    assert_eq!(answer(&identity, vec![Tensor::i64("x", &[2], &[least, 7])]).unwrap().to_f64(), [least as f64, 7.0]);
    assert_eq!(
        answer(&identity, vec![Tensor::i64("x", &[2], &[1, 1 << 31])]).unwrap_err(),
        "x: element 1 of [2] is 2147483648, and rten holds whole numbers of 64 bits in 32"
    );
    // a conversion that ends at the limit
    let cast = file(17, node("Cast", &["x"], vec![int("to", 7)]), vec![port("x", FLOAT, &[0])], vec![], INT64);
    let error = answer(&load(&cast).unwrap(), vec![Tensor::f32("x", &[1], &[3e9])]).unwrap_err();
    assert!(error.contains("output y: has the value 2147483647, which may not be what the file computes"), "{error}");
    // constants
    let add = |x| file(17, node("Add", &["x", "c"], vec![]), vec![port("x", INT64, &[0])], vec![i64s("c", &[1], &[x])], INT64);
    assert_eq!(
        load(&add(-5_000_000_000)).unwrap_err(),
        "initializer c: its element 0 is -5000000000: rten holds whole numbers of 64 bits in 32"
    );
    let ends = vec![i64s("s", &[1], &[1]), i64s("e", &[1], &[i64::MAX])];
    let slice = file(17, node("Slice", &["x", "s", "e"], vec![]), vec![port("x", INT64, &[0])], ends, INT64);
    assert_eq!(answered(&slice, vec![Tensor::i64("x", &[3], &[1, 2, 3])]).to_f64(), [2.0, 3.0]);
}

#[test]
fn double_precision_is_computed_in_single_and_said() {
    let bytes = file(17, node("Identity", &["x"], vec![]), vec![port("x", DOUBLE, &[0])], vec![], DOUBLE);
    let model = load(&bytes).unwrap();
    assert_eq!(model.notes(), ["numbers of double precision (FP64) are computed in single"]);
    let call = |x: f64| {
        vec![Tensor { name: "x".into(), datatype: Datatype::Fp64, shape: vec![1], data: x.to_le_bytes().to_vec().into() }]
    };
    assert_eq!(answer(&model, call(0.5)).unwrap().to_f64(), [0.5]);
    assert_eq!(answer(&model, call(1e300)).unwrap_err().split(" is 1").next(), Some("x: element 0 of [1]"));
    let constant = TensorProto { double_data: vec![-1e308], ..tensor("c", DOUBLE, &[1]) };
    let bytes = file(17, node("Add", &["x", "c"], vec![]), vec![port("x", DOUBLE, &[0])], vec![constant], DOUBLE);
    assert_eq!(
        load(&bytes).unwrap_err(),
        "initializer c: its element 0 is -1e308: rten holds numbers of double precision in single"
    );
}

#[test]
fn what_rten_reads_otherwise_is_written_by_other_nodes() {
    let cast = file(17, node("Cast", &["x"], vec![int("to", 9)]), vec![port("x", FLOAT, &[0])], vec![], BOOL);
    let x = Tensor::f32("x", &[5], &[0.0, 0.5, -0.25, 7.0, f32::NAN]);
    assert_eq!(answered(&cast, vec![x]).data[..], [0, 1, 1, 1, 1]);
    // a softmax of all axes behind the first
    for (opset, sums) in [(11, 1.0), (13, 2.0)] {
        let softmax = file(opset, node("Softmax", &["x"], vec![]), vec![port("x", FLOAT, &[0, 2, 3])], vec![], FLOAT);
        let got = answered(&softmax, vec![Tensor::f32("x", &[1, 2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])]);
        assert_eq!(got.shape, [1, 2, 3]);
        assert!((got.to_f32().iter().sum::<f32>() - sums).abs() < 1e-6, "{opset}: {got:?}");
    }
    let dropout = file(11, node("Dropout", &["x"], vec![]), vec![port("x", FLOAT, &[0])], vec![], FLOAT);
    assert_eq!(answered(&dropout, vec![Tensor::f32("x", &[2], &[1.0, 2.0])]).to_f32(), [1.0, 2.0]);
    let selu = file(17, node("Selu", &["x"], vec![]), vec![port("x", FLOAT, &[0])], vec![], FLOAT);
    let got = answered(&selu, vec![Tensor::f32("x", &[2], &[1.0, -1.0])]).to_f32();
    assert!((got[0] - 1.050_701).abs() < 1e-5 && (got[1] + 1.111_330_7).abs() < 1e-5, "{got:?}");
    // the first of equal elements, and the last where the file asks for it
    for (last, keeps, want) in [(0, 0, [1.0, 0.0]), (0, 1, [1.0, 0.0]), (1, 1, [2.0, 3.0])] {
        let attributes = vec![int("axis", 1), int("keepdims", keeps), int("select_last_index", last)];
        let bytes = file(17, node("ArgMax", &["x"], attributes), vec![port("x", FLOAT, &[0, 4])], vec![], INT64);
        let got = answered(&bytes, vec![Tensor::f32("x", &[2, 4], &[1.0, 3.0, 3.0, 2.0, 5.0, 5.0, 0.0, 5.0])]);
        assert_eq!((got.shape.len() as i64, got.to_f64()), (1 + keeps, want.to_vec()));
    }
    for opset in [11, 17] {
        let vector = f32s("v", &[2], &[1.0, 10.0]);
        let bytes = file(opset, node("MatMul", &["x", "v"], vec![]), vec![port("x", FLOAT, &[0, 1, 2])], vec![vector], FLOAT);
        let got = answered(&bytes, vec![Tensor::f32("x", &[2, 1, 2], &[1.0, 2.0, 3.0, 4.0])]);
        assert_eq!((got.shape.clone(), got.to_f32()), (vec![2, 1], vec![21.0, 43.0]));
    }
    let none = vec![int("noop_with_empty_axes", 1)];
    let bytes = file(18, node("ReduceMean", &["x", "a"], none), vec![port("x", FLOAT, &[0])], vec![i64s("a", &[0], &[])], FLOAT);
    assert_eq!(answered(&bytes, vec![Tensor::f32("x", &[2], &[1.0, 2.0])]).to_f32(), [1.0, 2.0]);
    let weight = f32s("w", &[1, 1, 2, 2], &[1.0; 4]);
    let conv = file(
        17,
        node("Conv", &["x", "w"], vec![word("auto_pad", "VALID")]),
        vec![port("x", FLOAT, &[0, 1, 3, 3])],
        vec![weight],
        FLOAT,
    );
    let got = answered(&conv, vec![Tensor::f32("x", &[1, 1, 3, 3], &[1.0; 9])]);
    assert_eq!((got.shape.clone(), got.to_f32()), (vec![1, 1, 2, 2], vec![4.0; 4]));
}

#[test]
fn what_cannot_be_run_is_named_in_few_words() {
    let x = |lengths: &[i64]| vec![port("x", FLOAT, lengths)];
    let cubic = |attribute| node("Resize", &["x", "", "s"], vec![word("mode", "cubic"), attribute]);
    let scales = || vec![f32s("s", &[4], &[1.0, 1.0, 2.0, 2.0])];
    let lstm = NodeProto {
        output: vec!["y".into(), String::new(), "c".into()],
        ..node("LSTM", &["x", "w", "r", "", "l"], vec![int("hidden_size", 1)])
    };
    let weights = || vec![f32s("w", &[1, 4, 1], &[1.0; 4]), f32s("r", &[1, 4, 1], &[1.0; 4]), small("l", INT32, &[1], &[1])];
    let lower = node("MaxPool", &["x"], vec![word("auto_pad", "SAME_LOWER"), ints("kernel_shape", &[2, 2])]);
    let gru = node("GRU", &["x", "w", "r"], vec![int("hidden_size", 1)]);
    let gru_weights = vec![f32s("w", &[1, 3, 1], &[1.0; 3]), f32s("r", &[1, 3, 1], &[1.0; 3])];
    let scaler = NodeProto { domain: "ai.onnx.ml".into(), ..node("Scaler", &["x"], vec![]) };
    let cases = [
        (
            file(18, cubic(int("antialias", 1)), x(&[0, 1, 2, 2]), scales(), FLOAT),
            "node the_Resize (Resize, ai.onnx 18): rten has no antialias",
        ),
        (
            file(17, cubic(word("coordinate_transformation_mode", "tf_crop_and_resize")), x(&[0, 1, 2, 2]), scales(), FLOAT),
            "node the_Resize (Resize, ai.onnx 17): rten has the mode cubic for half pixels, aligned corners and asymmetric",
        ),
        (
            file(18, cubic(word("keep_aspect_ratio_policy", "not_larger")), x(&[0, 1, 2, 2]), scales(), FLOAT),
            "node the_Resize (Resize, ai.onnx 18): rten keeps no aspect ratio (keep_aspect_ratio_policy)",
        ),
        (
            file(18, cubic(ints("axes", &[1, 2])), x(&[0, 1, 2, 2]), scales(), FLOAT),
            "node the_Resize (Resize, ai.onnx 18): rten has the mode cubic for the last two axes alone",
        ),
        (
            file(17, lstm, x(&[0, 1, 1]), weights(), FLOAT),
            "node the_LSTM (LSTM, ai.onnx 17): rten ignores the lengths of sequences (sequence_lens), on which the last state",
        ),
        (
            file(17, gru, x(&[0, 1, 1]), gru_weights, FLOAT),
            "node the_GRU (GRU, ai.onnx 17): rten has linear_before_reset = 1 alone",
        ),
        (
            file(17, lower, x(&[0, 1, 2, 2]), vec![], FLOAT),
            "node the_MaxPool (MaxPool, ai.onnx 17): rten pads SAME_LOWER as SAME_UPPER",
        ),
        (file(17, scaler, x(&[0, 4]), vec![], FLOAT), "node the_Scaler (Scaler, ai.onnx.ml 3): rten cannot load it: "),
        (
            file(17, node("Nowhere", &["x"], vec![]), x(&[0]), vec![], FLOAT),
            "node the_Nowhere (Nowhere, ai.onnx 17): rten cannot load it: ",
        ),
        (
            file(17, node("Relu", &["gone"], vec![]), x(&[0]), vec![], FLOAT),
            "node the_Relu (Relu, ai.onnx 17): reads gone, which nothing makes",
        ),
    ];
    for (bytes, said) in cases {
        let error = load(&bytes).unwrap_err();
        assert!(error.starts_with(said) && !error.contains('\n') && error.chars().count() < 340, "{error}");
    }
    // values that a node does not take
    let gather =
        file(17, node("Gather", &["t", "x"], vec![]), vec![port("x", INT64, &[0])], vec![f32s("t", &[2], &[1.0, 2.0])], FLOAT);
    let model = load(&gather).unwrap();
    let error = answer(&model, vec![Tensor::i64("x", &[1], &[7])]).unwrap_err();
    assert!(error.starts_with("model: cannot run: node the_Gather (Gather, ai.onnx 17): rten: "), "{error}");
    assert_eq!(answer(&model, vec![Tensor::i64("x", &[1], &[1])]).unwrap().to_f32(), [2.0]);
}

#[test]
fn what_is_quantized_ends_at_the_limits_of_its_type() {
    let weights = vec![f32s("s", &[], &[0.5]), TensorProto { raw_data: vec![128].into(), ..tensor("z", UINT8, &[]) }];
    let quantized = node("QuantizeLinear", &["x", "s", "z"], vec![]);
    let model = load(&file(17, quantized, vec![port("x", FLOAT, &[0])], weights, UINT8)).unwrap();
    for count in [1, 70] {
        let x = [1.0, f32::INFINITY, f32::NEG_INFINITY, 1e30, -1e30].repeat(count);
        let made = answer(&model, vec![Tensor::f32("x", &[x.len()], &x)]).unwrap();
        assert_eq!(made.data[..], [130, 255, 0, 255, 0].repeat(count));
    }
}

#[test]
fn a_panic_is_an_error_of_its_call() {
    let inputs = vec![port("x", INT64, &[0]), port("z", INT64, &[0])];
    let model = load(&file(17, node("Div", &["x", "z"], vec![]), inputs, vec![], INT64)).unwrap();
    let call = |x, z| vec![Tensor::i64("x", &[1], &[x]), Tensor::i64("z", &[1], &[z])];
    // the only quotient that 32 bits do not hold
    let error = answer(&model, call(i32::MIN.into(), -1)).unwrap_err();
    assert!(error.starts_with("model: cannot run: rten: it gave up: ") && error.contains("overflow"), "{error}");
    assert!(answer(&model, call(6, 0)).unwrap_err().contains("node the_Div (Div, ai.onnx 17): rten: "));
    assert_eq!(answer(&model, call(6, 2)).unwrap().to_f64(), [3.0]);
}

#[test]
fn weights_may_lie_in_files_of_any_name() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("parts")).unwrap();
    let numbers: Vec<u8> = [9.0_f32, 3.0, 4.0].iter().flat_map(|x| x.to_le_bytes()).collect();
    std::fs::write(folder.path().join("parts/weights.bin"), numbers).unwrap();
    let entry = |key: &str, value: &str| StringStringEntryProto { key: key.into(), value: value.into() };
    let external_data = vec![entry("location", "parts/weights.bin"), entry("offset", "4")];
    let weights = TensorProto { external_data, data_location: Some(1), ..tensor("w", FLOAT, &[2]) };
    // without a length, as some exporters write it
    let bytes = file(17, node("Mul", &["x", "w"], vec![]), vec![port("x", FLOAT, &[2])], vec![weights], FLOAT);
    let path = folder.path().join("model.onnx");
    std::fs::write(&path, bytes).unwrap();
    let options = ModelOptions { backend: Backend::Rten, ..ModelOptions::default() };
    let model = Model::read(&path, &options).unwrap();
    assert_eq!(answer(&model, vec![Tensor::f32("x", &[2], &[1.0, 2.0])]).unwrap().to_f32(), [3.0, 8.0]);
}

#[test]
fn a_thread_has_one_pool_of_the_models_size() {
    let bytes = file(17, node("Relu", &["x"], vec![]), vec![port("x", FLOAT, &[0])], vec![], FLOAT);
    let model = load(&bytes).unwrap();
    let mut workspace = Workspace::default();
    let threads = model.host(&mut workspace).unwrap();
    let call = [Tensor::f32("x", &[2], &[1.0, -1.0])];
    let (name, ran) = threads.run(|| {
        let ran = model.run(&mut workspace, &[&call]).unwrap();
        (std::thread::current().name().map(str::to_owned), ran)
    });
    assert_eq!((name.as_deref(), ran.outputs[0][0].to_f32()), (Some("rten-0"), vec![1.0, 0.0]));
    // its own, and the one here: the second run started no other
    assert_eq!(std::sync::Arc::strong_count(&threads), 2);
    assert!(std::sync::Arc::ptr_eq(&threads, &model.host(&mut workspace).unwrap()));
}

#[test]
fn a_chain_that_its_threads_cannot_follow_is_refused() {
    let long = |nodes: usize| {
        let mut model =
            ModelProto::decode(&*file(17, node("Relu", &["x"], vec![]), vec![port("x", FLOAT, &[0])], vec![], FLOAT)).unwrap();
        let name = |at: usize| if at == nodes { "y".to_owned() } else { format!("n{at}") };
        let link = |at: usize| NodeProto {
            name: format!("link_{at}"),
            input: vec![if at == 0 { "x".to_owned() } else { name(at) }],
            output: vec![name(at + 1)],
            ..node("Relu", &[], vec![])
        };
        model.graph.as_mut().unwrap().node = (0..nodes).map(link).collect();
        model.encode_to_vec()
    };
    let error = load(&long(3001)).unwrap_err();
    assert_eq!(error, "node link_3000 (Relu): ends a chain of more than 3000 nodes, which is what rten's threads can follow");
    // the longest that is taken runs in the threads of the pool
    let model = load(&long(3000)).unwrap();
    let mut workspace = Workspace::default();
    let host = model.host(&mut workspace).unwrap();
    let call = vec![Tensor::f32("x", &[2], &[-1.0, 2.0])];
    let ran = host.run(|| model.run(&mut workspace, &[&call])).unwrap();
    assert_eq!(ran.outputs[0][0].to_f32(), [0.0, 2.0]);
}
