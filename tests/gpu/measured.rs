//! Measurements of a device: peaks, empty graphs, and the phases of a run. On the emulated device the figures have no
//! meaning; the tests check only that they are measured.

use std::process::Command;
use std::time::Duration;

use lapwing_engine::gpu::peaks::{GpuPeakSetup, GpuPeaks, LaunchFloors};
use lapwing_engine::gpu::{CudaExecutor, CudaState, GemmPolicy};
use lapwing_plan::exec::{Batch, GpuPrecision};
use lapwing_plan::plan::BatchSize;

use super::common::{OwnedBatch, Random, device, fake, is_real, plan};

#[test]
fn peaks_are_measured() {
    let device = device();
    let setup = GpuPeakSetup::of(&device).unwrap();
    let peaks = GpuPeaks::measure(&device, &setup).unwrap();
    let rates = [peaks.fp32_flops_per_s, peaks.tf32_flops_per_s, peaks.fp16_flops_per_s, peaks.int8_ops_per_s];
    for rate in rates.into_iter().chain([peaks.l2_bytes_per_s, peaks.dram_bytes_per_s]) {
        assert!(rate.is_finite() && rate > 0.0, "{peaks:?}");
    }
    assert!((0.0..1.0).contains(&peaks.spread), "{peaks:?}");
    if is_real() {
        assert!(peaks.fp32_flops_per_s < peaks.tf32_flops_per_s && peaks.tf32_flops_per_s < peaks.fp16_flops_per_s, "{peaks:?}");
        assert!(peaks.dram_bytes_per_s < peaks.l2_bytes_per_s, "{peaks:?}");
    }
}

#[test]
fn empty_graphs_take_time_and_are_measured_once() {
    let mut floors = LaunchFloors::new(&device()).unwrap();
    let (one, many) = (floors.of(1).unwrap(), floors.of(40).unwrap());
    assert!(one > Duration::ZERO && many > one, "{one:?} {many:?}");
    assert_eq!((floors.of(1).unwrap(), floors.of(40).unwrap()), (one, many));
    assert_eq!(floors.mark(40).unwrap(), floors.mark(40).unwrap());
}

#[test]
fn the_parts_of_a_run_are_timed_and_add_up() {
    for (name, lengths, precision) in [
        ("bert-post-1", &[5, 2][..], GpuPrecision::Fp32),
        ("bert-post-1", &[9; 9], GpuPrecision::Int8(Vec::new())),
        ("mlp-3", &[1; 2], GpuPrecision::Fp16),
    ] {
        let plan = plan(name);
        let executor = CudaExecutor::new(plan.clone(), &device(), precision, GemmPolicy::Own).unwrap();
        let (mut state, mut outputs) = (CudaState::default(), Vec::new());
        let owned = OwnedBatch::new(&plan, lengths, &mut Random::new(5));
        let (inputs, wanted) = (owned.inputs(), vec![true; plan.outputs.len()]);
        let batch = Batch { offsets: &owned.offsets, past: &[], inputs: &inputs };
        // with a single run, each step's time is that of the run
        let pieces = executor.time_steps(&mut state, &batch, &wanted, 1).unwrap();
        let program = executor.program(BatchSize::of(lengths.iter().copied()), &wanted).unwrap();
        let nodes: Vec<usize> = program.steps.iter().map(|step| step.node()).collect();
        assert_eq!(pieces.steps.iter().map(|piece| piece.node).collect::<Vec<_>>(), nodes, "{name}");
        let sum: Duration = pieces.steps.iter().map(|piece| piece.time).sum();
        // the resolution of events is half a microsecond at worst
        let off = Duration::from_micros(1 + pieces.steps.len() as u64);
        assert!(sum <= pieces.marked + off && pieces.marked <= sum + off, "{name}: {sum:?} {:?}", pieces.marked);
        let times = pieces.times;
        assert!(times.kernels > Duration::ZERO && times.all >= times.kernels, "{times:?}");
        assert!(times.all <= times.to_device + times.kernels + times.to_host + off, "{times:?}");
        assert!(pieces.stage > Duration::ZERO && pieces.launch > Duration::ZERO, "{pieces:?}");
        // measuring has no side effects on later runs
        executor.run(&mut state, &batch, &wanted, &mut outputs).unwrap();
        let first = outputs.clone();
        executor.time_steps(&mut state, &batch, &wanted, 3).unwrap();
        executor.run(&mut state, &batch, &wanted, &mut outputs).unwrap();
        assert_eq!(outputs, first, "{name}");
    }
}

#[test]
fn the_execution_cost_follows_the_precision() {
    let plan = plan("bert-post-1");
    let size = BatchSize::uniform(9, 9);
    let of =
        |precision| CudaExecutor::new(plan.clone(), &device(), precision, GemmPolicy::Own).unwrap().execution_cost(size).unwrap();
    let (exact, half) = (of(GpuPrecision::Fp32), of(GpuPrecision::Fp16));
    assert_eq!(exact.total, plan.total(size));
    assert!(half.weight_bytes < exact.weight_bytes && half.arena_bytes < exact.arena_bytes);
    assert!(half.total.cost.bytes < exact.total.cost.bytes);
    assert_eq!(exact.nodes.len(), plan.nodes.len());
}

/// The binary itself, as a user starts it.
#[test]
fn the_emulated_device_is_never_benchmarked() {
    // on a machine with a GPU there may be no compiler for the emulated device, and no binary where it was built
    if is_real() {
        return lapwing_testing::not_run("this machine's GPU is under test, not the emulated one");
    }
    let model = format!("{}/tests/fixtures/plans/mlp-3.onnx", env!("CARGO_MANIFEST_DIR"));
    let bench = |device: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lapwing"));
        command.args(["engine", "bench", &model, "--json", "--seconds", "0.01", "--batch", "1", "--device", device]);
        let output = command.arg("--cuda-lib-dir").arg(fake()).output().unwrap();
        (output.status.success(), String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let (is_well, rows, message) = bench("cuda");
    assert!(!is_well && rows.is_empty(), "{rows}");
    assert!(message.contains("device: cuda:0 is lapwing-emulated, which is never measured"), "{message}");
    let (is_well, rows, message) = bench("cuda:3");
    assert!(!is_well && rows.is_empty() && message.contains("device: cuda:3: "), "{rows}{message}");
    let (is_well, rows, _) = bench("auto");
    assert!(is_well && rows.lines().all(|row| row.contains("\"device\":\"cpu\"")), "{rows}");
}
