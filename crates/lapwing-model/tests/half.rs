//! Models of half precision have plans, in single precision behind ports of half: their answers are those of the same model in single
//! precision, rounded.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::path::Path;

use half::{bf16, f16};
use lapwing_model::{Backend, ExecutorName, Model, ModelOptions, Workspace};
use lapwing_onnx::OnnxFile;
use lapwing_onnx::messages::tensor_proto::DataType;
use lapwing_onnx::messages::type_proto::Value::TensorType;
use lapwing_onnx::messages::{AttributeProto, NodeProto, TensorProto};
use lapwing_onnx::tensor::{Datatype, Tensor, narrowed, widened};
use prost::Message;

fn fixture(name: &str) -> OnnxFile {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/plans").join(name);
    OnnxFile::read(&path).unwrap()
}

/// The same model with weights and ports of half precision.
fn halved(file: &OnnxFile, kind: DataType) -> Vec<u8> {
    let mut proto = file.proto.clone();
    let graph = proto.graph.as_mut().unwrap();
    for weight in graph.initializer.iter_mut().filter(|weight| weight.data_type == DataType::Float as i32) {
        let numbers = weight.raw_data.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
        let half =
            |x: f32| if kind == DataType::Float16 { f16::from_f32(x).to_le_bytes() } else { bf16::from_f32(x).to_le_bytes() };
        weight.raw_data = numbers.flat_map(half).collect();
        weight.data_type = kind as i32;
    }
    for port in graph.input.iter_mut().chain(&mut graph.output) {
        let Some(TensorType(tensor)) = port.r#type.as_mut().and_then(|kind| kind.value.as_mut()) else { panic!("{port:?}") };
        tensor.elem_type = kind as i32;
    }
    proto.encode_to_vec()
}

fn options() -> ModelOptions {
    ModelOptions { backend: Backend::Plan, ..ModelOptions::default() }
}

#[test]
fn a_model_of_half_precision_has_a_plan_and_answers_as_in_single() {
    let file = fixture("mlp-3.onnx");
    let single = Model::of(&file, &options()).unwrap();
    let (width, rows) = (single.inputs()[0].shape[1].unwrap(), [1, 3]);
    for (kind, datatype, tolerance) in [(DataType::Float16, Datatype::Fp16, 2e-3), (DataType::Bfloat16, Datatype::Bf16, 2e-2)] {
        let half = Model::parse(&halved(&file, kind), &options()).unwrap();
        assert_eq!((half.executor(), half.batches(), half.precision()), (ExecutorName::Plan, true, "fp32"));
        assert_eq!((half.inputs()[0].datatype, half.outputs()[0].datatype), (datatype, datatype));
        assert_eq!(half.inputs()[0].shape, single.inputs()[0].shape);
        // numbers that half precision has exactly
        let numbers = |rows: usize| -> Vec<f32> { (0..rows * width).map(|at| (at % 9) as f32 / 4.0 - 1.0).collect() };
        let wide = rows.map(|rows| vec![Tensor::f32("in", &[rows, width], &numbers(rows))]);
        let name = single.inputs()[0].name.clone();
        let narrow = wide.each_ref().map(|call| {
            let data = narrowed(datatype, &call[0].data).unwrap();
            vec![Tensor { name: name.clone(), datatype, data, ..call[0].clone() }]
        });
        let run = |model: &Model, calls: &[Vec<Tensor>]| {
            let calls: Vec<&[Tensor]> = calls.iter().map(Vec::as_slice).collect();
            model.run(&mut Workspace::default(), &calls).unwrap().outputs
        };
        let mut accepted = narrow[1].clone();
        assert_eq!(half.accept(&mut accepted).unwrap().rows, 3);
        let (got, wanted) = (run(&half, &narrow), run(&single, &wide));
        for (got, wanted) in got.iter().zip(&wanted) {
            assert_eq!((got[0].datatype, &got[0].shape, &got[0].name), (datatype, &wanted[0].shape, &wanted[0].name));
            for (got, wanted) in got[0].to_f64().iter().zip(wanted[0].to_f64()) {
                assert!((got - wanted).abs() <= tolerance * (1.0 + wanted.abs()), "{datatype:?}: {got} {wanted}");
            }
        }
        // rows together answer as they do alone
        assert_eq!(run(&half, &narrow[..1])[0], got[0]);
        assert!(widened(datatype, &got[0][0].data).is_some());
    }
}

#[test]
fn a_file_with_any_number_of_half_precision_is_of_half_precision() {
    let file = fixture("mlp-3.onnx");
    assert_eq!(file.number_format(), "fp32");
    let format = |bytes: Vec<u8>| OnnxFile::parse(bytes.into()).unwrap().number_format();
    assert_eq!(format(halved(&file, DataType::Float16)), "fp16");
    assert_eq!(format(halved(&file, DataType::Bfloat16)), "bf16");
    let with = |op_type: &str, attribute: AttributeProto| {
        let mut proto = file.proto.clone();
        let node =
            NodeProto { op_type: op_type.into(), output: vec!["more".into()], attribute: vec![attribute], ..Default::default() };
        proto.graph.as_mut().unwrap().node.push(node);
        format(proto.encode_to_vec())
    };
    let named = |name: &str| AttributeProto { name: name.into(), ..Default::default() };
    let to = |kind: DataType| AttributeProto { i: i64::from(kind as i32), ..named("to") };
    assert_eq!((with("Cast", to(DataType::Float16)), with("Cast", to(DataType::Float))), ("fp16", "fp32"));
    let constant = TensorProto { data_type: DataType::Bfloat16 as i32, dims: vec![0], ..Default::default() };
    assert_eq!(with("Constant", AttributeProto { t: Some(constant), ..named("value") }), "bf16");
}
