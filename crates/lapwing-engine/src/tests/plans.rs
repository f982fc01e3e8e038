//! Plans of the fixtures: random models in the spellings that exporters use, with the results of ONNX Runtime. Each is
//! lowered, fused, and run by the reference interpreter and by the executor with every level of vector instructions
//! that the machine has.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::BTreeMap;
use std::path::PathBuf;

use proptest::prelude::*;
use serde::Deserialize;

use super::naive;
use crate::cpu::level::Level;
use crate::cpu::{CpuExecutor, CpuOptions, CpuState};
use lapwing_onnx::shaped::ShapedGraph;
use lapwing_plan::exec::{Batch, Input, RunError};
use lapwing_plan::plan::{
    Activation, Arena, BatchSize, ElementType, Node, Op, Plan, PlanPort, Rows, Value, ValueId, Weight, WeightId,
};
use lapwing_plan::{fuse, lower};

/// |y − r| ≤ this · (1 + |r|).
pub(crate) const TOLERANCE: f64 = 1e-5;

#[derive(Deserialize)]
struct Meta {
    what: serde_json::Value,
    inputs: BTreeMap<String, Shape>,
    outputs: BTreeMap<String, Shape>,
}

#[derive(Deserialize)]
struct Shape {
    shape: Vec<usize>,
    dtype: String,
}

/// A model with its inputs and the results of ONNX Runtime.
struct Fixture {
    name: String,
    meta: Meta,
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/plans")
}

/// The names of all fixtures with a plan.
pub(crate) fn every() -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder())
        .unwrap()
        .filter_map(|entry| Some(entry.ok()?.file_name().to_str()?.strip_suffix(".json")?.to_owned()))
        .collect();
    names.sort();
    assert!(names.len() >= 18, "{names:?}");
    names
}

/// How the names begin of fixtures that a GPU refuses, and the operation that it has no kernel for.
#[cfg(feature = "cuda")]
pub(crate) const NOT_ON_GPUS: [(&str, &str); 2] = [("transformers-5-cache", "append"), ("transformers-4-cache", "append")];

/// The names of the others.
#[cfg(feature = "cuda")]
pub(crate) fn every_on_gpus() -> Vec<String> {
    every().into_iter().filter(|name| !NOT_ON_GPUS.iter().any(|(begin, _)| name.starts_with(begin))).collect()
}

fn fixtures() -> Vec<Fixture> {
    let read = |name: String| {
        let text = std::fs::read_to_string(folder().join(format!("{name}.json"))).unwrap();
        Fixture { meta: serde_json::from_str(&text).unwrap(), name }
    };
    every().into_iter().map(read).collect()
}

fn load(name: &str) -> std::sync::Arc<ShapedGraph> {
    // fixtures of several pasts share a model
    let model = name.split("-past-").next().unwrap();
    let path = folder().join(format!("{model}.onnx"));
    ShapedGraph::read(&path).unwrap()
}

/// The plan as lowered, and as fused.
pub(crate) fn plans(name: &str) -> (Plan, Plan) {
    let raw = lower::lower(&load(name)).unwrap();
    raw.check().unwrap();
    let mut fused = raw.clone();
    fuse::fuse(&mut fused);
    fused.check().unwrap();
    (raw, fused)
}

impl Fixture {
    fn elements(&self, name: &str, shape: &Shape) -> Vec<f64> {
        let bytes = std::fs::read(folder().join(format!("{}.{name}.bin", self.name))).unwrap();
        match shape.dtype.as_str() {
            "float32" => bytes.chunks(4).map(|c| f64::from(f32::from_le_bytes(c.try_into().unwrap()))).collect(),
            "int64" => bytes.chunks(8).map(|c| i64::from_le_bytes(c.try_into().unwrap()) as f64).collect(),
            other => panic!("{other}"),
        }
    }

    fn inputs(&self, plan: &Plan) -> Vec<Vec<f64>> {
        plan.inputs.iter().map(|port| self.elements(&port.name, &self.meta.inputs[&port.name])).collect()
    }

    fn lengths(&self, plan: &Plan) -> Vec<usize> {
        let shape = &self.meta.inputs[&plan.inputs[0].name].shape;
        vec![if plan.has_tokens() { shape[1] } else { 1 }; shape[0]]
    }

    fn pasts(&self, plan: &Plan) -> Vec<usize> {
        let past = plan.inputs.iter().find(|port| plan.value(port.value).rows == Rows::Past);
        let length = past.map_or(0, |port| self.meta.inputs[&port.name].shape[2]);
        self.lengths(plan).iter().map(|_| length).collect()
    }

    fn hold(&self, plan: &Plan, by: &str, got: &[Vec<f64>]) {
        assert_eq!(plan.outputs.len(), self.meta.outputs.len());
        for (port, got) in plan.outputs.iter().zip(got) {
            let expected = self.elements(&port.name, &self.meta.outputs[&port.name]);
            assert_eq!(expected.len(), got.len(), "{} {}", self.name, port.name);
            for (at, (expected, got)) in expected.iter().zip(got).enumerate() {
                let is_near = (got - expected).abs() <= TOLERANCE * (1.0 + expected.abs()); // no NaN is
                assert!(is_near, "{}.{}[{at}] by {by}: {got}, not {expected}; {}", self.name, port.name, self.meta.what);
            }
        }
    }
}

/// Runs a plan on the CPU.
fn run(executor: &CpuExecutor, state: &mut CpuState, lengths: &[usize], inputs: &[Vec<f64>]) -> Result<Vec<Vec<f64>>, RunError> {
    run_with_past(executor, state, lengths, &vec![0; lengths.len()], inputs)
}

/// The same with pasts of these lengths.
pub(crate) fn run_with_past(
    executor: &CpuExecutor,
    state: &mut CpuState,
    lengths: &[usize],
    pasts: &[usize],
    inputs: &[Vec<f64>],
) -> Result<Vec<Vec<f64>>, RunError> {
    let floats: Vec<Vec<f32>> = inputs.iter().map(|data| data.iter().map(|x| *x as f32).collect()).collect();
    let wholes: Vec<Vec<i64>> = inputs.iter().map(|data| data.iter().map(|x| *x as i64).collect()).collect();
    let plan = executor.plan();
    let given: Vec<Input<'_>> = (plan.inputs.iter().zip(floats.iter().zip(&wholes)))
        .map(|(port, (floats, wholes))| match plan.value(port.value).kind {
            ElementType::F32 => Input::F32(floats),
            _ => Input::I64(wholes),
        })
        .collect();
    let offsets = |lengths: &[usize]| {
        let mut offsets = vec![0];
        lengths.iter().for_each(|length| offsets.push(offsets.last().unwrap() + length));
        offsets
    };
    let (offsets, past) = (offsets(lengths), if plan.has_past() { offsets(pasts) } else { Vec::new() });
    let mut outputs = Vec::new();
    executor.run(state, &Batch { offsets: &offsets, past: &past, inputs: &given }, &mut outputs)?;
    Ok(outputs.iter().map(|output| output.iter().map(|x| f64::from(*x)).collect()).collect())
}

#[test]
fn plans_agree_with_onnx_runtime() {
    for fixture in fixtures() {
        let (raw, fused) = plans(&fixture.name);
        assert!(fused.nodes.len() < raw.nodes.len() || raw.nodes.len() < 3, "{}: {} nodes", fixture.name, fused.nodes.len());
        let (lengths, pasts, inputs) = (fixture.lengths(&fused), fixture.pasts(&fused), fixture.inputs(&fused));
        fixture.hold(&raw, "definition", &naive::run_with_past(&raw, &lengths, &pasts, &inputs));
        fixture.hold(&fused, "definition, fused", &naive::run_with_past(&fused, &lengths, &pasts, &inputs));
        for level in Level::available() {
            let executor = CpuExecutor::new(fused.clone(), CpuOptions { level, ..CpuOptions::default() }).unwrap();
            let mut state = CpuState::default();
            for _ in 0..2 {
                // the second run finds the values of the first in its memory
                fixture.hold(&fused, level.name(), &run_with_past(&executor, &mut state, &lengths, &pasts, &inputs).unwrap());
            }
        }
    }
}

#[test]
fn a_batch_is_its_sequences_end_to_end() {
    for fixture in fixtures() {
        let (_, plan) = plans(&fixture.name);
        if !plan.has_tokens() || plan.has_past() {
            continue;
        }
        // one sequence after the other, and all of them with different lengths at once
        let (lengths, inputs) = (fixture.lengths(&plan), fixture.inputs(&plan));
        let ragged: Vec<usize> = lengths.iter().enumerate().map(|(at, length)| length.saturating_sub(at).max(1)).collect();
        let cut = |data: &[f64], width: usize, at: usize| {
            let first = lengths[..at].iter().sum::<usize>() * width;
            data[first..first + ragged[at] * width].to_vec()
        };
        let parts = |at: usize| -> Vec<Vec<f64>> {
            inputs.iter().zip(&plan.inputs).map(|(data, port)| cut(data, plan.value(port.value).width, at)).collect()
        };
        let all: Vec<Vec<f64>> =
            (0..inputs.len()).map(|input| (0..lengths.len()).flat_map(|at| parts(at)[input].clone()).collect()).collect();
        let executor = CpuExecutor::new(plan.clone(), CpuOptions::default()).unwrap();
        let together = run(&executor, &mut CpuState::default(), &ragged, &all).unwrap();
        let mut alone = vec![Vec::new(); plan.outputs.len()];
        let mut state = CpuState::default();
        for (at, length) in ragged.iter().enumerate() {
            let outputs = run(&executor, &mut state, &[*length], &parts(at)).unwrap();
            alone.iter_mut().zip(outputs).for_each(|(all, one)| all.extend(one));
        }
        for (together, alone) in together.iter().flatten().zip(alone.iter().flatten()) {
            assert!((together - alone).abs() <= TOLERANCE * (1.0 + alone.abs()), "{}: {together} {alone}", fixture.name);
        }
    }
}

#[test]
fn a_layer_is_seven_nodes_and_one_of_an_mlp_is_one() {
    let count = |name: &str| plans(name).1.nodes.len();
    let names = |name: &str| plans(name).1.nodes.iter().map(|node| node.op.name()).collect::<Vec<_>>();
    for kind in ["bert-post", "bert-pre"] {
        let (one, two) = (count(&format!("{kind}-1")), count(&format!("{kind}-2")));
        assert!(two - one <= 7, "{kind}: {one}, {two}: {:?}", names(&format!("{kind}-2")));
        assert!(one <= 9, "{kind}: besides the layer, a lookup and the mask: {:?}", names(&format!("{kind}-1")));
    }
    assert!(count("mlp-3") == 3 && count("mlp-4") == 4, "{:?}", names("mlp-4"));
    // an encoder has other nodes only once for all layers
    for (name, most) in
        [("distilbert-2", 16), ("bert-sdpa-2", 16), ("transformers-5-bert-sdpa-dynamo", 9), ("albert-3", 24), ("roberta", 12)]
    {
        assert!(count(name) <= most, "{name}: {:?}", names(name));
    }
    // ids are looked up in place
    assert_eq!(names("looked-up"), ["map", "embed", "embed", "embed", "concat", "gemm"]);
    assert_eq!(names("pool-sentence")[9..], ["mean_pool", "map"]);
    assert_eq!(names("pool-mean")[9..], ["pool"]);
}

#[test]
fn shared_weights_are_held_once() {
    let (_, plan) = plans("albert-3");
    let products = plan.nodes.iter().filter(|node| node.op.name() == "gemm").count();
    let weights: std::collections::BTreeSet<WeightId> =
        plan.nodes.iter().filter_map(|node| if let Op::Gemm { weight, .. } = node.op { Some(weight) } else { None }).collect();
    assert_eq!((products, weights.len()), (1 + 3 * 4, 1 + 4));
}

#[test]
fn what_has_no_plan_is_refused_by_name() {
    let refused = |name: &str| lower::lower(&load(name)).unwrap_err().to_string();
    let conv = refused("refused-conv");
    assert!(conv.starts_with("the_conv") && conv.contains("Conv") && conv.ends_with("the plan has no such operator"), "{conv}");
    let dots = refused("refused-dots");
    assert!(dots.ends_with("(MatMul): multiplies two matrices in a way that no attention does"), "{dots}");
    let whole = refused("refused-integer-output");
    assert!(whole.ends_with("(ArgMax): the plan has no such operator"), "{whole}");
    let fixed = refused("fixed-batch");
    assert_eq!(fixed, "x (input): axis 0 has the fixed length 8; it must be the batch's");
}

#[test]
fn batches_that_do_not_fit_are_errors() {
    let (_, plan) = plans("0001");
    let (lengths, inputs) = (vec![2, 1], vec![vec![1.0; 3]; plan.inputs.len()]);
    let executor = CpuExecutor::new(plan, CpuOptions::default()).unwrap();
    let error = |lengths: &[usize], inputs: &[Vec<f64>]| run(&executor, &mut CpuState::default(), lengths, inputs).unwrap_err();
    assert!(run(&executor, &mut CpuState::default(), &lengths, &inputs).is_ok());
    assert_eq!(error(&[2, 2], &inputs).to_string(), "ids: expected 4 elements of I64, got 3");
    assert_eq!(error(&[3, 0], &inputs).to_string(), "batch: has a sequence without tokens");
    assert_eq!(error(&[], &inputs).to_string(), "batch: has no sequences");
    assert_eq!(
        error(&lengths, &inputs[1..]).to_string(),
        format!("batch: has {} inputs, the model {}", inputs.len() - 1, inputs.len())
    );
    let mut wild = inputs.clone();
    wild[0][1] = 1e6;
    let told = error(&lengths, &wild).to_string();
    assert!(told.contains("token 1 asks for row 1000000"), "{told}");
}

/// A plan of consecutive products whose weights have no elements, for counting only.
fn products(rows: Rows, layers: &[(usize, usize)]) -> Plan {
    let mut plan = Plan::default();
    let value = |plan: &mut Plan, width| {
        plan.values.push(Value { rows, width, kind: ElementType::F32 });
        ValueId(plan.values.len() - 1)
    };
    let mut x = value(&mut plan, layers[0].0);
    plan.inputs.push(PlanPort { name: "x".into(), value: x, features: vec![layers[0].0] });
    for (k, n) in layers {
        plan.weights.push(Weight { name: "w".into(), rows: *k, width: *n, data: Vec::new().into() });
        let output = value(&mut plan, *n);
        let weight = WeightId(plan.weights.len() - 1);
        let op = Op::Gemm { x, weight, bias: None, activation: Activation::None, residual: None };
        plan.nodes.push(Node { name: "gemm".into(), op, output });
        x = output;
    }
    plan.outputs.push(PlanPort { name: "y".into(), value: x, features: vec![layers[layers.len() - 1].1] });
    plan
}

#[test]
fn work_is_counted_exactly() {
    let mlp = products(Rows::Batch, &[(512, 1024), (1024, 1024), (1024, 1)]);
    let one = mlp.total(BatchSize::uniform(1, 1));
    assert_eq!((one.cost.flops, one.cost.other_ops), (3_147_776, 0), "3.148 MFLOP");
    let parameters = 512 * 1024 + 1024 * 1024 + 1024;
    assert_eq!((mlp.parameters(), one.min_bytes), (parameters, 4 * (parameters + 512 + 1)));
    assert_eq!(one.cost.bytes, 4 * (parameters + 512 + 2 * (1024 + 1024) + 1));

    // MiniLM: six layers of 384 columns with twelve heads, 1536 in the middle
    let layer = [(384, 1152), (384, 384), (384, 1536), (1536, 384)];
    let dense: u64 =
        layer.iter().map(|(k, n)| products(Rows::Token, &[(*k, *n)]).total(BatchSize::uniform(32, 128)).cost.flops).sum();
    let mut attention = products(Rows::Token, &[(384, 1152)]);
    attention.values.push(Value { rows: Rows::Token, width: 384, kind: ElementType::F32 });
    let columns = |from| lapwing_plan::plan::Columns { value: ValueId(1), from };
    let (q, k, v) = (columns(0), columns(384), columns(768));
    let op = Op::Attention {
        q,
        k,
        v,
        heads: 12,
        key_heads: 12,
        head: 32,
        head_out: 32,
        scale: 0.1,
        bias: None,
        by_distance: None,
        is_zero_if_masked: false,
    };
    let node = Node { name: "attention".into(), op, output: ValueId(2) };
    let scores = attention.cost(&node, BatchSize::uniform(32, 128)).flops;
    assert_eq!(scores, 4 * 32 * 128 * 128 * 384);
    assert_eq!((6 * (dense + scores) + 5_000_000) / 10_000_000, 9_180, "91.80 GFLOP");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn values_that_live_together_lie_apart(which in 0_usize..18, batch in 1_usize..40, length in 1_usize..70) {
        let (raw, fused) = plans(&format!("{which:04}"));
        for plan in [raw, fused] {
            let arena = Arena::new(&plan, BatchSize::uniform(batch, length));
            prop_assert_eq!(arena.overlap(&plan), None);
            let all: usize = plan.nodes.iter().map(|node| plan.value(node.output)).map(|v| (batch * length * v.width * 4).next_multiple_of(64)).sum();
            prop_assert!(arena.bytes() <= all);
        }
    }
}
