//! A tensor is copied once on its way in, to the executor's buffer, and not at all on its way out: the outputs of a call are the memory
//! that the executor wrote. The allocator itself counts bytes.

#![allow(clippy::unwrap_used, reason = "a test")]
#![allow(unsafe_code, reason = "an allocator needs unsafe code")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::Path;

use lapwing_model::Model;
use lapwing_model::{ModelOptions, Workspace};
use lapwing_plan::tensor::Tensor;

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
