//! Models that ONNX Runtime runs, or against which other executors are held: tiny files made here, with the library of the tests' Python
//! environment.

#![cfg(feature = "onnxruntime")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::path::Path;

use bytes::Bytes;
use lapwing_engine::onnxruntime::Runtime;
use lapwing_model::{
    Backend, BatchAxis, BatchTrial, ExecutorName, Model, ModelOptions, OrtLibrary, ProviderChoice, Verification, Workspace,
};
use lapwing_onnx::messages::type_proto::Value::TensorType;
use lapwing_onnx::messages::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, TypeProto, ValueInfoProto,
};
use lapwing_onnx::tensor::{Datatype, Tensor, text_data};
use lapwing_testing::onnx::{floats, int, ints, port, strings, word};
use prost::Message;

/// Element types by their numbers in ONNX.
const FLOAT: i32 = 1;
const UINT8: i32 = 2;
const INT64: i32 = 7;
const STRING: i32 = 8;
const BOOL: i32 = 9;
const COMPLEX64: i32 = 14;

/// The library of the repository's virtual environment; `None`, and said, where there is none.
fn runtime() -> Option<Runtime> {
    Some(Runtime::find(Some(&lapwing_testing::onnxruntime()?)).unwrap())
}

fn options(runtime: &Runtime, backend: Backend) -> ModelOptions {
    ModelOptions { backend, onnxruntime: Some(Ok(runtime.clone())), verify: true, ..ModelOptions::default() }
}

fn node(kind: &str, domain: &str, reads: &[&str], makes: &[&str], attribute: Vec<AttributeProto>) -> NodeProto {
    NodeProto {
        name: format!("the_{kind}"),
        op_type: kind.into(),
        domain: domain.into(),
        input: reads.iter().map(ToString::to_string).collect(),
        output: makes.iter().map(ToString::to_string).collect(),
        attribute,
        ..Default::default()
    }
}

fn model(graph: GraphProto) -> Vec<u8> {
    let set = |domain: &str, version| OperatorSetIdProto { domain: domain.into(), version };
    let model = ModelProto {
        ir_version: 8,
        graph: Some(GraphProto { name: "g".into(), ..graph }),
        opset_import: vec![set("", 17), set("ai.onnx.ml", 1)],
        ..Default::default()
    };
    model.encode_to_vec()
}

/// A file of nodes from `x` to `y`.
fn model_of(node: Vec<NodeProto>) -> Vec<u8> {
    let port = |name| port(name, FLOAT, &[0, 4]);
    model(GraphProto { node, input: vec![port("x")], output: vec![port("y")], ..Default::default() })
}

/// Twice the input, by operators of which neither rten nor a classical plan has both.
fn scaler() -> Vec<u8> {
    let attributes = vec![floats("offset", &[0.0; 4]), floats("scale", &[2.0; 4])];
    let axis = int("axis", 1);
    let all = TensorProto { name: "all".into(), data_type: BOOL, dims: vec![4], int32_data: vec![1; 4], ..Default::default() };
    model(GraphProto {
        node: vec![
            node("Scaler", "ai.onnx.ml", &["x"], &["s"], attributes),
            node("Compress", "", &["s", "all"], &["y"], vec![axis]),
        ],
        initializer: vec![all],
        input: vec![port("x", FLOAT, &[0, 4])],
        output: vec![port("y", FLOAT, &[0, 4])],
        ..Default::default()
    })
}

/// A stump whose second class is that of a positive first column.
fn stump() -> Vec<u8> {
    let attributes = vec![
        ints("nodes_treeids", &[0; 3]),
        ints("nodes_nodeids", &[0, 1, 2]),
        ints("nodes_featureids", &[0; 3]),
        floats("nodes_values", &[0.0; 3]),
        strings("nodes_modes", &["BRANCH_LEQ", "LEAF", "LEAF"]),
        ints("nodes_truenodeids", &[1, 0, 0]),
        ints("nodes_falsenodeids", &[2, 0, 0]),
        ints("nodes_missing_value_tracks_true", &[0; 3]),
        floats("nodes_hitrates", &[1.0; 3]),
        ints("class_treeids", &[0; 2]),
        ints("class_nodeids", &[1, 2]),
        ints("class_ids", &[0; 2]),
        floats("class_weights", &[0.1, 0.9]),
        ints("classlabels_int64s", &[0, 1]),
        word("post_transform", "NONE"),
    ];
    model(GraphProto {
        node: vec![node("TreeEnsembleClassifier", "ai.onnx.ml", &["x"], &["label", "p"], attributes)],
        input: vec![port("x", FLOAT, &[0, 4])],
        output: vec![port("label", INT64, &[0]), port("p", FLOAT, &[0, 2])],
        ..Default::default()
    })
}

/// A softmax between a DequantizeLinear and a QuantizeLinear; an executor with a table of 256 entries for what is between has ones there.
fn quantised_softmax() -> Vec<u8> {
    let scale = |name: &str, value: f32| TensorProto {
        name: name.into(),
        data_type: FLOAT,
        float_data: vec![value],
        ..Default::default()
    };
    let zero = |name: &str, value: i32| TensorProto {
        name: name.into(),
        data_type: UINT8,
        int32_data: vec![value],
        ..Default::default()
    };
    let axis = int("axis", -1);
    model(GraphProto {
        node: vec![
            node("QuantizeLinear", "", &["x", "s", "z"], &["a"], vec![]),
            NodeProto { name: "first".into(), ..node("DequantizeLinear", "", &["a", "s", "z"], &["b"], vec![]) },
            node("Softmax", "", &["b"], &["c"], vec![axis]),
            NodeProto { name: "second".into(), ..node("QuantizeLinear", "", &["c", "so", "zo"], &["d"], vec![]) },
            node("DequantizeLinear", "", &["d", "so", "zo"], &["y"], vec![]),
        ],
        input: vec![port("x", FLOAT, &[0, 4])],
        output: vec![port("y", FLOAT, &[0, 4])],
        initializer: vec![scale("s", 0.05), zero("z", 128), scale("so", 1.0 / 255.0), zero("zo", 0)],
        ..Default::default()
    })
}

/// `(x + 1) · 2·10⁹` in whole numbers of 64 bits, which 32 do not hold.
fn beyond() -> Vec<u8> {
    let constant = |name: &str, value: i64| TensorProto {
        name: name.into(),
        data_type: INT64,
        int64_data: vec![value],
        ..Default::default()
    };
    model(GraphProto {
        node: vec![node("Add", "", &["x", "one"], &["more"], vec![]), node("Mul", "", &["more", "many"], &["y"], vec![])],
        input: vec![port("x", INT64, &[0])],
        output: vec![port("y", INT64, &[0])],
        initializer: vec![constant("one", 1), constant("many", 2_000_000_000)],
        ..Default::default()
    })
}

fn run(model: &Model, mut call: Vec<Tensor>) -> Vec<Tensor> {
    model.accept(&mut call).unwrap();
    model.run(&mut Workspace::default(), &[&call]).unwrap().outputs.remove(0)
}

#[test]
fn what_no_other_can_read_is_run_by_onnxruntime() {
    let Some(runtime) = runtime() else { return };
    let model = Model::parse(&scaler(), &options(&runtime, Backend::Auto)).unwrap();
    assert_eq!((model.executor(), model.batches()), (ExecutorName::OnnxRuntime, false));
    let not_used = model.not_used().iter().map(|other| other.executor).collect::<Vec<_>>();
    assert_eq!(not_used, [ExecutorName::Tabular, ExecutorName::Plan]);
    assert_eq!(model.verification().to_string(), "not compared: ONNX Runtime runs it itself");
    assert_eq!((model.inputs()[0].shape.clone(), model.outputs()[0].name.as_str()), (vec![None, Some(4)], "y"));
    let outputs = run(&model, vec![Tensor::f32("x", &[2, 4], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])]);
    assert_eq!((outputs[0].shape.clone(), outputs[0].to_f32()), (vec![2, 4], vec![2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0, 16.0]));
    // without the library the reasons of both are said, and a named executor says why it cannot
    let missing = Some(Runtime::find(Some(Path::new("/nowhere/libonnxruntime.so"))));
    let without = ModelOptions { onnxruntime: missing.clone(), ..ModelOptions::default() };
    let error = Model::parse(&scaler(), &without).unwrap_err().to_string();
    assert!(error.contains("; and by ONNX Runtime it cannot be run: /nowhere/libonnxruntime.so"), "{error}");
    let named = ModelOptions { backend: Backend::OnnxRuntime, onnxruntime: missing, ..ModelOptions::default() };
    let error = Model::parse(&scaler(), &named).unwrap_err().to_string();
    assert!(error.starts_with("executor: onnxruntime cannot run it: /nowhere/libonnxruntime.so"), "{error}");
    for backend in [Backend::Plan, Backend::Tabular, Backend::Rten] {
        assert!(Model::parse(&scaler(), &options(&runtime, backend)).is_err(), "{backend:?}");
    }
}

#[test]
fn calls_of_onnxruntime_run_together_where_rows_are_independent() {
    let Some(runtime) = runtime() else { return };
    let load = |bytes: &[u8]| {
        let options = ModelOptions { batch_trial: Some(BatchTrial::Here), ..options(&runtime, Backend::OnnxRuntime) };
        Model::parse(bytes, &options).unwrap()
    };
    let model = load(&scaler());
    assert_eq!((model.executor(), model.batch_axis()), (ExecutorName::OnnxRuntime, &BatchAxis::Shown));
    let calls = [[1.0, 2.0, 3.0, 4.0].to_vec(), [5.0; 8].to_vec()].map(|x| [Tensor::f32("x", &[x.len() / 4, 4], &x)]);
    let ran = model.run(&mut Workspace::default(), &[&calls[0], &calls[1]]).unwrap();
    let got: Vec<_> = ran.outputs.iter().map(|outputs| (outputs[0].shape.clone(), outputs[0].to_f32())).collect();
    assert_eq!(got, [(vec![1, 4], vec![2.0, 4.0, 6.0, 8.0]), (vec![2, 4], vec![10.0; 8])]);
    // each row by the mean of all
    let mean = node("ReduceMean", "", &["x"], &["m"], vec![ints("axes", &[0])]);
    let by_mean = model_of(vec![mean, node("Mul", "", &["x", "m"], &["y"], vec![])]);
    let BatchAxis::NotShown(reason) = load(&by_mean).batch_axis().clone() else { panic!("rows that meet are joined") };
    assert!(reason.starts_with("row 0 of a batch of 2 is not what it is alone: output y has "), "{reason}");
}

#[test]
fn wrong_answers_are_not_served() {
    let Some(runtime) = runtime() else { return };
    let auto = Model::parse(&stump(), &options(&runtime, Backend::Auto)).unwrap();
    assert_eq!((auto.executor(), auto.verification()), (ExecutorName::Tabular, &Verification::Agrees { rows: vec![1, 7] }));
    let x = [[1.0, 2.0, 4.0, -1.0], [-1.0, 0.5, 0.25, 0.0]].concat();
    assert_eq!(run(&auto, vec![Tensor::f32("x", &[2, 4], &x)])[0].to_f64(), [1.0, 0.0]);
    // rten, which has no numbers of 64 bits, is refused where it was named, and served where nobody wants to know
    let error = Model::parse(&beyond(), &options(&runtime, Backend::Rten)).unwrap_err().to_string();
    let said =
        "executor: rten cannot run it: rten fails where ONNX Runtime answers: model: cannot run: rten: it gave up: attempt to ";
    assert!(error.starts_with(said), "{error}");
    // `more` is right, and read by the node that is not
    let end = "; the first node that differs is the_Mul (Mul); engine.verify: off serves it all the same";
    assert!(error.ends_with(end), "{error}");
    let unverified = ModelOptions { verify: false, ..options(&runtime, Backend::Rten) };
    assert_eq!(Model::parse(&beyond(), &unverified).unwrap().executor(), ExecutorName::Rten);
}

#[test]
fn times_are_those_of_the_rows_that_ran() {
    let Some(runtime) = runtime() else { return };
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/plans/fixed-batch.onnx");
    let model = Model::read(&path, &ModelOptions { measure: true, ..options(&runtime, Backend::Rten) }).unwrap();
    let rows: Vec<usize> = model.measured().calls.iter().map(|call| call.rows).collect();
    assert_eq!((model.executor(), rows), (ExecutorName::Rten, vec![8]));
}

#[test]
fn what_stands_between_quantised_activations_is_right() {
    let Some(runtime) = runtime() else { return };
    for backend in [Backend::Auto, Backend::Rten] {
        let model = Model::parse(&quantised_softmax(), &options(&runtime, backend)).unwrap();
        let outputs = run(&model, vec![Tensor::f32("x", &[2, 4], &[1.0, 2.0, 4.0, -1.0, -1.0, 0.5, 0.25, 0.0])]);
        for row in outputs[0].to_f64().chunks(4) {
            assert!((row.iter().sum::<f64>() - 1.0).abs() < 0.02, "{backend:?}: {outputs:?}");
        }
        if backend == Backend::Rten {
            assert_eq!(model.verification(), &Verification::Agrees { rows: vec![1, 7] });
        }
    }
}

#[test]
fn a_plan_that_is_right_stays() {
    let Some(runtime) = runtime() else { return };
    for name in ["mlp-3", "bert-pre-1", "0001"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../tests/fixtures/plans/{name}.onnx"));
        for backend in [Backend::Auto, Backend::Plan, Backend::Rten] {
            let model = Model::read(&path, &options(&runtime, backend)).unwrap();
            let executor = if backend == Backend::Rten { ExecutorName::Rten } else { ExecutorName::Plan };
            assert_eq!(
                (model.executor(), model.verification()),
                (executor, &Verification::Agrees { rows: vec![1, 7] }),
                "{name}"
            );
        }
    }
}

#[test]
fn each_datatype_goes_in_and_comes_out_as_it_is() {
    let Some(runtime) = runtime() else { return };
    // their numbers in ONNX
    let kinds = [9, 2, 4, 12, 13, 3, 5, 6, 7, 10, 16, 1, 11];
    for (datatype, kind) in Datatype::ALL.into_iter().zip(kinds) {
        let bytes = model(GraphProto {
            node: vec![node("Identity", "", &["x"], &["y"], vec![])],
            input: vec![port("x", kind, &[0, 3])],
            output: vec![port("y", kind, &[0, 3])],
            ..Default::default()
        });
        let model = Model::parse(&bytes, &options(&runtime, Backend::OnnxRuntime)).unwrap();
        assert_eq!((model.inputs()[0].datatype, model.outputs()[0].datatype), (datatype, datatype));
        let size = 2 * 3 * datatype.least_bytes();
        let modulus = if datatype == Datatype::Bool { 2 } else { 100 };
        // one byte further on, elements are not aligned
        let memory: Bytes = (0..=size).map(|at| (at * 7 % modulus) as u8).collect::<Vec<u8>>().into();
        for from in [0, 1] {
            let data = memory.slice(from..from + size);
            let outputs = run(&model, vec![Tensor { name: "x".into(), datatype, shape: vec![2, 3], data: data.clone() }]);
            assert_eq!((outputs[0].datatype, &outputs[0].shape[..], &outputs[0].data), (datatype, &[2, 3][..], &data), "{from}");
        }
    }
    strings_go_in_and_come_out(&runtime);
    // any byte but 0 is true
    let bytes = model(GraphProto {
        node: vec![node("Not", "", &["x"], &["y"], vec![])],
        input: vec![port("x", 9, &[0])],
        output: vec![port("y", 9, &[0])],
        ..Default::default()
    });
    let model = Model::parse(&bytes, &options(&runtime, Backend::OnnxRuntime)).unwrap();
    let call = Tensor { name: "x".into(), datatype: Datatype::Bool, shape: vec![4], data: vec![0, 1, 2, 255].into() };
    assert_eq!(run(&model, vec![call])[0].data[..], [1, 0, 0, 0]);
}

fn strings_go_in_and_come_out(runtime: &Runtime) {
    let bytes = model(GraphProto {
        node: vec![node("Identity", "", &["x"], &["y"], vec![])],
        input: vec![port("x", STRING, &[0, 3])],
        output: vec![port("y", STRING, &[0, 3])],
        ..Default::default()
    });
    let model = Model::parse(&bytes, &options(runtime, Backend::OnnxRuntime)).unwrap();
    let call =
        |texts: [&[u8]; 3]| Tensor { name: "x".into(), datatype: Datatype::Bytes, shape: vec![1, 3], data: text_data(&texts) };
    let given = call([b"", "Grüße".as_bytes(), b"c"]);
    let outputs = run(&model, vec![given.clone()]);
    assert_eq!((outputs[0].datatype, &outputs[0].shape[..], &outputs[0].data), (Datatype::Bytes, &[1, 3][..], &given.data));
    for (text, reason) in [(&b"a\0b"[..], "x: string 1 contains a NUL"), (b"\xff", "x: string 1 is not UTF-8")] {
        let mut given = vec![call([b"", text, b""])];
        model.accept(&mut given).unwrap();
        let error = model.run(&mut Workspace::default(), &[&given]).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn ports_that_no_call_can_have_are_named() {
    let Some(runtime) = runtime() else { return };
    let of = |input: ValueInfoProto, nodes: Vec<NodeProto>, output: ValueInfoProto| {
        let bytes = model(GraphProto { node: nodes, input: vec![input], output: vec![output], ..Default::default() });
        Model::parse(&bytes, &options(&runtime, Backend::OnnxRuntime)).unwrap_err().to_string()
    };
    let identity = || vec![node("Identity", "", &["x"], &["y"], vec![])];
    assert_eq!(
        of(port("x", COMPLEX64, &[0, 1]), identity(), port("y", COMPLEX64, &[0, 1])),
        "executor: onnxruntime cannot run it: input x: its element type, 14 in ONNX, is not supported"
    );
    let mut rankless = port("x", FLOAT, &[0]);
    if let Some(TypeProto { value: Some(TensorType(tensor)), .. }) = &mut rankless.r#type {
        tensor.shape = None;
    }
    assert_eq!(
        of(rankless, identity(), port("y", FLOAT, &[0])),
        "executor: onnxruntime cannot run it: input x: the file does not say how many axes it has; --shape INPUT=LENGTHS \
         (engine.shapes) states it"
    );
    let labels = ints("classlabels_int64s", &[0, 1]);
    let maps = ValueInfoProto { name: "y".into(), ..Default::default() };
    let error = of(port("x", FLOAT, &[0, 2]), vec![node("ZipMap", "ai.onnx.ml", &["x"], &["y"], vec![labels])], maps);
    assert!(error.starts_with("executor: onnxruntime cannot run it: output y: is a Sequence<Map<i64, f32>>"), "{error}");
}

#[test]
fn only_wanted_outputs_are_made_and_wrong_values_are_the_callers() {
    let Some(runtime) = runtime() else { return };
    let model = Model::parse(&stump(), &options(&runtime, Backend::OnnxRuntime)).unwrap();
    let call = [Tensor::f32("x", &[1, 4], &[1.0; 4])];
    let ran = model.run_for(&mut Workspace::default(), &[&call], &smallvec::smallvec![false, true]).unwrap();
    assert_eq!((ran.outputs[0][0].data.len(), ran.outputs[0][1].data.len()), (0, 8));
    let table =
        TensorProto { name: "t".into(), data_type: FLOAT, dims: vec![3], float_data: vec![1.0, 2.0, 3.0], ..Default::default() };
    let bytes = self::model(GraphProto {
        node: vec![node("Gather", "", &["t", "x"], &["y"], vec![])],
        input: vec![port("x", INT64, &[0])],
        output: vec![port("y", FLOAT, &[0])],
        initializer: vec![table],
        ..Default::default()
    });
    let model = Model::parse(&bytes, &options(&runtime, Backend::OnnxRuntime)).unwrap();
    assert_eq!(run(&model, vec![Tensor::i64("x", &[2], &[2, 0])])[0].to_f32(), [3.0, 1.0]);
    let error = model.run(&mut Workspace::default(), &[&[Tensor::i64("x", &[1], &[7])]]).unwrap_err();
    assert!(matches!(&error, lapwing_onnx::EngineError::Input { tensor, .. } if tensor == "inputs"), "{error}");
}

#[test]
fn a_library_that_cannot_be_used_is_said_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("libonnxruntime.so");
    std::fs::write(&text, "no library").unwrap();
    let reason = |library: OrtLibrary| library.find(ProviderChoice::default()).unwrap_err().to_string();
    let named = reason(OrtLibrary::At(text.clone()));
    if runtime().is_some() {
        // one library has been loaded, and a process can have no second
        assert!(reason(OrtLibrary::At(text)).contains("this process has loaded"), "{named}");
    } else {
        assert!(named.starts_with(&format!("{}: ", text.display())), "{named}");
    }
    assert!(OrtLibrary::Off.find(ProviderChoice::default()).unwrap().is_none());
}
