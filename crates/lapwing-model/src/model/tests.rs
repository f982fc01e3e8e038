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

/// A call of a decoder with 2 heads of 4 columns in its cache: `tokens` after `past`, whose keys and values these are.
fn decoder_call(tokens: &[i64], past: usize, cache: &[Tensor]) -> Vec<Tensor> {
    let (new, all) = (tokens.len(), past + tokens.len());
    let positions: Vec<i64> = (past as i64..all as i64).collect();
    let kept = |at: usize, name: &str| match cache.get(at) {
        Some(tensor) => Tensor { name: name.into(), ..tensor.clone() },
        None => Tensor::f32(name, &[1, 2, 0, 4], &[]),
    };
    vec![
        Tensor::i64("input_ids", &[1, new], tokens),
        Tensor::i64("attention_mask", &[1, all], &vec![1; all]),
        Tensor::i64("position_ids", &[1, new], &positions),
        kept(0, "past_key_values.0.key"),
        kept(1, "past_key_values.0.value"),
    ]
}

#[test]
fn a_decoder_goes_on_where_its_cache_ends() {
    let model = Model::read(&fixture("transformers-5-cache-llama-sdpa-script"), &ModelOptions::default()).unwrap();
    assert_eq!((model.executor(), model.batches()), (ExecutorName::Plan, true));
    let mut workspace = Workspace::default();
    let tokens = [[5, 9, 3, 7, 30, 12], [8, 4, 4, 22, 17, 6]];
    // all at once, without a past
    let mut whole = tokens.map(|tokens| decoder_call(&tokens, 0, &[]));
    let work = model.accept(&mut whole[0]).unwrap();
    let flops = |pairs: &[(usize, usize)]| model.plan().unwrap().total(BatchSize::of_pairs(pairs.iter().copied())).cost.flops;
    assert_eq!((work.rows, work.executed, work.flops), (1, 6, Some((flops(&[(6, 0)]), flops(&[(6, 0)])))));
    let wanted = whole.each_ref().map(|call| model.run(&mut workspace, &[call]).unwrap().outputs.remove(0));
    // in two steps; the second ones together, after pasts of different lengths
    let mut second: Vec<Vec<Tensor>> = Vec::new();
    for (tokens, cut) in tokens.iter().zip([2, 5]) {
        let first = model.run(&mut workspace, &[&decoder_call(&tokens[..cut], 0, &[])]).unwrap().outputs.remove(0);
        assert_eq!((&first[1].shape, &first[2].name), (&vec![1, 2, cut, 4], &"present.0.value".to_owned()));
        second.push(decoder_call(&tokens[cut..], cut, &first[1..]));
        let work = model.accept(second.last_mut().unwrap()).unwrap();
        let pairs = [(6 - cut, cut)];
        assert_eq!((work.executed, work.useful, work.flops), (6 - cut, 6 - cut, Some((flops(&pairs), flops(&pairs)))));
    }
    let ran = model.run(&mut workspace, &[&second[0], &second[1]]).unwrap();
    for ((got, wanted), cut) in ran.outputs.iter().zip(&wanted).zip([2, 5]) {
        assert_eq!((&got[0].shape, &got[1].shape), (&vec![1, 6 - cut, 40], &vec![1, 2, 6, 4]));
        let near = |got: &[f32], wanted: &[f32]| {
            got.len() == wanted.len() && got.iter().zip(wanted).all(|(a, b)| (a - b).abs() <= 1e-4 * (1.0 + b.abs()))
        };
        assert!(near(&got[0].to_f32(), &wanted[0].to_f32()[cut * 40..]), "logits after {cut}");
        assert!(near(&got[1].to_f32(), &wanted[1].to_f32()) && near(&got[2].to_f32(), &wanted[2].to_f32()), "cache after {cut}");
    }
    // padding of the past and of the tokens
    second[0][1] = Tensor::i64("attention_mask", &[1, 6], &[0, 1, 0, 1, 1, 1]);
    let work = model.accept(&mut second[0]).unwrap();
    assert_eq!((work.executed, work.useful, work.flops), (4, 3, Some((flops(&[(4, 2)]), flops(&[(3, 1)])))));
}

#[test]
fn caches_that_do_not_fit_are_named() {
    let model = Model::read(&fixture("transformers-5-cache-llama-sdpa-script"), &ModelOptions::default()).unwrap();
    let keys = |past: usize| Tensor::f32("k", &[1, 2, past, 4], &vec![0.5; past * 8]);
    let refused = |change: &dyn Fn(&mut Vec<Tensor>)| {
        let mut call = decoder_call(&[3, 4, 5], 2, &[keys(2), keys(2)]);
        change(&mut call);
        model.accept(&mut call).unwrap_err().to_string()
    };
    let short = refused(&|call| call[4] = Tensor { name: call[4].name.clone(), ..keys(1) });
    assert_eq!(short, "past_key_values.0.value: axis 2 has length 1, that of the inputs before it 2");
    let mask = refused(&|call| call[1] = Tensor::i64("attention_mask", &[1, 3], &[1; 3]));
    assert_eq!(mask, "attention_mask: axis 1 has length 3, the past and the tokens are 2 and 3");
    let none = refused(&|call| call[0] = Tensor::i64("input_ids", &[1, 0], &[]));
    assert_eq!(none, "input_ids: expected shape [-1, -1], got [1, 0]");
    let long = 1 << 14;
    let mut call = decoder_call(&[3], long, &[keys(long), keys(long)]);
    let refused = model.accept(&mut call).unwrap_err().to_string();
    assert_eq!(refused, "input_ids: sequences have 1 tokens after a past of 16384, the model's positions end at 16384");
}

#[test]
fn a_file_of_a_fixed_number_of_rows_has_a_plan_of_any() {
    let load = |backend| Model::read(&fixture("fixed-batch"), &ModelOptions { backend, ..ModelOptions::default() }).unwrap();
    let [planned, named, by_rten] = [Backend::Auto, Backend::Plan, Backend::Rten].map(load);
    assert_eq!([planned.executor(), named.executor()], [ExecutorName::Plan; 2]);
    assert_eq!((&planned.inputs()[0].shape[..], planned.batches()), (&[Some(8), Some(4)][..], true));
    let call = |from: u8| {
        let numbers: Vec<f32> = (0..32).map(|n| f32::from(n + from) / 7.0 - 2.0).collect();
        vec![Tensor::f32("x", &[8, 4], &numbers)]
    };
    let (mut first, mut second) = (call(0), call(5));
    for call in [&mut first, &mut second] {
        assert_eq!(planned.accept(call).unwrap().rows, 8);
    }
    let run = |model: &Model| model.run(&mut Workspace::default(), &[&first, &second]).unwrap().outputs;
    for (of_plan, of_rten) in run(&planned).iter().flatten().zip(run(&by_rten).iter().flatten()) {
        assert_eq!((&of_plan.shape[..], &of_rten.shape[..]), (&[8, 3][..], &[8, 3][..]));
        let pairs = of_plan.to_f32().into_iter().zip(of_rten.to_f32());
        assert!(pairs.into_iter().all(|(one, other)| (one - other).abs() < 1e-5), "{of_plan:?} {of_rten:?}");
    }
    let refused = planned.accept(&mut [Tensor::f32("x", &[7, 4], &[0.0; 28])]).unwrap_err().to_string();
    assert!(refused.contains("[8, 4]"), "{refused}");
}
