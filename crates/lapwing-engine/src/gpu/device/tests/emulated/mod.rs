//! The whole layer against a driver that runs kernels on the host, and executes work only when it is waited for.

mod graphs;
mod memory;
mod modules;
mod timed;
mod waiting;

use std::sync::Arc;
use std::time::Duration;

use super::super::{CudaDevice, Driver, Function, LaunchShape, Modules, WaitPolicy};
use lapwing_testing::fakes;

/// A module with the kernel that these tests launch.
const PTX: &str = include_str!("../copy.ptx");
const SHAPE: LaunchShape = LaunchShape { grid: (1, 1), threads: 256, shared_bytes: 0 };

/// CopyArgs of the kernel sources.
#[repr(C)]
#[derive(Clone, Copy)]
struct Copy {
    dims: u64,
    which: i32,
    rows: i32,
    x: u64,
    x_stride: i32,
    x_kind: i32,
    y: u64,
    y_stride: i32,
    y_kind: i32,
    flag: u64,
    counter: u64,
    x_from: i32,
    y_from: i32,
    width: i32,
    zero: i32,
}

impl Copy {
    /// One row of `width` floats.
    fn row(x: u64, y: u64, width: i32) -> Self {
        let stride = (width + 7) / 8 * 8;
        let (dims, which, rows, x_kind, y_kind) = (0, 0, 1, 0, 0);
        let (flag, counter, x_from, y_from, zero) = (0, 0, 0, 0, 0);
        Self {
            dims,
            which,
            rows,
            x,
            x_stride: stride,
            x_kind,
            y,
            y_stride: stride,
            y_kind,
            flag,
            counter,
            x_from,
            y_from,
            width,
            zero,
        }
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: a struct of integers without padding.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(self).cast(), size_of::<Self>()) }
    }
}

/// The emulated device.
fn open() -> Arc<CudaDevice> {
    CudaDevice::open(&Driver::find(Some(&fakes::driver("."))).unwrap(), 0).unwrap()
}

fn kernel(device: &Arc<CudaDevice>) -> Arc<Function> {
    Modules::new(device).load("copy", PTX).unwrap().function("copy_columns").unwrap()
}

fn numbers(from: f32) -> Vec<u8> {
    (0..16).flat_map(|i| (from + i as f32).to_le_bytes()).collect()
}

fn now() -> Duration {
    #[expect(clippy::disallowed_methods, reason = "the layer has no clock of its own; this is the test's")]
    let now = std::time::SystemTime::now();
    now.duration_since(std::time::UNIX_EPOCH).unwrap()
}

const PATIENCE: WaitPolicy = WaitPolicy {
    reads: 4,
    spin_for: Duration::from_micros(20),
    sleep: Duration::from_micros(50),
    limit: Duration::from_secs(10),
    clock: now,
};
