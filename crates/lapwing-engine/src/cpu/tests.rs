//! The executor on a plan that is large enough to be divided: identical results for any number of threads, and similar
//! results in 8 bits.

use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::threads::Threads;
use super::{CpuExecutor, CpuOptions, CpuState};
use lapwing_plan::exec::{Batch, CpuPrecision, Input};
use lapwing_plan::plan::{
    Activation, Columns, ElementType, Fold, Lookup, Node, Op, Plan, PlanPort, Rows, Value, ValueId, Weight, WeightId,
};

/// A builder of plans for tests.
struct Build {
    plan: Plan,
    random: StdRng,
}

impl Build {
    fn value(&mut self, rows: Rows, width: usize, kind: ElementType) -> ValueId {
        self.plan.values.push(Value { rows, width, kind });
        ValueId(self.plan.values.len() - 1)
    }

    fn weight(&mut self, rows: usize, width: usize) -> WeightId {
        let step = 1.0 / (rows as f32).sqrt();
        let data: Vec<f32> = (0..rows * width).map(|_| self.random.random_range(-step..step)).collect();
        self.plan.weights.push(Weight { name: format!("w{}", self.plan.weights.len()), rows, width, data: data.into() });
        WeightId(self.plan.weights.len() - 1)
    }

    fn node(&mut self, op: Op, rows: Rows, width: usize) -> ValueId {
        let output = self.value(rows, width, ElementType::F32);
        self.plan.nodes.push(Node { name: format!("n{}", self.plan.nodes.len()), op, output });
        output
    }

    fn gemm(&mut self, x: ValueId, width: usize, activation: Activation, residual: Option<ValueId>) -> ValueId {
        let from = self.plan.value(x);
        let (weight, bias) = (self.weight(from.width, width), Some(self.weight(1, width)));
        self.node(Op::Gemm { x, weight, bias, activation, residual }, from.rows, width)
    }
}

/// A complete encoder layer with a head over its sequences: `ids` in, `scores` and `first` out.
fn encoder() -> Plan {
    let mut build = Build { plan: Plan::default(), random: StdRng::seed_from_u64(7) };
    let ids = build.value(Rows::Token, 1, ElementType::I64);
    build.plan.inputs.push(PlanPort { name: "ids".into(), value: ids, features: Vec::new() });
    let tables =
        vec![(build.weight(100, 96), Lookup::Id(Columns { value: ids, from: 0 })), (build.weight(300, 96), Lookup::Position(0))];
    let embedded = build.node(Op::Embed { tables, norm: None }, Rows::Token, 96);
    let (scale, shift) = (Some(build.weight(1, 96)), Some(build.weight(1, 96)));
    let norm = Op::LayerNorm { x: embedded, residual: None, epsilon: 1e-5, scale, shift };
    let normed = build.node(norm, Rows::Token, 96);
    let qkv = build.gemm(normed, 288, Activation::None, None);
    let columns = |from| Columns { value: qkv, from };
    let (q, k, v) = (columns(0), columns(96), columns(192));
    let attention = Op::Attention {
        q,
        k,
        v,
        heads: 3,
        key_heads: 3,
        head: 32,
        head_out: 32,
        scale: 0.2,
        bias: None,
        by_distance: None,
        is_zero_if_masked: false,
    };
    let attended = build.node(attention, Rows::Token, 96);
    let out = build.gemm(attended, 96, Activation::None, Some(normed));
    let up = build.gemm(out, 384, Activation::Gelu, None);
    let down = build.gemm(up, 96, Activation::None, Some(out));
    let pooled = build.node(Op::Pool { x: down, fold: Fold::First }, Rows::Batch, 96);
    let scores = build.gemm(pooled, 40, Activation::Tanh, None);
    for (name, value) in [("tokens", down), ("scores", scores), ("again", scores)] {
        let width = build.plan.value(value).width;
        build.plan.outputs.push(PlanPort { name: name.into(), value, features: vec![width] });
    }
    build.plan.check().unwrap();
    build.plan
}

const LENGTHS: [usize; 5] = [200, 1, 57, 300, 90];

fn run(executor: &CpuExecutor, state: &mut CpuState) -> Vec<Vec<f32>> {
    let tokens: usize = LENGTHS.iter().sum();
    let ids: Vec<i64> = (0..tokens as i64).map(|token| token * 37 % 100).collect();
    let mut offsets = vec![0];
    LENGTHS.iter().for_each(|length| offsets.push(offsets.last().unwrap() + length));
    let mut outputs = Vec::new();
    executor.run(state, &Batch { offsets: &offsets, past: &[], inputs: &[Input::I64(&ids)] }, &mut outputs).unwrap();
    outputs
}

fn options(threads: usize, precision: CpuPrecision) -> CpuOptions {
    CpuOptions { threads: Arc::new(Threads::new(threads, &[]).unwrap()), precision, ..CpuOptions::default() }
}

#[test]
fn any_number_of_threads_makes_the_same() {
    for precision in [CpuPrecision::Fp32, CpuPrecision::Int8(Vec::new())] {
        let one = run(&CpuExecutor::new(encoder(), options(1, precision.clone())).unwrap(), &mut CpuState::default());
        assert_eq!(one[1], one[2], "an output under two names");
        for threads in [2, 3, 7] {
            let executor = CpuExecutor::new(encoder(), options(threads, precision.clone())).unwrap();
            let mut state = CpuState::default();
            for _ in 0..3 {
                let several = run(&executor, &mut state);
                for (one, several) in one.iter().flatten().zip(several.iter().flatten()) {
                    assert!((one - several).abs() <= 1e-5 * (1.0 + one.abs()), "{threads} threads: {several}, not {one}");
                }
            }
        }
    }
}

#[test]
fn eight_bits_are_near_single_precision() {
    let exact = run(&CpuExecutor::new(encoder(), options(1, CpuPrecision::Fp32)).unwrap(), &mut CpuState::default());
    let executor = CpuExecutor::new(encoder(), options(1, CpuPrecision::Int8(Vec::new()))).unwrap();
    assert_eq!(executor.quantized_nodes(), 5, "all products");
    let near = run(&executor, &mut CpuState::default());
    assert_ne!(exact, near);
    for (exact, near) in exact[0].chunks(96).zip(near[0].chunks(96)) {
        let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
        let cosine = dot(exact, near) / (dot(exact, exact) * dot(near, near)).sqrt();
        assert!(cosine >= 0.999, "{cosine}");
    }
}

#[test]
fn an_observer_sees_what_products_are_given() {
    let executor = CpuExecutor::new(encoder(), CpuOptions::default()).unwrap();
    let tokens: usize = LENGTHS.iter().sum();
    let mut seen = Vec::new();
    let mut observer = |node: usize, rows: &[f32], width: usize| seen.push((node, rows.len() / width, width));
    let batch = Batch { offsets: &[0, tokens.min(300)], past: &[], inputs: &[Input::I64(&[5; 300])] };
    executor.observed(&mut CpuState::default(), &batch, &mut Vec::new(), Some(&mut observer)).unwrap();
    assert_eq!(seen, [(2, 300, 96), (4, 300, 96), (5, 300, 96), (6, 300, 384), (8, 1, 96)]);
}
