//! A forward pass allocates nothing once its state has held an equally large batch. The allocator itself counts allocations.

#![cfg(feature = "engine")]
#![allow(unsafe_code, reason = "an allocator needs unsafe code")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::error::Error;
use std::path::PathBuf;

use lapwing_engine::cpu::{CpuExecutor, CpuOptions, CpuState};
use lapwing_onnx::shaped::ShapedGraph;
use lapwing_plan::exec::{Batch, CpuPrecision, Input};
use lapwing_plan::fuse::fuse;
use lapwing_plan::lower::lower;
use lapwing_plan::plan::{ElementType, Rows};

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator; counts this thread's allocations.
struct Counting;

// SAFETY: the system's allocator does all the work; counting only changes a thread-local number.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
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

/// Counts the allocations of each run of a fixture's plan. The inputs are ids and masks of ones, and rows of halves.
fn allocations(fixture: &str, precision: CpuPrecision, lengths: &[usize]) -> Result<Vec<usize>, Box<dyn Error>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/plans");
    let graph = ShapedGraph::read(&folder.join(format!("{fixture}.onnx")))?;
    let mut plan = lower(&graph)?;
    fuse(&mut plan);
    let executor = CpuExecutor::new(plan, CpuOptions { precision, ..CpuOptions::default() })?;
    let tokens: usize = lengths.iter().sum();
    let (floats, wholes): (Vec<f32>, Vec<i64>) = (vec![0.5; tokens * 4096], vec![1; tokens * 64]);
    let inputs: Vec<Input<'_>> = (executor.plan().inputs.iter())
        .map(|port| {
            let value = executor.plan().value(port.value);
            let count = value.width * if value.rows == Rows::Token { tokens } else { lengths.len() };
            if value.kind == ElementType::F32 { Input::F32(&floats[..count]) } else { Input::I64(&wholes[..count]) }
        })
        .collect();
    let mut offsets = vec![0];
    for length in lengths {
        offsets.push(offsets[offsets.len() - 1] + length);
    }
    let (mut state, mut outputs) = (CpuState::default(), Vec::new());
    (0..4)
        .map(|_| {
            let before = COUNT.get();
            executor.run(&mut state, &Batch { offsets: &offsets, past: &[], inputs: &inputs }, &mut outputs)?;
            Ok(COUNT.get() - before)
        })
        .collect()
}

#[test]
fn a_run_allocates_nothing_but_the_first() {
    for precision in [CpuPrecision::Fp32, CpuPrecision::Int8(Vec::new())] {
        // an encoder, and a network of dense layers
        for (fixture, lengths) in [("0001", &[3, 1, 9][..]), ("0003", &[1, 1, 1, 1, 1])] {
            let counts = allocations(fixture, precision.clone(), lengths).unwrap();
            assert!(counts[0] > 0, "the counter counts: {counts:?}");
            assert_eq!(counts[1..], [0, 0, 0], "{fixture}, {precision:?}");
        }
    }
}
