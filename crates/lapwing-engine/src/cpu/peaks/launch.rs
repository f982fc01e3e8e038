//! The overhead of a node that does no work, and the peaks of an executor's threads.

use super::{Caches, PeakSetup, Peaks, PeaksError, calibrate};
use crate::clock::Stamp;
use crate::cpu::gemm::int8::LevelI8;
use crate::cpu::{Executor, Options, State};
use crate::exec::{Batch, CpuPrecision, Input};
use crate::plan::{Binary, Instruction, Node, Op, Plan, Port, Program, Rows, Type, Value, ValueId};

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
    pub fn of(options: &Options) -> Result<Self, PeaksError> {
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
fn launch_ns(options: &Options) -> Result<f64, PeaksError> {
    let fails = |reason: String| PeaksError::Launch { reason };
    let options = Options { precision: CpuPrecision::Fp32, ..options.clone() };
    let executor = Executor::new(chain(), options).map_err(|e| fails(e.to_string()))?;
    let (mut state, mut outputs) = (State::default(), Vec::new());
    let batch = Batch { offsets: &[0, 1], inputs: &[Input::F32(&[1.0])] };
    let mut fastest = u64::MAX;
    for _ in 0..RUNS {
        let began = Stamp::now();
        executor.run(&mut state, &batch, &mut outputs).map_err(|e| fails(e.to_string()))?;
        fastest = fastest.min(began.elapsed());
    }
    Ok(fastest as f64 / NODES as f64)
}

fn chain() -> Plan {
    let value = Value { rows: Rows::Batch, width: 1, kind: Type::F32 };
    let port = |name: &str, place| Port { name: name.into(), value: ValueId(place), features: vec![1] };
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
        let executor = Executor::new(chain(), Options::default()).unwrap();
        let mut outputs = Vec::new();
        let batch = Batch { offsets: &[0, 1], inputs: &[Input::F32(&[1.0])] };
        executor.run(&mut State::default(), &batch, &mut outputs).unwrap();
        assert_eq!(outputs, [[1.0 + NODES as f32]]);
        assert!(launch_ns(&Options::default()).unwrap() > 0.0);
    }
}
