//! The overhead of a node that does no work, and the peaks of an executor's threads.

use super::{Caches, PeakSetup, Peaks, PeaksError, calibrate};
use crate::clock::Stamp;
use crate::cpu::gemm::int8::LevelI8;
use crate::cpu::{CpuExecutor, CpuOptions, CpuState};
use lapwing_plan::exec::{Batch, CpuPrecision, Input};
use lapwing_plan::plan::{Binary, ElementType, Instruction, Node, Op, Plan, PlanPort, Program, Rows, Value, ValueId};

/// Number of nodes in the measured plan, so that the fixed cost of a run is negligible.
const NODES: usize = 512;
/// Number of runs; the fastest one counts, because noise only adds time.
const RUNS: usize = 21;

impl Peaks {
    /// Measures the best rates of an executor with these options, on its own threads, in about 100 ms.
    ///
    /// # Errors
    ///
    /// [`PeaksError`] if the threads do not all start in time.
    pub fn of(options: &CpuOptions) -> Result<Self, PeaksError> {
        let setup = PeakSetup {
            level: options.level.runnable(),
            level_i8: LevelI8::for_floats(options.level),
            threads: options.threads.count(),
            launch_ns: launch_ns(options)?,
            caches: Caches::probe(),
        };
        calibrate(&setup, &|work| options.threads.all(work))
    }
}

/// Nanoseconds per node of a plan whose nodes add one number to one number.
fn launch_ns(options: &CpuOptions) -> Result<f64, PeaksError> {
    let fails = |reason: String| PeaksError::Launch { reason };
    let options = CpuOptions { precision: CpuPrecision::Fp32, ..options.clone() };
    let executor = CpuExecutor::new(chain(), options).map_err(|e| fails(e.to_string()))?;
    let (mut state, mut outputs) = (CpuState::default(), Vec::new());
    let batch = Batch { offsets: &[0, 1], past: &[], inputs: &[Input::F32(&[1.0])] };
    let mut fastest = u64::MAX;
    for _ in 0..RUNS {
        let began = Stamp::now();
        executor.run(&mut state, &batch, &mut outputs).map_err(|e| fails(e.to_string()))?;
        fastest = fastest.min(began.elapsed());
    }
    Ok(fastest as f64 / NODES as f64)
}

fn chain() -> Plan {
    let value = Value { rows: Rows::Batch, width: 1, kind: ElementType::F32 };
    let port = |name: &str, place| PlanPort { name: name.into(), value: ValueId(place), features: vec![1] };
    let node = |place| {
        let code = vec![Instruction::Arg(0), Instruction::Scalar(1.0), Instruction::Binary(Binary::Add, 0, 1)];
        let op = Op::Map { program: Program::new(code), args: vec![ValueId(place)] };
        Node { name: "add".into(), op, output: ValueId(place + 1) }
    };
    Plan {
        values: vec![value; NODES + 1],
        weights: Vec::new(),
        inputs: vec![port("x", 0)],
        outputs: vec![port("y", NODES)],
        nodes: (0..NODES).map(node).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chain_adds_one_a_node() {
        let executor = CpuExecutor::new(chain(), CpuOptions::default()).unwrap();
        let mut outputs = Vec::new();
        let batch = Batch { offsets: &[0, 1], past: &[], inputs: &[Input::F32(&[1.0])] };
        executor.run(&mut CpuState::default(), &batch, &mut outputs).unwrap();
        assert_eq!(outputs, [[1.0 + NODES as f32]]);
        assert!(launch_ns(&CpuOptions::default()).unwrap() > 0.0);
    }
}
