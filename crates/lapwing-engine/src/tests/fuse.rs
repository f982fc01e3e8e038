//! Random plans give the same results when they are fused, by the reference interpreter and by the executor. They stay
//! valid, and no two live values share memory.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use proptest::prelude::*;

use super::naive;
use crate::cpu::{CpuExecutor, CpuOptions, CpuState};
use lapwing_plan::exec::{Batch, Input};
use lapwing_plan::fuse::fuse;
use lapwing_plan::plan::{
    Activation, Arena, BatchSize, Binary, Columns, ElementType, Fold, Instruction, Lookup, Node, Op, Plan, PlanPort, Program,
    Rows, Unary, Value, ValueId, Weight, WeightId,
};

/// The width of most values; the others are of width 1.
const WIDTH: usize = 6;
const TABLE: usize = 9;
const LENGTHS: [usize; 3] = [4, 1, 3];

struct Build {
    plan: Plan,
}

impl Build {
    fn value(&mut self, rows: Rows, width: usize, kind: ElementType) -> ValueId {
        self.plan.values.push(Value { rows, width, kind });
        ValueId(self.plan.values.len() - 1)
    }

    fn input(&mut self, name: &str, rows: Rows, width: usize, kind: ElementType) {
        let value = self.value(rows, width, kind);
        self.plan.inputs.push(PlanPort { name: name.into(), value, features: vec![width] });
    }

    fn weight(&mut self, rows: usize, width: usize, seed: usize) -> WeightId {
        let data = (0..rows * width).map(|at| ((at * 7 + seed * 3) as f32 * 0.61).sin() * 0.8).collect();
        self.plan.weights.push(Weight { name: format!("w{seed}"), rows, width, data });
        WeightId(self.plan.weights.len() - 1)
    }

    fn push(&mut self, op: Op, rows: Rows, width: usize) -> ValueId {
        let output = self.value(rows, width, ElementType::F32);
        self.plan.nodes.push(Node { name: format!("node{}", output.0), op, output });
        output
    }

    fn map(&mut self, code: Vec<Instruction>, args: Vec<ValueId>, rows: Rows, width: usize) -> ValueId {
        self.push(Op::Map { program: Program::new(code), args }, rows, width)
    }

    /// The first suitable value from index `from` downwards.
    fn find(&self, from: usize, fits: impl Fn(Value) -> bool) -> Option<ValueId> {
        let count = self.plan.values.len();
        (0..count).map(|back| ValueId((from + count - back) % count)).find(|id| fits(self.plan.value(*id)))
    }

    /// Adds one or more nodes.
    #[expect(clippy::too_many_lines, reason = "one arm for each kind of node")]
    fn node(&mut self, (kind, a, b, seed): (u8, usize, usize, usize)) {
        use Instruction::{Arg, Binary as Two, Scalar, Unary as One, Weight as Row};
        let float = |value: Value| value.kind == ElementType::F32;
        let any = self.find(a, |_| true).unwrap();
        let x = self.find(a, float).unwrap();
        let of = self.plan.value(x);
        let ops = [Binary::Add, Binary::Add, Binary::Mul, Binary::Sub, Binary::Max, Binary::Div];
        let op = ops[seed % 6];
        match kind % 16 {
            0 => {
                let unary = [Unary::Tanh, Unary::Relu, Unary::Gelu, Unary::Sigmoid, Unary::Neg, Unary::Abs, Unary::Square];
                let Value { rows, width, .. } = self.plan.value(any);
                self.map(vec![Arg(0), One(unary[seed % 7], 0)], vec![any], rows, width);
            }
            1 => {
                // a divisor that is not zero
                self.map(vec![Arg(0), Scalar(seed as f32 * 0.3 + 0.5), Two(op, 0, 1)], vec![x], of.rows, of.width);
            }
            2 => {
                let row = self.weight(1, of.width, seed);
                let op = if op == Binary::Div { Binary::Mul } else { op };
                self.map(vec![Arg(0), Row(row), Two(op, 0, 1)], vec![x], of.rows, of.width);
            }
            3 | 4 => {
                let op = if op == Binary::Div { Binary::Add } else { op };
                let Some(other) = self.find(b, |v| float(v) && v.rows == of.rows && (v.width == of.width || v.width == 1)) else {
                    return;
                };
                self.map(vec![Arg(0), Arg(1), Two(op, 0, 1)], vec![x, other], of.rows, of.width);
            }
            5 | 6 => {
                let width = [WIDTH, WIDTH, 1][seed % 3];
                let weight = self.weight(of.width, width, seed);
                let bias = (seed % 2 == 0).then(|| self.weight(1, width, seed + 1));
                let activation = [Activation::None, Activation::None, Activation::Relu, Activation::Tanh][seed % 4];
                self.push(Op::Gemm { x, weight, bias, activation, residual: None }, of.rows, width);
            }
            7 => {
                self.push(Op::LayerNorm { x, residual: None, epsilon: 0.1, scale: None, shift: None }, of.rows, of.width);
            }
            8 => {
                // x less its mean, divided by the root of its mean square, as lowering produces norms
                if of.width == 1 {
                    return;
                }
                let sum = self.push(Op::Reduce { x, fold: Fold::Sum }, of.rows, 1);
                let share = Scalar(1.0 / of.width as f32);
                let mean = self.map(vec![Arg(0), share, Two(Binary::Mul, 0, 1)], vec![sum], of.rows, 1);
                let rest = self.map(vec![Arg(0), Arg(1), Two(Binary::Sub, 0, 1)], vec![x, mean], of.rows, of.width);
                self.push(Op::RmsNorm { x: rest, epsilon: 0.1, scale: None }, of.rows, of.width);
            }
            9 => {
                let fold = [Fold::Sum, Fold::Max, Fold::Min, Fold::Mean][seed % 4];
                self.push(Op::Reduce { x, fold }, of.rows, 1);
            }
            10 => {
                let Some(x) = self.find(a, |v| float(v) && v.rows == Rows::Token) else { return };
                let fold = [Fold::Sum, Fold::Max, Fold::First, Fold::Mean][seed % 4];
                self.push(Op::Pool { x, fold }, Rows::Batch, self.plan.value(x).width);
            }
            11 => {
                // a masked mean
                let Some(x) = self.find(a, |v| float(v) && v.rows == Rows::Token) else { return };
                let width = self.plan.value(x).width;
                let mask = self.map(vec![Arg(0)], vec![ValueId(1)], Rows::Token, 1);
                let left = self.map(vec![Arg(0), Arg(1), Two(Binary::Mul, 0, 1)], vec![x, mask], Rows::Token, width);
                let sum = self.push(Op::Pool { x: left, fold: Fold::Sum }, Rows::Batch, width);
                let count = self.push(Op::Pool { x: mask, fold: Fold::Sum }, Rows::Batch, 1);
                let least = self.map(vec![Arg(0), Scalar(0.5), Two(Binary::Max, 0, 1)], vec![count], Rows::Batch, 1);
                self.map(vec![Arg(0), Arg(1), Two(Binary::Div, 0, 1)], vec![sum, least], Rows::Batch, width);
            }
            12 => {
                let Some(q) = self.find(a, |v| float(v) && v.rows == Rows::Token && v.width == WIDTH) else { return };
                let heads: Vec<ValueId> = (0..3)
                    .map(|part| {
                        let (weight, bias) = (self.weight(WIDTH, WIDTH, seed + part), None);
                        let op = Op::Gemm { x: q, weight, bias, activation: Activation::None, residual: None };
                        self.push(op, Rows::Token, WIDTH)
                    })
                    .collect();
                let code = vec![Scalar(1.0), Arg(0), Two(Binary::Sub, 0, 1), Scalar(-9.0), Two(Binary::Mul, 2, 3)];
                let bias = (seed % 2 == 0).then(|| self.map(code, vec![ValueId(1)], Rows::Token, 1));
                let by_distance = (seed % 3 == 0).then(|| self.weight(1 + seed % 2, 5, seed));
                let of = |at: usize| Columns { value: heads[at], from: 0 };
                let (q, k, v) = (of(0), of(1), of(2));
                let op = Op::Attention {
                    q,
                    k,
                    v,
                    heads: 2,
                    key_heads: 2 - seed % 4 / 3,
                    head: 3,
                    head_out: 3,
                    scale: 0.6,
                    bias,
                    by_distance,
                    is_zero_if_masked: seed % 5 == 0,
                };
                self.push(op, Rows::Token, WIDTH);
            }
            13 => {
                let Some(other) = self.find(b, |v| float(v) && v.rows == of.rows) else { return };
                let both = self.push(Op::Concat(vec![x, other]), of.rows, of.width + self.plan.value(other).width);
                let from = self.plan.value(both).width - of.width;
                self.push(Op::Slice(Columns { value: both, from }), of.rows, of.width);
            }
            14 => {
                let lookup =
                    if seed % 2 == 0 { Lookup::Id(Columns { value: ValueId(0), from: 0 }) } else { Lookup::Position(seed % 3) };
                let table = self.weight(TABLE, WIDTH, seed);
                self.push(Op::Embed { tables: vec![(table, lookup)], norm: None }, Rows::Token, WIDTH);
            }
            _ => {
                let Some(x) = self.find(a, |v| float(v) && v.rows == Rows::Token && v.width == WIDTH) else { return };
                let Some(row) = self.find(b, |v| float(v) && v.rows == Rows::Batch && [1, WIDTH].contains(&v.width)) else {
                    return;
                };
                self.map(vec![Arg(0), Arg(1), Two(Binary::Sub, 0, 1)], vec![x, row], Rows::Token, WIDTH);
            }
        }
    }
}

/// Ids, a mask, a matrix of tokens and one of sequences, and random nodes; the last three results are the outputs.
fn plan(picks: &[(u8, usize, usize, usize)]) -> Plan {
    let mut build = Build { plan: Plan::default() };
    build.input("ids", Rows::Token, 1, ElementType::I64);
    build.input("mask", Rows::Token, 1, ElementType::I64);
    build.input("tokens", Rows::Token, WIDTH, ElementType::F32);
    build.input("rows", Rows::Batch, WIDTH, ElementType::F32);
    picks.iter().for_each(|pick| build.node(*pick));
    let mut plan = build.plan;
    let last: Vec<ValueId> = plan.nodes.iter().rev().take(3).map(|node| node.output).collect();
    let port =
        |value: &ValueId| PlanPort { name: format!("v{}", value.0), value: *value, features: vec![plan.value(*value).width] };
    plan.outputs = last.iter().map(port).collect();
    plan
}

fn given() -> Vec<Vec<f64>> {
    let tokens: usize = LENGTHS.iter().sum();
    let number = |at: usize| ((at as f32 * 0.9).cos() * 1.5).into();
    vec![
        (0..tokens).map(|at| (at * 5 % TABLE) as f64).collect(),
        (0..tokens).map(|at| f64::from(u8::from(at % 3 != 1))).collect(),
        (0..tokens * WIDTH).map(number).collect(),
        (0..LENGTHS.len() * WIDTH).map(number).collect(),
    ]
}

fn run(plan: &Plan) -> Vec<Vec<f64>> {
    let inputs = given();
    let wholes: Vec<Vec<i64>> = inputs.iter().map(|data| data.iter().map(|x| *x as i64).collect()).collect();
    let floats: Vec<Vec<f32>> = inputs.iter().map(|data| data.iter().map(|x| *x as f32).collect()).collect();
    let brought = [Input::I64(&wholes[0]), Input::I64(&wholes[1]), Input::F32(&floats[2]), Input::F32(&floats[3])];
    let mut offsets = vec![0];
    LENGTHS.iter().for_each(|length| offsets.push(offsets.last().unwrap() + length));
    let executor = CpuExecutor::new(plan.clone(), CpuOptions::default()).unwrap();
    let mut outputs = Vec::new();
    executor.run(&mut CpuState::default(), &Batch { offsets: &offsets, past: &[], inputs: &brought }, &mut outputs).unwrap();
    outputs.iter().map(|output| output.iter().map(|x| f64::from(*x)).collect()).collect()
}

fn is_near(a: &[Vec<f64>], b: &[Vec<f64>], tolerance: f64) -> bool {
    a.len() == b.len()
        && a.iter()
            .zip(b)
            .all(|(a, b)| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() <= tolerance * (1.0 + a.abs())))
}

/// Whether all numbers are small enough for rounding errors to stay below the tolerance.
fn is_tame(raw: &Plan) -> bool {
    let mut all = raw.clone();
    let port = |node: &Node| PlanPort { name: String::new(), value: node.output, features: Vec::new() };
    all.outputs = raw.nodes.iter().map(port).collect();
    naive::run(&all, &LENGTHS, &given()).iter().flatten().all(|x| x.abs() < 50.0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_fused_plan_means_the_same(
        picks in prop::collection::vec((any::<u8>(), 0_usize..40, 0_usize..40, 0_usize..12), 1..14),
    ) {
        let raw = plan(&picks);
        prop_assume!(raw.nodes.len() >= 3 && is_tame(&raw));
        prop_assert_eq!(raw.check(), Ok(()));
        let mut fused = raw.clone();
        fuse(&mut fused);
        prop_assert_eq!(fused.check(), Ok(()), "{}", fused);
        prop_assert!(fused.nodes.len() <= raw.nodes.len());
        let (was, is) = (naive::run(&raw, &LENGTHS, &given()), naive::run(&fused, &LENGTHS, &given()));
        prop_assert!(is_near(&was, &is, 1e-4), "{raw}\n{fused}\n{was:?}\n{is:?}");
        let ran = run(&fused);
        prop_assert!(is_near(&was, &ran, 1e-3), "{raw}\n{fused}\n{was:?}\n{ran:?}");
        let size = BatchSize::of(LENGTHS);
        for plan in [&raw, &fused] {
            prop_assert_eq!(Arena::new(plan, size).overlap(plan), None);
        }
        // fusion never adds work; but a mask may be read in its original integer type, which is twice as wide
        let wider = (4 * size.tokens * fused.nodes.len()) as u64;
        prop_assert!(fused.total(size).cost.flops <= raw.total(size).cost.flops);
        prop_assert!(fused.total(size).cost.bytes <= raw.total(size).cost.bytes + wider, "{raw}\n{fused}");
    }
}
