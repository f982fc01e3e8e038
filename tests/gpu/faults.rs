//! Devices that fail, and memory that must be freed: each case in a process of its own.

use std::process::Command;

use lapwing_engine::gpu::{CudaExecutor, CudaState, DeviceRequest, GemmPolicy};
use lapwing_engine::placement::FallbackCause;
use lapwing_model::{Model, ModelOptions, Workspace};
use lapwing_onnx::shaped::ShapedGraph;
use lapwing_plan::exec::{Batch, GpuPrecision};

use super::common::{OwnedBatch, Random, device, is_real, on_cpu, plan};

/// Runs a test of this name in a process of its own, with `faults` injected into the emulated device; not on a real
/// GPU.
fn with_faults(name: &str, faults: &str, test: impl Fn()) {
    if is_real() {
        return lapwing_testing::not_run("this machine's GPU is under test, and has no faults to order");
    }
    alone(name, faults, test);
}

/// Runs a test of this name in a process of its own, on the device under test.
fn alone(name: &str, faults: &str, test: impl Fn()) {
    if std::env::var_os("LAPWING_ALONE").is_some_and(|alone| alone == name) {
        return test();
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("faults::{name}"), "--nocapture"]).env("LAPWING_ALONE", name);
    let output = command.env("LAPWING_FAKE_FAULT", faults).output().unwrap();
    let (message, wrong) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && message.contains("1 passed"), "{message}\n{wrong}");
}

fn graph(name: &str) -> std::sync::Arc<ShapedGraph> {
    ShapedGraph::read(&path(name)).unwrap()
}

fn path(name: &str) -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/plans/{name}.onnx"))
}

fn request(or_cpu: bool) -> ModelOptions {
    ModelOptions {
        gpu: Some(DeviceRequest { device: Ok(device()), gemm: GemmPolicy::Own, precision: GpuPrecision::Fp32, or_cpu }),
        ..ModelOptions::default()
    }
}

/// The model's answer to a synthetic call.
fn answer(model: &Model, workspace: &mut Workspace) -> Result<Vec<u8>, String> {
    let call = model.synthetic_call(2, 3);
    model.run(workspace, &[&call]).map(|ran| ran.outputs[0][0].data.to_vec()).map_err(|e| e.to_string())
}

#[test]
fn a_device_that_fails_leaves_the_model_to_the_processor() {
    with_faults("a_device_that_fails_leaves_the_model_to_the_processor", "launch:3", || {
        let model = Model::new(&graph("bert-post-1"), &request(true)).unwrap();
        let mut workspace = Workspace::default();
        let placement = model.placement();
        assert_eq!((&*placement.device, placement.device_name.as_deref()), ("cuda:0", Some("lapwing-emulated")));
        let first = answer(&model, &mut workspace).unwrap();
        for _ in 0..3 {
            let again = answer(&model, &mut workspace).unwrap();
            assert_eq!(again.len(), first.len());
        }
        let placement = model.placement();
        let fallback = placement.fallback.clone().unwrap();
        assert_eq!((&*placement.device, fallback.cause), ("cpu", FallbackCause::Device));
        assert!(fallback.detail.starts_with("cuda:0: ") && fallback.detail.contains("700"), "{fallback:?}");
        // from here on it equals a model that was never on a device
        let cpu = Model::new(&graph("bert-post-1"), &ModelOptions::default()).unwrap();
        assert_eq!(answer(&model, &mut workspace), answer(&cpu, &mut Workspace::default()));
    });
}

#[test]
fn a_device_that_fails_fails_the_model_where_nothing_else_may_run_it() {
    with_faults("a_device_that_fails_fails_the_model_where_nothing_else_may_run_it", "launch:2", || {
        let model = Model::new(&graph("mlp-3"), &request(false)).unwrap();
        let mut workspace = Workspace::default();
        assert!(answer(&model, &mut workspace).is_ok());
        for _ in 0..2 {
            let message = answer(&model, &mut workspace).unwrap_err();
            assert!(message.starts_with("device: cuda:0: driver: ") && message.contains("700"), "{message}");
        }
        assert_eq!(model.placement().fallback, None);
    });
}

#[test]
fn a_device_without_memory_is_a_reason() {
    with_faults("a_device_without_memory_is_a_reason", "alloc:1", || {
        let model = Model::new(&graph("mlp-3"), &request(true)).unwrap();
        let fallback = model.placement().fallback.clone().unwrap();
        assert_eq!(fallback.cause, FallbackCause::Memory);
        assert!(answer(&model, &mut Workspace::default()).is_ok());
    });
}

#[test]
fn a_model_without_a_plan_is_refused_by_its_node() {
    let message = Model::new(&graph("refused-conv"), &request(false)).unwrap_err().to_string();
    assert!(message.starts_with("device: only plans run there: the_conv (Conv"), "{message}");
    let model = Model::read(&path("refused-conv"), &request(true)).unwrap();
    let fallback = model.placement().fallback.clone().unwrap();
    assert_eq!((fallback.cause, model.executor().name()), (FallbackCause::Node, "rten"));
    assert!(fallback.detail.starts_with("the_conv (Conv"), "{fallback:?}");
}

#[test]
fn memory_comes_back() {
    alone("memory_comes_back", "", || {
        let device = device();
        let used = |device: &lapwing_engine::gpu::device::CudaDevice| {
            let memory = device.memory().unwrap();
            // a GPU's free memory also depends on its driver, which stores code there, and on other processes
            let free = if is_real() { 0 } else { memory.free_bytes };
            (memory.device_bytes, memory.pinned_bytes, free)
        };
        let before = used(&device);
        for precision in [GpuPrecision::Fp32, GpuPrecision::Fp16] {
            let plan = plan("bert-post-1");
            let executor = CudaExecutor::new(plan.clone(), &device, precision, GemmPolicy::Own).unwrap();
            let (mut state, mut outputs) = (CudaState::default(), Vec::new());
            for lengths in [&[3][..], &[9, 2, 4], &[1]] {
                let owned = OwnedBatch::new(&plan, lengths, &mut Random::new(1));
                let batch = Batch { offsets: &owned.offsets, past: &[], inputs: &owned.inputs() };
                executor.run(&mut state, &batch, &vec![true; plan.outputs.len()], &mut outputs).unwrap();
                assert_eq!(outputs.len(), on_cpu(&plan, &owned).len());
            }
            assert!(used(&device).0 > before.0);
        }
        assert_eq!(used(&device), before);
        device.check().unwrap();
    });
}
