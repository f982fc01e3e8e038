//! Holds an executor against ONNX Runtime on generated calls when a model is loaded, in two batch sizes where the first axis is open. It says
//! what differs, and where nothing could be compared, why; it judges no time.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::executor::{Executor, Workspace};
use super::generated::call;
use lapwing_engine::clock::Stamp;
use lapwing_engine::onnxruntime::Session;
use lapwing_onnx::EngineError;
use lapwing_onnx::OnnxFile;
use lapwing_onnx::tensor::{Datatype, Tensor, TensorSpec};

/// Rows of the calls, where the first axis is open. Several rows show a label that never changes, and rows that touch one another.
const ROWS: [usize; 2] = [1, 7];
/// Lengths of other open axes, the first that ONNX Runtime takes: tokens, then sides of pictures.
pub(crate) const LENGTHS: [usize; 3] = [12, 64, 224];
/// A run that takes longer is the last one.
const LONGEST_NS: u64 = 2_000_000_000;
/// What came of holding an executor against ONNX Runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verification {
    /// Every output was the same, within the tolerance, in calls of so many rows.
    Agrees {
        /// The rows of each call.
        rows: Vec<usize>,
    },
    /// They disagree: the output, and by how much.
    Differs(String),
    /// Nothing was compared, and why.
    NotCompared(String),
}

impl fmt::Display for Verification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agrees { rows } => {
                let rows: Vec<String> = rows.iter().map(usize::to_string).collect();
                write!(f, "agrees with ONNX Runtime on generated calls of {} rows", rows.join(" and "))
            }
            Self::Differs(difference) => f.write_str(difference),
            Self::NotCompared(reason) => write!(f, "not compared: {reason}"),
        }
    }
}

/// Compares the executor of a file with ONNX Runtime.
pub(crate) fn compare(executor: &dyn Executor, reference: &Session, file: Option<&OnnxFile>) -> Verification {
    let tolerance = Tolerance::of(executor, file);
    let is_open = executor.inputs().iter().any(|port| matches!(port.shape.first(), Some(None)));
    let mut compared = Vec::new();
    let mut unjudged = None;
    for rows in ROWS.into_iter().take(if is_open { ROWS.len() } else { 1 }) {
        match compare_rows(executor, reference, rows, tolerance) {
            Outcome::Same { is_slow } => {
                compared.push(rows);
                if is_slow {
                    break;
                }
            }
            Outcome::Different(difference) => return Verification::Differs(format!("{difference}, in a call of {rows} rows")),
            Outcome::Unjudged(reason) => {
                unjudged = Some(reason);
                break;
            }
        }
    }
    match unjudged {
        Some(reason) if compared.is_empty() => Verification::NotCompared(reason),
        _ => Verification::Agrees { rows: compared },
    }
}

enum Outcome {
    Same { is_slow: bool },
    Different(String),
    Unjudged(String),
}

fn compare_rows(executor: &dyn Executor, reference: &Session, rows: usize, tolerance: Tolerance) -> Outcome {
    let mut refused = "the call would be too large".to_owned();
    for length in LENGTHS {
        let Some(call) = call(executor, rows, length) else { continue };
        let began = Stamp::now();
        let wanted = match run_reference(reference, &call) {
            Ok(wanted) => wanted,
            Err(reason) => {
                refused = format!("ONNX Runtime does not take a generated call: {reason}");
                continue;
            }
        };
        if began.elapsed() > LONGEST_NS {
            return Outcome::Unjudged(format!("a run of ONNX Runtime takes {} ms", began.elapsed() / 1_000_000));
        }
        // what draws random numbers is not even like itself
        match run_reference(reference, &call) {
            Ok(again) if differs(&again, &wanted, tolerance).is_none() => {}
            _ => return Outcome::Unjudged("ONNX Runtime does not answer equal calls alike".to_owned()),
        }
        let began = Stamp::now();
        return match run(executor, &call) {
            Err(EngineError::Input { tensor, reason }) => {
                Outcome::Unjudged(format!("{} does not take a generated call: {tensor}: {reason}", executor.name()))
            }
            Err(error) => Outcome::Different(format!("{} fails where ONNX Runtime answers: {error}", executor.name())),
            Ok(got) => match differs(&got, &wanted, tolerance) {
                Some(difference) => Outcome::Different(format!("{} differs from ONNX Runtime: {difference}", executor.name())),
                None => Outcome::Same { is_slow: began.elapsed() > LONGEST_NS },
            },
        };
    }
    Outcome::Unjudged(refused)
}

fn run(executor: &dyn Executor, call: &[Tensor]) -> Result<Vec<Tensor>, EngineError> {
    executor.accept(call)?;
    let all = vec![true; executor.outputs().len()];
    let ran = catch_unwind(AssertUnwindSafe(|| executor.run(&mut Workspace::default(), &[call], &all)));
    let ran = ran.unwrap_or_else(|_| Err(EngineError::Run { reason: "it gave up".into() }))?;
    Ok(ran.outputs.into_iter().next().unwrap_or_default())
}

/// Runs a call whose tensors are in another executor's order.
fn run_reference(reference: &Session, call: &[Tensor]) -> Result<Vec<Tensor>, String> {
    let of = |port: &TensorSpec| {
        let found = call.iter().find(|tensor| tensor.name == port.name && tensor.datatype == port.datatype);
        found.cloned().ok_or_else(|| format!("it has an input {}, {}", port.name, port.datatype.name()))
    };
    let call: Vec<Tensor> = reference.inputs().iter().map(of).collect::<Result<_, _>>()?;
    reference.run(&call, &vec![true; reference.outputs().len()]).map(|ran| ran.outputs).map_err(|error| error.to_string())
}

/// How far two answers may be apart.
#[derive(Clone, Copy)]
pub(crate) struct Tolerance {
    /// For any element.
    absolute: f64,
    /// Times the largest element of the output.
    relative: f64,
    /// Or the norm of the difference, times that of the output.
    norm: f64,
}

impl Tolerance {
    /// A cosine of 0.9999.
    const NORM: f64 = 0.014;
    const SINGLE: Self = Self { absolute: 1e-5, relative: 1e-4, norm: Self::NORM };
    const HALF: Self = Self { absolute: 5e-3, relative: 5e-3, norm: Self::NORM };
    /// Two steps of 8 bits: ONNX Runtime fuses quantized nodes, and is a step from itself without that.
    const QUANTIZED: Self = Self { absolute: 1e-5, relative: 0.01, norm: Self::NORM };

    /// Between an executor of a file and ONNX Runtime.
    fn of(executor: &dyn Executor, file: Option<&OnnxFile>) -> Self {
        if file.is_some_and(OnnxFile::quantizes) { Self::QUANTIZED } else { Self::of_precision(executor, file) }
    }

    /// Between two runs of one executor, which differ in the order of sums only.
    pub(crate) fn of_rounding(executor: &dyn Executor, file: Option<&OnnxFile>) -> Self {
        Self { norm: 0.0, ..Self::of_precision(executor, file) }
    }

    fn of_precision(executor: &dyn Executor, file: Option<&OnnxFile>) -> Self {
        let is_half = file.is_some_and(|file| file.number_format() != "fp32") || executor.placement().precision != "fp32";
        if is_half { Self::HALF } else { Self::SINGLE }
    }
}

/// The first output that differs, and how.
fn differs(got: &[Tensor], wanted: &[Tensor], tolerance: Tolerance) -> Option<String> {
    wanted.iter().find_map(|wanted| {
        let Some(got) = got.iter().find(|got| got.name == wanted.name) else {
            return Some(format!("output {} is not made", wanted.name));
        };
        difference(got, wanted, tolerance).map(|how| format!("output {} {how}", wanted.name))
    })
}

/// How one tensor differs from another.
pub(crate) fn difference(got: &Tensor, wanted: &Tensor, tolerance: Tolerance) -> Option<String> {
    if got.shape != wanted.shape || got.datatype != wanted.datatype {
        let said = |tensor: &Tensor| format!("{} {:?}", tensor.datatype.name(), tensor.shape);
        return Some(format!("is {}, not {}", said(got), said(wanted)));
    }
    if got.data == wanted.data {
        return None;
    }
    let is_float = matches!(wanted.datatype, Datatype::Fp16 | Datatype::Bf16 | Datatype::Fp32 | Datatype::Fp64);
    let (numbers, right) = (got.to_f64(), wanted.to_f64());
    let largest = right.iter().filter(|x| x.is_finite()).fold(0.0_f64, |most, x| most.max(x.abs()));
    let most = if is_float { tolerance.absolute + tolerance.relative * largest } else { 0.0 };
    let is_near = |(got, right): (&f64, &f64)| got == right || (got.is_nan() && right.is_nan()) || (got - right).abs() <= most;
    let at = numbers.iter().zip(&right).position(|pair| !is_near(pair))?;
    if is_float && is_near_in_all(&numbers, &right, tolerance.norm) {
        return None;
    }
    Some(format!("has {} at element {at} of {:?}, not {}", numbers[at], wanted.shape, right[at]))
}

/// Whether the difference of two vectors is small beside them; never for those that are not finite.
fn is_near_in_all(got: &[f64], right: &[f64], most: f64) -> bool {
    let norm = |numbers: &mut dyn Iterator<Item = f64>| numbers.map(|x| x * x).sum::<f64>().sqrt();
    // a few numbers have a direction by chance
    right.len() >= 16
        && norm(&mut got.iter().zip(right).map(|(got, right)| got - right)) <= most * norm(&mut right.iter().copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(shape: &[usize], numbers: &[f32]) -> Tensor {
        Tensor::f32("y", shape, numbers)
    }

    #[test]
    fn numbers_may_be_apart_by_the_tolerance_and_whole_ones_not_at_all() {
        let wanted = of(&[2, 2], &[1.0, -100.0, 0.0, f32::NAN]);
        let single = |numbers: &[f32]| difference(&of(&[2, 2], numbers), &wanted, Tolerance::SINGLE);
        assert_eq!(single(&[1.0, -100.009, 0.009, f32::NAN]), None);
        assert_eq!(single(&[1.0, -100.0, 0.02, f32::NAN]).unwrap(), "has 0.019999999552965164 at element 2 of [2, 2], not 0");
        assert!(single(&[1.0, -100.0, 0.0, 0.0]).unwrap().starts_with("has 0 at element 3"));
        assert!(
            difference(&of(&[4], &[0.0; 4]), &wanted, Tolerance::SINGLE).unwrap().starts_with("is FP32 [4], not FP32 [2, 2]")
        );
        let label = |label| Tensor::i64("label", &[1], &[label]);
        assert!(difference(&label(0), &label(1), Tolerance::HALF).is_some());
        assert_eq!(difference(&label(1), &label(1), Tolerance::HALF), None);
        let infinite = of(&[2], &[f32::INFINITY, 1.0]);
        assert_eq!(difference(&infinite, &infinite, Tolerance::SINGLE), None);
        assert!(difference(&of(&[2], &[f32::NEG_INFINITY, 1.0]), &infinite, Tolerance::SINGLE).is_some());
    }

    #[test]
    fn a_vector_may_be_near_as_a_whole_and_a_few_numbers_not() {
        let wanted: Vec<f32> = (0..64).map(|at| (at as f32).sin()).collect();
        let off = |by: f32| wanted.iter().enumerate().map(|(at, x)| x + if at % 2 == 0 { by } else { -by }).collect::<Vec<_>>();
        let of_all = |by: f32| difference(&of(&[64], &off(by)), &of(&[64], &wanted), Tolerance::SINGLE);
        assert_eq!((of_all(0.008), of_all(0.02).is_some()), (None, true));
        // twice an output has the same direction, and is wrong
        let twice: Vec<f32> = wanted.iter().map(|x| 2.0 * x).collect();
        assert!(difference(&of(&[64], &twice), &of(&[64], &wanted), Tolerance::SINGLE).is_some());
        assert!(difference(&of(&[2], &off(0.008)[..2]), &of(&[2], &wanted[..2]), Tolerance::SINGLE).is_some());
    }

    #[test]
    fn what_is_not_made_is_named() {
        let (y, label) = (of(&[1], &[1.0]), Tensor::i64("label", &[1], &[1]));
        assert_eq!(differs(&[label.clone(), y.clone()], &[y.clone(), label.clone()], Tolerance::SINGLE), None);
        assert_eq!(
            differs(std::slice::from_ref(&y), &[y.clone(), label], Tolerance::SINGLE).unwrap(),
            "output label is not made"
        );
        assert_eq!(
            Verification::Agrees { rows: vec![1, 7] }.to_string(),
            "agrees with ONNX Runtime on generated calls of 1 and 7 rows"
        );
    }
}
