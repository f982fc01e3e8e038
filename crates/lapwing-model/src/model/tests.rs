//! The demo's model against what numpy computed in float64, by its plan and by rten, and what is refused.

use serde::Deserialize;

use super::{CallWork, ExecutorName, Model, ModelOptions, Workspace};
use crate::choice::Backend;
use lapwing_onnx::tensor::Tensor;
use lapwing_plan::exec::CpuPrecision;
use lapwing_plan::plan::BatchSize;

const DIGITS: &[u8] = include_bytes!("../../../../tests/fixtures/digits/digits.onnx");

#[derive(Deserialize)]
struct Golden {
    input: Vec<Vec<f32>>,
    logits: Vec<Vec<f32>>,
}

fn golden() -> Golden {
    serde_json::from_str(include_str!("../golden/digits.json")).unwrap()
}

fn models() -> Vec<Model> {
    let load = |backend| Model::parse(DIGITS, &ModelOptions { backend, ..ModelOptions::default() }).unwrap();
    let models = vec![load(Backend::Auto), load(Backend::Rten)];
    assert_eq!(models.iter().map(Model::executor).collect::<Vec<_>>(), [ExecutorName::Plan, ExecutorName::Rten]);
    models
}

fn rows(data: &[Vec<f32>]) -> Vec<Tensor> {
    vec![Tensor::f32("x", &[data.len(), 64], &data.concat())]
}

fn fixture(name: &str) -> std::path::PathBuf {
    std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/plans").join(format!("{name}.onnx"))
}

#[test]
fn logits_equal_numpys_however_rows_are_cut_into_calls() {
    let golden = golden();
    for model in models() {
        let mut workspace = Workspace::default();
        for cut in 1..golden.input.len() {
            let mut calls = [rows(&golden.input[..cut]), rows(&golden.input[cut..])];
            let work = model.accept(&mut calls[0]).unwrap();
            let of_plan = model.plan().map(|plan| plan.total(BatchSize::uniform(1, 1)).cost.flops);
            let one = of_plan.or_else(|| Some(model.work(1, 1)?.flops)).unwrap();
            // whoever runs it, the products are the same
            assert_eq!(one, 100_864, "{}", model.executor());
            let flops = Some((cut as u64 * one, cut as u64 * one));
            assert_eq!(work, CallWork { rows: cut, executed: cut, useful: cut, flops });
            let ran = model.run(&mut workspace, &[&calls[0], &calls[1]]).unwrap();
            let got: Vec<f32> = ran.outputs.iter().flat_map(|outputs| outputs[0].to_f32()).collect();
            assert_eq!(ran.outputs[1][0].shape, [golden.input.len() - cut, 10]);
            for (got, want) in got.iter().zip(golden.logits.concat()) {
                assert!((got - want).abs() < 1e-4, "{}, {cut}: {got} is not {want}", model.executor());
            }
        }
    }
}

#[test]
fn tensors_that_do_not_fit_are_named() {
    for model in models() {
        let refused = |tensors: Vec<Tensor>| model.accept(&mut tensors.clone()[..]).unwrap_err().to_string();
        let short = Tensor { shape: vec![2, 64], ..Tensor::f32("x", &[1, 64], &[0.0; 64]) };
        assert_eq!(refused(vec![short]), "x: shape [2, 64] asks for 512 bytes, got 256");
        let none = Tensor::f32("x", &[0, 64], &[]);
        assert_eq!(refused(vec![none.clone()]), "x: expected shape [-1, 64], got [0, 64]");
        let huge = Tensor { shape: vec![usize::MAX / 2, 64], ..none };
        assert_eq!(refused(vec![huge]), format!("x: shape [{}, 64] asks for more bytes than can be, got 0", usize::MAX / 2));
        assert_eq!(refused(vec![Tensor::i64("x", &[1, 64], &[0; 64])]), "x: expected FP32, got INT64");
        assert_eq!(refused(vec![]), "x: is an input of the model, but is missing; the call has []");
        let twice = vec![Tensor::f32("x", &[1, 64], &[0.0; 64]); 2];
        assert_eq!(refused(twice), "x: is no input of the model, or is repeated; its inputs are [\"x\"]");
    }
}

#[test]
fn what_has_no_plan_is_run_by_rten_and_says_why() {
    let model = Model::read(&fixture("refused-conv"), &ModelOptions::default()).unwrap();
    assert_eq!((model.executor(), model.batches()), (ExecutorName::Rten, false));
    let refused = model.unsupported().unwrap().to_string();
    assert!(refused.starts_with("the_conv"), "{refused}");
    let shape: Vec<usize> = model.inputs()[0].shape.iter().map(|length| length.unwrap_or(2)).collect();
    let mut inputs = vec![Tensor::f32(&model.inputs()[0].name, &shape, &vec![0.5; shape.iter().product()])];
    model.accept(&mut inputs).unwrap();
    let ran = model.run(&mut Workspace::default(), &[&inputs]).unwrap();
    assert!(ran.outputs[0][0].to_f32().iter().all(|x| x.is_finite()));
}

#[test]
fn eight_bits_are_refused_where_there_is_no_plan() {
    let plan = lapwing_engine::cpu::CpuOptions { precision: CpuPrecision::Int8(Vec::new()), ..Default::default() };
    let refused =
        Model::read(&fixture("refused-conv"), &ModelOptions { plan, ..ModelOptions::default() }).unwrap_err().to_string();
    assert!(refused.starts_with("precision: int8 needs a plan, and the model has none: the_conv"), "{refused}");
}

#[test]
fn ids_that_a_table_does_not_have_are_the_callers_fault() {
    let model = Model::read(&fixture("0001"), &ModelOptions::default()).unwrap();
    let of = |id: i64| -> Vec<Tensor> {
        let tensor = |port: &lapwing_onnx::tensor::TensorSpec| {
            Tensor::i64(&port.name, &[1, 3], &[if port.name == "ids" { id } else { 1 }; 3])
        };
        model.inputs().iter().map(tensor).collect()
    };
    let mut good = of(1);
    let work = model.accept(&mut good).unwrap();
    assert_eq!((work.rows, work.executed), (1, 3));
    let flops = |lengths: &[usize]| model.plan().unwrap().total(BatchSize::of(lengths.iter().copied())).cost.flops;
    assert_eq!(work.flops, Some((flops(&[3]), flops(&[3]))));
    let mut padded: Vec<Tensor> = model
        .inputs()
        .iter()
        .map(|port| {
            let mask = [1, 0, 1, 0, 0, 1, 0, 0];
            Tensor::i64(&port.name, &[2, 4], &if port.name == "ids" { [1; 8] } else { mask })
        })
        .collect();
    let work = model.accept(&mut padded).unwrap();
    assert_eq!((work.executed, work.useful), (8, 3));
    assert_eq!(work.flops, Some((flops(&[4, 4]), flops(&[2, 1]))));
    assert!(model.run(&mut Workspace::default(), &[&good]).is_ok());
    let error = model.run(&mut Workspace::default(), &[&of(1_000_000)]).unwrap_err().to_string();
    assert!(error.contains("asks for row 1000000"), "{error}");
}
