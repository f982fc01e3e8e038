//! Every fixture's plan in every precision compared with the CPU; repeated launches; wanted outputs; memory.

use lapwing_engine::gpu::lower::Step;
use lapwing_engine::gpu::{CudaExecutor, CudaState, GemmPolicy};
use lapwing_plan::exec::{Batch, GpuPrecision};
use lapwing_plan::plan::{
    Angles, BatchSize, Columns, ElementType, Node, Op, Plan, PlanPort, Rows, Value, ValueId, Weight, WeightId,
};

use super::common::{OwnedBatch, Random, compare, device, fixtures, libraries, looks_up, on_cpu, plan};

/// A precision with the allowed difference and the least cosine.
fn precisions() -> [(GpuPrecision, f32, f64); 4] {
    [
        (GpuPrecision::Fp32, 1e-5, 0.999_999),
        (GpuPrecision::Tf32, 2e-3, 0.999_9),
        (GpuPrecision::Fp16, 5e-3, 0.999_5),
        (GpuPrecision::Int8(Vec::new()), f32::INFINITY, 0.98),
    ]
}

/// The allowed absolute and relative difference of an output's elements. In single precision it is relative to the
/// element, otherwise to the largest element: a sum of rounded products that cancel out has an error of that magnitude.
fn allowed(precision: &GpuPrecision, tolerance: f32, wanted: &[f32]) -> (f32, f32) {
    let greatest = wanted.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
    if *precision == GpuPrecision::Fp32 { (tolerance, tolerance) } else { (tolerance * (1.0 + greatest), 0.0) }
}

fn run(executor: &CudaExecutor, state: &mut CudaState, owned: &OwnedBatch) -> Vec<Vec<f32>> {
    let mut outputs = Vec::new();
    let batch = Batch { offsets: &owned.offsets, past: &[], inputs: &owned.inputs() };
    let wanted = vec![true; executor.plan().outputs.len()];
    executor.run(state, &batch, &wanted, &mut outputs).unwrap();
    outputs
}

/// The sequence lengths of the batches to try; rows of a table are sequences of one.
fn batches(plan: &Plan) -> Vec<Vec<usize>> {
    let longest = plan.longest().unwrap_or(9).min(9);
    match plan.has_tokens() {
        true => vec![vec![1], vec![longest.min(5), 1, longest, longest.min(3)]],
        false => vec![vec![1], vec![1; 3], vec![1; 19]],
    }
}

/// Runs batches on the device in every precision and returns how they differ from the CPU's results by more than is allowed.
fn differences(name: &str, plan: &Plan, batches: &[OwnedBatch]) -> Vec<String> {
    let mut faults = Vec::new();
    for (precision, tolerance, least) in precisions() {
        let executor = CudaExecutor::new(plan.clone(), &device(), precision.clone(), GemmPolicy::Own).unwrap();
        let mut state = CudaState::default();
        for owned in batches {
            let wanted = on_cpu(plan, owned);
            for (port, (got, wanted)) in plan.outputs.iter().zip(run(&executor, &mut state, owned).iter().zip(&wanted)) {
                let (absolute, relative) = allowed(&precision, tolerance, wanted);
                let (worst, cosine) = compare(got, wanted, absolute, relative);
                if worst > 1.0 || cosine < least {
                    let (output, ends, precision) = (&port.name, &owned.offsets, precision.name());
                    faults.push(format!(
                        "{name}.{output} {ends:?} {precision}: {worst:.2} of the allowed deviation, cosine {cosine:.6}"
                    ));
                }
            }
        }
    }
    faults
}

#[test]
fn every_plan_agrees_with_the_cpu() {
    let mut random = Random::new(7);
    let mut faults = Vec::new();
    for name in fixtures() {
        let plan = plan(&name);
        let batches: Vec<OwnedBatch> =
            batches(&plan).iter().map(|lengths| OwnedBatch::new(&plan, lengths, &mut random)).collect();
        faults.extend(differences(&name, &plan, &batches));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Biases by distance, windows, causal masks and rotations over several tiles of tokens, and queries without a key.
#[test]
fn tokens_apart_and_masked_agree_with_the_cpu() {
    let mut random = Random::new(17);
    let mut faults = Vec::new();
    for name in
        ["relative", "transformers-5-mpnet-script", "transformers-5-modernbert-sdpa-dynamo", "transformers-5-grouped-sdpa-script"]
    {
        let plan = plan(name);
        let longest = plan.longest().unwrap().min(130);
        let mut batches = [[longest, 3, 17], [9, 1, 4]].map(|lengths| OwnedBatch::new(&plan, &lengths, &mut random));
        if name != "relative" {
            batches[1].mask_first(&plan, 3);
        }
        faults.extend(differences(name, &plan, &batches));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// A plan that rotates three heads of 8 of its input, by weights for four positions or by values of each token.
fn rotation(is_by_token: bool) -> Plan {
    let value = |width| Value { rows: Rows::Token, width, kind: ElementType::F32 };
    let port = |(at, name): (usize, &str), width| PlanPort { name: name.into(), value: ValueId(at), features: vec![width] };
    let weight =
        |name: &str| Weight { name: name.into(), rows: 4, width: 8, data: (0..32).map(|at| (at as f32).sin()).collect() };
    let angles = match is_by_token {
        true => Angles::ByToken { cos: ValueId(2), sin: ValueId(3) },
        false => Angles::ByPosition { cos: WeightId(0), sin: WeightId(1) },
    };
    let inputs = [(0, "x", 25), (2, "cos", 8), (3, "sin", 8)].map(|(at, name, width)| port((at, name), width));
    let op = Op::Rotate { x: Columns { value: ValueId(0), from: 1 }, heads: 3, head: 8, angles };
    let plan = Plan {
        values: [25, 24, 8, 8].map(value).into(),
        weights: ["cosines", "sines"].map(weight).into(),
        inputs: inputs[..if is_by_token { 3 } else { 1 }].to_vec(),
        outputs: vec![port((1, "y"), 24)],
        nodes: vec![Node { name: "rotate".into(), op, output: ValueId(1) }],
    };
    plan.check().unwrap();
    plan
}

#[test]
fn rotations_by_position_and_by_token_agree_with_the_cpu() {
    let mut random = Random::new(19);
    for is_by_token in [false, true] {
        let plan = rotation(is_by_token);
        let batches = [&[4, 1, 3][..], &[2]].map(|lengths| OwnedBatch::new(&plan, lengths, &mut random));
        assert_eq!(differences("rotation", &plan, &batches), Vec::<String>::new());
    }
    let plan = rotation(false);
    let executor = CudaExecutor::new(plan.clone(), &device(), GpuPrecision::Fp32, GemmPolicy::Own).unwrap();
    let (mut state, mut outputs) = (CudaState::default(), Vec::new());
    let owned = OwnedBatch::new(&plan, &[2, 5], &mut random);
    let batch = Batch { offsets: &owned.offsets, past: &[], inputs: &owned.inputs() };
    let message = executor.run(&mut state, &batch, &[true], &mut outputs).unwrap_err().to_string();
    assert!(message.ends_with("table cosines has 4 rows, token 6 asks for row 4"), "{message}");
}

#[test]
fn a_thousand_replays_are_equal() {
    let plan = plan("bert-post-1");
    let executor = CudaExecutor::new(plan.clone(), &device(), GpuPrecision::Fp16, GemmPolicy::Own).unwrap();
    let (mut state, mut random) = (CudaState::default(), Random::new(3));
    let owned = OwnedBatch::new(&plan, &[3, 1], &mut random);
    let first = run(&executor, &mut state, &owned);
    for _ in 0..1000 {
        assert!(run(&executor, &mut state, &owned) == first);
    }
}

#[test]
fn a_batch_does_not_see_the_one_before() {
    for name in ["bert-post-1", "mlp-3", "0001"] {
        let plan = plan(name);
        let executor = CudaExecutor::new(plan.clone(), &device(), GpuPrecision::Fp32, GemmPolicy::Own).unwrap();
        let (mut used, mut random) = (CudaState::default(), Random::new(11));
        let large = OwnedBatch::new(&plan, if plan.has_tokens() { &[9, 8, 9] } else { &[1; 3] }, &mut random);
        let small = OwnedBatch::new(&plan, if plan.has_tokens() { &[2, 8, 9] } else { &[1; 3] }, &mut random);
        run(&executor, &mut used, &large);
        assert_eq!(run(&executor, &mut used, &small), run(&executor, &mut CudaState::default(), &small), "{name}");
    }
}

#[test]
fn only_requested_outputs_are_returned() {
    let plan = plan("0001");
    let executor = CudaExecutor::new(plan.clone(), &device(), GpuPrecision::Fp32, GemmPolicy::Own).unwrap();
    let (mut state, mut outputs) = (CudaState::default(), Vec::new());
    let owned = OwnedBatch::new(&plan, &[4, 2], &mut Random::new(5));
    let batch = Batch { offsets: &owned.offsets, past: &[], inputs: &owned.inputs() };
    let all = run(&executor, &mut state, &owned);
    for wanted in [[true, false], [false, true]] {
        executor.run(&mut state, &batch, &wanted, &mut outputs).unwrap();
        for (at, output) in outputs.iter().enumerate() {
            assert!(if wanted[at] { *output == all[at] } else { output.is_empty() });
        }
    }
}

#[test]
fn an_id_that_no_table_has_is_named_and_the_next_batch_is_right() {
    let plan = plan("0001");
    assert!(looks_up(&plan));
    let executor = CudaExecutor::new(plan.clone(), &device(), GpuPrecision::Fp32, GemmPolicy::Own).unwrap();
    let (mut state, mut outputs) = (CudaState::default(), Vec::new());
    let mut owned = OwnedBatch::new(&plan, &[4, 2], &mut Random::new(5));
    let first = run(&executor, &mut state, &owned);
    let good = OwnedBatch::new(&plan, &[4, 2], &mut Random::new(5));
    owned.spoil();
    let batch = Batch { offsets: &owned.offsets, past: &[], inputs: &owned.inputs() };
    let message = executor.run(&mut state, &batch, &vec![true; plan.outputs.len()], &mut outputs).unwrap_err().to_string();
    assert!(message.contains("token 1 asks for row 1000000"), "{message}");
    assert_eq!(run(&executor, &mut state, &good), first);
}

#[test]
fn a_timed_run_returns_times_and_the_same_outputs() {
    let plan = plan("bert-post-1");
    let executor = CudaExecutor::new(plan.clone(), &device(), GpuPrecision::Fp32, GemmPolicy::Own).unwrap();
    let (mut state, mut outputs) = (CudaState::default(), Vec::new());
    let owned = OwnedBatch::new(&plan, &[5, 2], &mut Random::new(5));
    let batch = Batch { offsets: &owned.offsets, past: &[], inputs: &owned.inputs() };
    let wanted = vec![true; plan.outputs.len()];
    let times = executor.timed(&mut state, &batch, &wanted, &mut outputs).unwrap();
    assert!(times.all >= times.kernels && times.kernels.as_nanos() > 0, "{times:?}");
    assert_eq!(outputs, run(&executor, &mut state, &owned));
}

#[test]
fn products_by_the_library_agree_with_the_cpu() {
    let mut random = Random::new(13);
    let cases = ["bert-post-2", "mlp-4"].map(plan).into_iter().flat_map(|plan| precisions().map(|case| (plan.clone(), case)));
    for (plan, (precision, tolerance, least)) in cases {
        for gemm in [GemmPolicy::Library(libraries()), GemmPolicy::Quicker(libraries())] {
            let is_always = matches!(gemm, GemmPolicy::Library(_));
            let executor = CudaExecutor::new(plan.clone(), &device(), precision.clone(), gemm).unwrap();
            let wanted = if is_always { "cublaslt" } else { "quicker" };
            assert_eq!(executor.gemm(), wanted, "`own`: cublasLt was not found (nvidia-cublas has it)");
            let mut state = CudaState::default();
            let lengths = if plan.has_tokens() { vec![9, 8, 9] } else { vec![1; 20] };
            let owned = OwnedBatch::new(&plan, &lengths, &mut random);
            let wanted = on_cpu(&plan, &owned);
            for _ in 0..2 {
                for (got, wanted) in run(&executor, &mut state, &owned).iter().zip(&wanted) {
                    let (absolute, relative) = allowed(&precision, tolerance, wanted);
                    let (worst, cosine) = compare(got, wanted, absolute, relative);
                    assert!(worst <= 1.0 && cosine >= least, "{}: {worst}, {cosine}", precision.name());
                }
            }
            let is_whole = matches!(precision, GpuPrecision::Int8(_));
            assert!(!is_always || is_whole || state.library_products() > 0, "{}", precision.name());
            // those with an activation that the library does not have among them
            let program = executor.program(BatchSize::of(lengths), &vec![true; plan.outputs.len()]).unwrap();
            let is_product = |step: &&Step| matches!(step, Step::Product(_));
            assert!(!is_always || state.library_products() == program.steps.iter().filter(is_product).count());
        }
    }
}
