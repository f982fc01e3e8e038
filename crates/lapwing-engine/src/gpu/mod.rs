//! Runs plans on a GPU. A plan is lowered (`lower`) to launches of our own kernels (`kernels/`, compiled beforehand and part of
//! the binary), its numbers are put into a device's memory (`weights`, `device`), and each size of batch becomes one CUDA graph
//! that a request launches (`executor`). A plan runs wholly on the device or not at all.
//!
//! `unsafe` is in `device`, where the driver asks for it, and where `executor` hands it addresses.

pub mod args;
mod capacity;
pub mod device;
pub mod executor;
pub mod header;
mod held;
pub mod kernel;
pub mod layout;
pub mod lower;
pub mod peaks;
mod precision;
pub mod ptx;
pub mod route;
pub mod weights;
mod wish;

pub use capacity::Capacity;
pub use executor::{Executor, Gemm, GpuError, LIBRARY, Piece, Pieces, State, Times};
pub use held::Account;
pub use precision::Precision;
pub use wish::{Wish, fallback};

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

/// A node that no kernel does.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{node} ({operator}): {reason}")]
pub struct Refused {
    /// Its name.
    pub node: String,
    /// What it does.
    pub operator: String,
    /// Why not.
    pub reason: String,
}
