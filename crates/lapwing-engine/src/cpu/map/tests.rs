//! Elementwise programs against an interpreter of single values: exact for exactly rounded operators, else within the
//! tolerance.

use std::sync::Arc;

use proptest::prelude::*;

use super::super::program::ProgramError;
use super::*;

/// Owned values of one argument.
#[derive(Debug, Clone)]
enum Owned {
    F32(Vec<f32>),
    I64(Vec<i64>),
    I32(Vec<i32>),
    Bool(Vec<bool>),
}

impl Owned {
    fn new(kind: u8, len: usize, seed: u32) -> Owned {
        let value = |i: usize| ((i as f32 * 1.37 + (seed % 991) as f32).sin() * 4_375.547).fract() * 3.0;
        let whole = |i: usize| (value(i) * 2.0) as i32;
        match kind % 4 {
            0 => Owned::F32((0..len).map(value).collect()),
            1 => Owned::I64((0..len).map(|i| i64::from(whole(i))).collect()),
            2 => Owned::I32((0..len).map(whole).collect()),
            _ => Owned::Bool((0..len).map(|i| whole(i) > 0).collect()),
        }
    }

    fn data(&self) -> ArgData<'_> {
        match self {
            Owned::F32(x) => ArgData::F32(x),
            Owned::I64(x) => ArgData::I64(x),
            Owned::I32(x) => ArgData::I32(x),
            Owned::Bool(x) => ArgData::Bool(x),
        }
    }

    fn at(&self, i: usize) -> f32 {
        match self {
            Owned::F32(x) => x[i],
            Owned::I64(x) => x[i] as f32,
            Owned::I32(x) => x[i] as f32,
            Owned::Bool(x) => f32::from(u8::from(x[i])),
        }
    }
}

const EXACT_UNARY: [Unary; 8] =
    [Unary::Neg, Unary::Abs, Unary::Square, Unary::Relu, Unary::Floor, Unary::Ceil, Unary::Round, Unary::Not];
const BINARY: [Binary; 11] = [
    Binary::Add,
    Binary::Sub,
    Binary::Mul,
    Binary::Div,
    Binary::Min,
    Binary::Max,
    Binary::Equal,
    Binary::Less,
    Binary::LessOrEqual,
    Binary::Greater,
    Binary::GreaterOrEqual,
];

/// Exactly rounded operators only.
fn exact(instruction: &CpuInstruction, v: &[f32]) -> f32 {
    let truth = |b: bool| f32::from(u8::from(b));
    match *instruction {
        CpuInstruction::Unary(op, a) => match op {
            Unary::Neg => -v[a],
            Unary::Abs => v[a].abs(),
            Unary::Square => v[a] * v[a],
            Unary::Relu => {
                if 0.0 > v[a] {
                    0.0
                } else {
                    v[a]
                }
            }
            Unary::Floor => v[a].floor(),
            Unary::Ceil => v[a].ceil(),
            Unary::Round => v[a].round_ties_even(),
            _ => truth(v[a] == 0.0),
        },
        CpuInstruction::Binary(op, a, b) => match op {
            Binary::Add => v[a] + v[b],
            Binary::Sub => v[a] - v[b],
            Binary::Mul => v[a] * v[b],
            Binary::Div => v[a] / v[b],
            Binary::Min => {
                if v[a] < v[b] {
                    v[a]
                } else {
                    v[b]
                }
            }
            Binary::Max => {
                if v[a] > v[b] {
                    v[a]
                } else {
                    v[b]
                }
            }
            Binary::Equal => truth(v[a] == v[b]),
            Binary::Less => truth(v[a] < v[b]),
            Binary::LessOrEqual => truth(v[a] <= v[b]),
            Binary::Greater => truth(v[a] > v[b]),
            Binary::GreaterOrEqual => truth(v[a] >= v[b]),
        },
        CpuInstruction::Where([c, y, n]) => {
            if v[c] == 0.0 {
                v[n]
            } else {
                v[y]
            }
        }
        _ => f32::NAN,
    }
}

/// A program from random numbers: three arguments, two constants, then operators on earlier values.
fn program(width: usize, args: &[ArgShape], picks: &[(u8, usize, usize, usize)]) -> CpuProgram {
    let mut list: Vec<CpuInstruction> = (0..args.len()).map(CpuInstruction::Arg).collect();
    list.push(CpuInstruction::Row((0..width).map(|i| (i % 7) as f32 - 3.0).collect()));
    list.push(CpuInstruction::Scalar(0.75));
    for &(op, a, b, c) in picks {
        let n = list.len();
        list.push(match op % 4 {
            0 => CpuInstruction::Unary(EXACT_UNARY[c % 8], a % n),
            1 | 2 => CpuInstruction::Binary(BINARY[c % 11], a % n, b % n),
            _ => CpuInstruction::Where([a % n, b % n, c % n]),
        });
    }
    // the last value, some other one, and the last again
    let (last, other) = (list.len() - 1, picks.first().map_or(0, |p| p.1 % list.len()));
    CpuProgram::new(width, args.to_vec(), list, vec![last, other, last]).unwrap()
}

proptest! {
    #[test]
    fn random_programs_are_bit_exact(
        width in prop_oneof![1usize..40, Just(384), Just(2048), Just(2049), Just(4100)],
        shapes in prop::collection::vec((any::<bool>(), any::<bool>(), any::<u8>()), 3),
        picks in prop::collection::vec((any::<u8>(), 0usize..100, 0usize..100, 0usize..100), 0..20),
        lengths in prop::collection::vec(0usize..9, 1..6),
        (skip, seed) in any::<(u8, u32)>(),
    ) {
        let mut offsets = vec![0];
        offsets.extend(lengths.iter().scan(0, |sum, n| { *sum += n; Some(*sum) }));
        let tokens = offsets[lengths.len()];
        let rows = (skip as usize % (tokens + 1))..tokens;
        let args: Vec<ArgShape> = shapes.iter().map(|&(wide, per_sequence, _)| {
            ArgShape { width: if wide { width } else { 1 }, per_sequence }
        }).collect();
        let owned: Vec<Owned> = args.iter().zip(&shapes).map(|(a, s)| {
            Owned::new(s.2, a.width * if a.per_sequence { lengths.len() } else { tokens }, seed)
        }).collect();
        let program = program(width, &args, &picks);
        for level in Level::available() {
            let mut outs: Vec<Vec<f32>> = program.output_widths().map(|w| vec![9.0; w * rows.len()]).collect();
            let mut slices: Vec<&mut [f32]> = outs.iter_mut().map(|o| &mut o[..]).collect();
            let mut scratch = vec![f32::NAN; program.scratch_len()];
            let data: Vec<ArgData<'_>> = owned.iter().map(Owned::data).collect();
            program.run(level, &data, &offsets, rows.clone(), &mut scratch, &mut slices).unwrap();
            for (row, column) in rows.clone().flat_map(|r| (0..width).map(move |c| (r, c))) {
                let sequence = offsets.partition_point(|&o| o <= row) - 1;
                let mut values: Vec<f32> = Vec::new();
                for instruction in &program.instructions {
                    values.push(match instruction {
                        CpuInstruction::Arg(a) => {
                            let r = if args[*a].per_sequence { sequence } else { row };
                            owned[*a].at(if args[*a].width > 1 { r * width + column } else { r })
                        }
                        CpuInstruction::Row(x) => x[column],
                        CpuInstruction::Scalar(x) => *x,
                        other => exact(other, &values),
                    });
                }
                for (o, w) in program.output_widths().enumerate() {
                    let at = (row - rows.start) * w + if w > 1 { column } else { 0 };
                    let (y, r) = (outs[o][at], values[program.outputs[o]]);
                    prop_assert!(y == r || (y.is_nan() && r.is_nan()), "{:?}: {} not {} in {:?}", level, y, r, program);
                }
            }
        }
    }
}

#[test]
fn smooth_functions_agree_with_f64() {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let tanh_gelu = |x: f64| 0.5 * x * (1.0 + (0.797_884_560_802_865_4 * (x + 0.044_715 * x.powi(3))).tanh());
    let cases: [(Unary, &dyn Fn(f64) -> f64); 19] = [
        (Unary::Sqrt, &f64::sqrt),
        (Unary::Rsqrt, &|x| 1.0 / x.sqrt()),
        (Unary::Recip, &|x| 1.0 / x),
        (Unary::Exp, &f64::exp),
        (Unary::Log, &f64::ln),
        (Unary::Sin, &f64::sin),
        (Unary::Cos, &f64::cos),
        (Unary::Tanh, &f64::tanh),
        (Unary::Sigmoid, &sigmoid),
        (Unary::Silu, &|x| x * sigmoid(x)),
        (Unary::GeluTanh, &tanh_gelu),
        (Unary::Pow(2.0), &|x| x.powi(2)),
        (Unary::Pow(3.0), &|x| x.powi(3)),
        (Unary::Pow(0.5), &f64::sqrt),
        (Unary::Pow(-0.5), &|x| 1.0 / x.sqrt()),
        (Unary::Pow(-1.0), &|x| 1.0 / x),
        (Unary::Pow(1.7), &|x| x.powf(f64::from(1.7f32))),
        (Unary::Pow(4.0), &|x| x.powi(4)),
        (Unary::Pow(0.0), &|_| 1.0),
    ];
    let x: Vec<f32> = (1..4000).map(|i| i as f32 * 0.005).chain([1e-20, 1e-6, 1e3]).collect();
    let one = |op| {
        let list = vec![CpuInstruction::Arg(0), CpuInstruction::Unary(op, 0)];
        CpuProgram::new(1, vec![ArgShape { width: 1, per_sequence: false }], list, vec![1]).unwrap()
    };
    let run = |op, level, x: &[f32]| {
        let (program, mut y) = (one(op), vec![f32::NAN; x.len()]);
        let mut scratch = vec![f32::NAN; program.scratch_len()];
        program.run(level, &[ArgData::F32(x)], &[], 0..x.len(), &mut scratch, &mut [&mut y]).unwrap();
        y
    };
    for level in Level::available() {
        for (op, f) in &cases {
            for (&x, y) in x.iter().zip(run(*op, level, &x)) {
                let r = f(f64::from(x));
                let fine = (f64::from(y) - r).abs() <= 1e-5 + 1e-5 * r.abs() || r.abs() > f64::from(f32::MAX);
                assert!(fine, "{op:?}({x}) = {y}, not {r} at {level:?}");
            }
        }
        // constants of erf and of the normal distribution, and the far negative side
        let got = run(Unary::Erf, level, &[0.5, -1.0, 3.0]);
        for (y, r) in got.iter().zip([0.520_499_9, -0.842_700_8, 0.999_977_9]) {
            assert!((y - r).abs() < 1e-6);
        }
        let got = run(Unary::Gelu, level, &[1.0, -1.0, -30.0]);
        for (y, r) in got.iter().zip([0.841_344_8, -0.158_655_25, 0.0]) {
            assert!((y - r).abs() < 1e-6);
        }
        let got = run(Unary::Sigmoid, level, &[-1e30, 1e30, -88.0]);
        assert!(got[0] == 0.0 && got[1] == 1.0 && got[2] >= 0.0);
    }
}

#[test]
fn unsound_programs_are_refused() {
    let arg = |width| vec![ArgShape { width, per_sequence: false }];
    let new = |width, args, list: Vec<CpuInstruction>, outputs| CpuProgram::new(width, args, list, outputs).unwrap_err();
    let read = CpuInstruction::Arg(0);
    assert_eq!(new(0, arg(1), vec![read.clone()], vec![0]), ProgramError::Width);
    assert_eq!(new(4, arg(1), vec![CpuInstruction::Scalar(0.0); 65], vec![0]), ProgramError::TooLong { got: 65 });
    let own = CpuInstruction::Unary(Unary::Neg, 1);
    assert_eq!(new(4, arg(4), vec![read.clone(), own], vec![1]), ProgramError::Order { at: 1, value: 1 });
    assert_eq!(new(4, arg(4), vec![CpuInstruction::Arg(1)], vec![0]), ProgramError::Arg { at: 0, arg: 1, args: 1 });
    let broadcast = |what, got| ProgramError::Broadcast { what, at: 0, got, width: 4 };
    assert_eq!(new(4, arg(3), vec![read.clone()], vec![0]), broadcast("argument", 3));
    assert_eq!(new(4, arg(0), vec![read.clone()], vec![0]), broadcast("argument", 0));
    let row: Arc<[f32]> = Arc::from([1.0; 5]);
    assert_eq!(new(4, arg(4), vec![CpuInstruction::Row(row)], vec![0]), broadcast("instruction", 5));
    assert_eq!(new(4, arg(4), vec![read.clone()], vec![]), ProgramError::Output { at: 0 });
    assert_eq!(new(4, arg(4), vec![read], vec![0, 1]), ProgramError::Output { at: 1 });
}

#[test]
fn wrong_lengths_are_refused_and_work_is_counted() {
    let args = vec![ArgShape { width: 3, per_sequence: false }, ArgShape { width: 1, per_sequence: true }];
    let list = vec![
        CpuInstruction::Arg(0),
        CpuInstruction::Arg(1),
        CpuInstruction::Unary(Unary::Neg, 1),
        CpuInstruction::Binary(Binary::Add, 0, 2),
    ];
    let program = CpuProgram::new(3, args, list, vec![3]).unwrap();
    assert_eq!(program.ops_per_row(), 4);
    let (wide, narrow, mut scratch, mut out) = ([1.0; 12], [true, false], vec![0.0; program.scratch_len()], [0.0; 12]);
    let mut run = |wide: &[f32], narrow: &[bool], offsets: &[usize], rows: Range<usize>, cut: usize, n: usize| {
        let last = scratch.len() - cut;
        let args = [ArgData::F32(wide), ArgData::Bool(narrow)];
        program.run(Level::best(), &args, offsets, rows, &mut scratch[..last], &mut [&mut out[..n]])
    };
    assert_eq!(run(&wide, &narrow, &[0, 3, 4], 0..4, 0, 12), Ok(()));
    assert!(run(&wide[1..], &narrow, &[0, 3, 4], 0..4, 0, 12).is_err());
    assert!(run(&wide, &narrow[1..], &[0, 3, 4], 0..4, 0, 12).is_err());
    assert!(run(&wide, &narrow, &[], 0..4, 0, 12).is_err());
    assert!(run(&wide, &narrow, &[0, 3], 0..4, 0, 12).is_err());
    assert!(run(&wide, &narrow, &[0, 3, 4], 0..4, 1, 12).is_err());
    assert!(run(&wide, &narrow, &[0, 3, 4], 0..4, 0, 11).is_err());
    assert!(run(&wide, &narrow, &[0, 3, 4], Range { start: 3, end: 2 }, 0, 0).is_err());
    assert!(program.run(Level::best(), &[], &[0, 3, 4], 0..4, &mut scratch, &mut [&mut out]).is_err());
    assert!(out[..9] == [0.0; 9] && out[9..] == [1.0; 3]);
}
