//! A tensor is copied once on its way in, to the executor's buffer, and not at all on its way out: the outputs of a call are the memory
//! that the executor wrote. The allocator itself counts bytes.

#![allow(clippy::unwrap_used, reason = "a test")]
#![allow(unsafe_code, reason = "an allocator needs unsafe code")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::Path;

use lapwing_model::{Model, ModelOptions, Workspace};
use lapwing_onnx::tensor::Tensor;

thread_local! {
    static BYTES: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator; counts the bytes that this thread allocates.
struct Counting;

// SAFETY: the system's allocator does all the work; counting only changes a thread-local number.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.set(BYTES.get() + layout.size());
        // SAFETY: the caller's guarantees are those that the system's allocator needs.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's guarantees are those that the system's allocator needs.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The bytes that `work` allocates, and its result.
fn allocated<T>(work: impl FnOnce() -> T) -> (usize, T) {
    let before = BYTES.get();
    let made = work();
    (BYTES.get() - before, made)
}

fn mlp() -> Model {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/plans/mlp-3.onnx");
    Model::read(&path, &ModelOptions::default()).unwrap()
}

fn rows(rows: usize) -> Vec<Tensor> {
    vec![Tensor::f32("in", &[rows, 7], &vec![0.5; rows * 7])]
}

/// What names, shapes and lists of a run take.
const SMALL: usize = 4096;

#[test]
fn a_run_allocates_its_outputs_once_and_nothing_for_its_inputs() {
    let (model, mut workspace) = (mlp(), Workspace::default());
    let call = rows(4096);
    let output_bytes = 4096 * 4 * 4;
    let (first, _) = allocated(|| model.run(&mut workspace, &[&call]).unwrap());
    assert!(first >= call[0].data.len() + output_bytes, "the count counts: {first}");
    for _ in 0..3 {
        let (bytes, result) = allocated(|| model.run(&mut workspace, &[&call]).unwrap());
        assert_eq!(result.outputs[0][0].data.len(), output_bytes);
        assert!((output_bytes..output_bytes + SMALL).contains(&bytes), "{bytes} bytes for outputs of {output_bytes}");
    }
}

#[test]
fn the_calls_of_a_batch_share_the_memory_that_the_executor_wrote() {
    let (model, mut workspace) = (mlp(), Workspace::default());
    let calls = [rows(1000), rows(24)];
    let calls: Vec<&[Tensor]> = calls.iter().map(Vec::as_slice).collect();
    model.run(&mut workspace, &calls).unwrap();
    let (bytes, result) = allocated(|| model.run(&mut workspace, &calls).unwrap());
    let (first, second) = (&result.outputs[0][0].data, &result.outputs[1][0].data);
    assert_eq!((first.len(), second.len()), (16_000, 384));
    assert_eq!(first.as_ptr_range().end, second.as_ptr(), "one call's rows follow the other's");
    assert!(bytes < 16_384 + SMALL, "{bytes}");
    // what one call got stays as it is while the workspace runs others
    let kept = first.to_vec();
    model.run(&mut workspace, &[&rows(1024)]).unwrap();
    assert_eq!(&result.outputs[0][0].data[..], kept);
}

/// The device: an emulated one, whose driver allocates what the device reads and writes where this count does not see it.
#[cfg(feature = "cuda")]
mod on_a_gpu {
    use lapwing_engine::gpu::DeviceRequest;
    use lapwing_plan::exec::GpuPrecision;
    use lapwing_testing::{alone, fakes, test_name};

    use super::*;

    fn on_gpu(precision: GpuPrecision) -> Model {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/plans/mlp-3.onnx");
        let request = DeviceRequest::device(Some(&fakes::kernels()), 0, precision).unwrap().with_own_kernels();
        let model = Model::read(&path, &ModelOptions { gpu: Some(request), ..ModelOptions::default() }).unwrap();
        assert_eq!(model.placement().device, "cuda:0");
        model
    }

    #[test]
    fn a_tensor_is_copied_once_to_the_devices_memory_and_once_from_it() {
        alone(test_name!(), || {
            let model = on_gpu(GpuPrecision::Tf32);
            // the first run allocates all that later ones reuse: a buffer between the calls and the device would be among it, and grow
            // with the rows; what a graph takes does not
            let first = |rows_of_both: [usize; 2]| {
                let calls = rows_of_both.map(rows);
                let calls: Vec<&[Tensor]> = calls.iter().map(Vec::as_slice).collect();
                allocated(|| model.run(&mut Workspace::default(), &calls).unwrap()).0
            };
            let (few, many) = (first([1_000, 24]), first([8_000, 192]));
            let more_rows = 8_192 - 1_024;
            let (more_input, more_output) = (more_rows * 7 * 4, more_rows * 4 * 4);
            // where rows begin: 8 bytes each in a vector that doubles three times meanwhile, and two words in the header
            let more_places = more_rows * (4 * 8 + 2 * 4);
            let more = many - few;
            let least = more_output + more_places;
            assert!((least..least + more_input / 4).contains(&more), "{more} bytes more where outputs and places take {least}");
            let mut workspace = Workspace::default();
            let calls = [rows(8_000), rows(192)];
            let calls: Vec<&[Tensor]> = calls.iter().map(Vec::as_slice).collect();
            let output_bytes = 8_192 * 4 * 4;
            model.run(&mut workspace, &calls).unwrap();
            for _ in 0..2 {
                let (bytes, result) = allocated(|| model.run(&mut workspace, &calls).unwrap());
                let (one, other) = (&result.outputs[0][0].data, &result.outputs[1][0].data);
                assert_eq!(one.as_ptr_range().end, other.as_ptr(), "one call's rows follow the other's");
                assert!((output_bytes..output_bytes + SMALL).contains(&bytes), "{bytes} bytes for outputs of {output_bytes}");
            }
        });
    }

    #[test]
    fn calls_of_a_batch_get_what_each_gets_alone_and_on_the_cpu() {
        alone(test_name!(), || {
            let call = |from: usize, rows: usize| {
                let numbers: Vec<f32> = (0..rows * 7).map(|at| ((from + at) as f32 * 0.37).sin()).collect();
                vec![Tensor::f32("in", &[rows, 7], &numbers)]
            };
            let calls = [call(0, 3), call(100, 40), call(1000, 1)];
            let calls: Vec<&[Tensor]> = calls.iter().map(Vec::as_slice).collect();
            let cpu = mlp();
            for (precision, tolerance) in [(GpuPrecision::Tf32, 2e-3), (GpuPrecision::Fp16, 5e-3)] {
                let (model, mut workspace) = (on_gpu(precision), Workspace::default());
                // other sizes leave other bytes where this batch is written
                for size in [300, 2] {
                    model.run(&mut workspace, &[&rows(size)]).unwrap();
                }
                let together = model.run(&mut workspace, &calls).unwrap().outputs;
                for (call, together) in calls.iter().zip(&together) {
                    let alone = model.run(&mut workspace, &[call]).unwrap().outputs;
                    let wanted = cpu.run(&mut Workspace::default(), &[call]).unwrap().outputs[0][0].to_f32();
                    for outputs in [&together[0], &alone[0][0]] {
                        let numbers = outputs.to_f32();
                        assert_eq!(numbers.len(), wanted.len());
                        let is_near = |(got, wanted): (&f32, &f32)| (got - wanted).abs() <= tolerance * (1.0 + wanted.abs());
                        assert!(numbers.iter().zip(&wanted).all(is_near), "{numbers:?} where the CPU has {wanted:?}");
                    }
                }
            }
        });
    }
}
