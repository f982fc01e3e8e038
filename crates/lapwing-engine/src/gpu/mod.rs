//! Runs plans on a GPU. A plan is lowered (`lower`) to launches of our own kernels (`kernels/`, compiled in advance to
//! PTX that is part of the binary), its weights are uploaded to the device's memory (`weights`, `device`), and each
//! batch size becomes one CUDA graph that a request launches (`executor`). A plan runs entirely on the device or not at
//! all.
//!
//! `unsafe` is used in `device`, for calls of the driver, and in `executor`, where addresses are passed to it.

pub mod args;
mod capacity;
mod cost;
pub mod device;
pub mod executor;
pub mod header;
pub mod kernel;
pub mod layout;
pub mod lower;
pub mod peaks;
pub mod ptx;
mod request;
pub mod route;
pub mod weights;

pub use capacity::Capacity;
pub use executor::{CudaExecutor, CudaState, DeviceTimes, GemmPolicy, GpuError, LIBRARY, RunTimings, StepTiming};
pub use request::{DeviceRequest, fallback};

pub use lapwing_plan::exec::GpuPrecision;

/// The device properties that a program is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoweringTarget {
    /// Number of multiprocessors.
    pub processors: usize,
    /// The most shared memory per block, in bytes.
    pub shared_bytes: usize,
    /// Whether products may use cublasLt.
    pub has_cublaslt: bool,
}

impl LoweringTarget {
    /// The target assumed without a device: the multiprocessors of an H100 or H200, and the least shared memory of any
    /// supported device.
    pub const ASSUMED: Self = Self { processors: 132, shared_bytes: 99 << 10, has_cublaslt: false };
}
