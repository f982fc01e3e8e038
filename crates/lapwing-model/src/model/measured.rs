//! Times an executor of ours beside ONNX Runtime when a model is loaded: the same generated calls, in turn, in the same threads. What takes
//! longer does not run the model, if the choice is ours.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::Serialize;

use super::executor::{Executor, Workspace};
use super::generated;
use lapwing_engine::clock::Stamp;
use lapwing_engine::onnxruntime::Session;
use lapwing_onnx::tensor::Tensor;

/// Rows of the calls, where the first axis is open.
const ROWS: [usize; 2] = [1, 16];
/// Lengths of other open axes, the first that both take: tokens, then sides of pictures.
const LENGTHS: [usize; 3] = [64, 12, 224];
/// How often each runs a call at most, and at least: the quickest counts, for whatever else the machine does makes runs slower only.
const RUNS: std::ops::RangeInclusive<usize> = 3..=9;
/// A call is run no more often once its runs have taken so long.
const LONGEST_NS: u64 = 300_000_000;
/// How much longer ours may take, as a factor, and in nanoseconds: less is noise.
const MOST: f64 = 1.1;
const MOST_NS: u64 = 20_000;

/// The times of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MeasuredCall {
    /// Its rows.
    pub rows: usize,
    /// The time of the executor's quickest run, in nanoseconds.
    pub executor_ns: u64,
    /// The time of ONNX Runtime's quickest run, in nanoseconds.
    pub onnxruntime_ns: u64,
}

/// What came of timing an executor beside ONNX Runtime; of no calls, if it was not done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Measured {
    /// The calls, small ones first.
    pub calls: Vec<MeasuredCall>,
}

impl Measured {
    /// The geometric mean of the executor's times over ONNX Runtime's; `None` where nothing was measured.
    #[must_use]
    pub fn ratio(&self) -> Option<f64> {
        let of = |call: &MeasuredCall| (call.executor_ns.max(1) as f64 / call.onnxruntime_ns.max(1) as f64).ln();
        let count = self.calls.len();
        (count > 0).then(|| (self.calls.iter().map(of).sum::<f64>() / count as f64).exp())
    }

    /// Whether ONNX Runtime is to run the model.
    pub(crate) fn is_slower(&self) -> bool {
        let by = |call: &MeasuredCall| call.executor_ns.saturating_sub(call.onnxruntime_ns);
        self.ratio().is_some_and(|ratio| ratio > MOST) && self.calls.iter().any(|call| by(call) > MOST_NS)
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(ratio) = self.ratio() else { return f.write_str("not measured") };
        write!(f, "{ratio:.2} of ONNX Runtime's time (")?;
        for (at, call) in self.calls.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            let rows = if call.rows == 1 { "row" } else { "rows" };
            let us = |ns: u64| ns as f64 / 1e3;
            write!(f, "{comma}{} {rows}: {:.1} µs, {:.1} µs", call.rows, us(call.executor_ns), us(call.onnxruntime_ns))?;
        }
        f.write_str(")")
    }
}

/// Times the executor of a model beside ONNX Runtime. A call that either does not take is left out.
pub(crate) fn measure(executor: &dyn Executor, reference: &Session) -> Measured {
    let is_open = executor.inputs().iter().any(|port| matches!(port.shape.first(), Some(None)));
    let mut measured = Measured::default();
    for rows in ROWS.into_iter().take(if is_open { ROWS.len() } else { 1 }) {
        let before = measured.calls.last().map_or(0, |call| call.executor_ns + call.onnxruntime_ns);
        if before.saturating_mul((rows * RUNS.start()) as u64) > 4 * LONGEST_NS {
            break;
        }
        let of = |length| measured_call(executor, reference, &generated::call(executor, rows, length)?);
        let Some(call) = LENGTHS.into_iter().find_map(of) else { break };
        measured.calls.push(call);
    }
    measured
}

fn measured_call(executor: &dyn Executor, reference: &Session, call: &[Tensor]) -> Option<MeasuredCall> {
    let ordered: Option<Vec<Tensor>> =
        reference.inputs().iter().map(|port| call.iter().find(|tensor| tensor.name == port.name).cloned()).collect();
    let (ordered, mut workspace) = (ordered?, Workspace::default());
    let (ours, theirs) = (vec![true; executor.outputs().len()], vec![true; reference.outputs().len()]);
    // a batch that the file fixes has rows of its own
    let rows = executor.accept(call).ok()?.rows;
    let run_ours = |workspace: &mut Workspace| {
        let ran = catch_unwind(AssertUnwindSafe(|| executor.run(workspace, &[call], &ours)));
        ran.ok().and_then(Result::ok)
    };
    let mut quickest = MeasuredCall { rows, executor_ns: u64::MAX, onnxruntime_ns: u64::MAX };
    let began = Stamp::now();
    for run in 0..=*RUNS.end() {
        let at = Stamp::now();
        run_ours(&mut workspace)?;
        let executor_ns = at.elapsed();
        let at = Stamp::now();
        reference.run(&ordered, &theirs).ok()?;
        // the first run of each allocates its memory
        if run > 0 {
            quickest.onnxruntime_ns = quickest.onnxruntime_ns.min(at.elapsed());
            quickest.executor_ns = quickest.executor_ns.min(executor_ns);
        }
        if run >= *RUNS.start() && began.elapsed() > LONGEST_NS {
            break;
        }
    }
    Some(quickest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(calls: &[(u64, u64)]) -> Measured {
        let call = |(at, (executor_ns, onnxruntime_ns)): (usize, &(u64, u64))| MeasuredCall {
            rows: ROWS[at],
            executor_ns: *executor_ns,
            onnxruntime_ns: *onnxruntime_ns,
        };
        Measured { calls: calls.iter().enumerate().map(call).collect() }
    }

    #[test]
    fn what_takes_longer_by_more_than_noise_is_slower() {
        assert!(!Measured::default().is_slower() && Measured::default().ratio().is_none());
        assert!(!of(&[(1_000_000, 2_000_000), (9_000_000, 9_500_000)]).is_slower());
        assert!(of(&[(1_300_000, 1_000_000), (12_000_000, 10_000_000)]).is_slower());
        // 9 % is noise, and so are 15 µs, whatever their ratio
        assert!(!of(&[(1_090_000, 1_000_000)]).is_slower());
        assert!(!of(&[(25_000, 10_000)]).is_slower());
        // slower at one size and quicker at the other
        assert!(!of(&[(2_000_000, 1_000_000), (5_000_000, 10_000_000)]).is_slower());
    }

    #[test]
    fn times_are_told_of_both() {
        assert_eq!(Measured::default().to_string(), "not measured");
        let said = of(&[(1_500_000, 1_000_000), (15_000_000, 10_000_000)]).to_string();
        assert_eq!(said, "1.50 of ONNX Runtime's time (1 row: 1500.0 µs, 1000.0 µs, 16 rows: 15000.0 µs, 10000.0 µs)");
    }
}
