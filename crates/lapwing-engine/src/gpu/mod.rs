//! Runs plans on a GPU. A plan is lowered (`lower`) to launches of our own kernels (`kernels/`, compiled beforehand and part of
//! the binary), its numbers are put into a device's memory (`weights`, `device`), and each size of batch becomes one CUDA graph
//! that a request launches (`executor`). A plan runs wholly on the device or not at all.
//!
//! `unsafe` is in `device`, where the driver asks for it, and where `executor` hands it addresses.

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
pub use executor::{Executor, Gemm, GpuError, LIBRARY, Piece, Pieces, State, Times};
pub use request::{DeviceRequest, fallback};

pub use crate::exec::GpuPrecision;

/// What a program is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Multiprocessors.
    pub processors: usize,
    /// Shared memory that a block may ask for, in bytes.
    pub shared_bytes: usize,
    /// Whether products may be cublasLt's.
    pub has_cublaslt: bool,
}

impl Target {
    /// What is assumed where no device is there: the processors of an H100 or H200, and the least shared memory of any device
    /// that is taken.
    pub const ASSUMED: Self = Self { processors: 132, shared_bytes: 99 << 10, has_cublaslt: false };
}
