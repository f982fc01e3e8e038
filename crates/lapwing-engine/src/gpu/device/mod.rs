//! The device layer: the part of the CUDA driver API that the GPU executor needs. Everything that can be missing (the
//! driver, one of its functions, a device) is looked up before it is called, so that nothing here panics; every failure
//! is a [`DeviceError`]. Sizes are in bytes, device addresses are `u64`, times are [`std::time::Duration`].
//!
//! The order of use: [`Driver::find`] → [`CudaDevice::open`] → [`Stream`], [`DeviceBuffer`], [`PinnedBuffer`], [`Event`], [`Modules`] →
//! [`Capture`] → [`CudaGraph`], launched once per request and awaited by [`Stream::wait`] or [`Stream::wait_flag`].
//! Selecting a device, the kernels, and reading a clock are the caller's part.

#![allow(unsafe_code, reason = "the driver is a C library; each block states why it is sound")]

mod account;
mod buffer;
mod capture;
mod context;
mod error;
mod event;
mod function;
mod graph;
mod info;
mod launch;
mod library;
mod lt;
mod module;
mod pinned;
mod probe;
mod record;
mod stream;
mod symbols;
mod timed;
mod transfer;
mod version;
mod wait;

#[cfg(test)]
pub(crate) mod tests;

pub use account::MemoryUse;
pub use buffer::DeviceBuffer;
pub use capture::Capture;
pub use context::CudaDevice;
pub use error::{DeviceError, Result};
pub use event::Event;
pub use function::{Function, FunctionInfo};
pub use graph::{CudaGraph, NodeCounts};
pub use info::{DeviceInfo, EMULATED, LEAST_CAPABILITY};
pub use launch::LaunchShape;
pub use lt::{CublasLt, MatmulOperands, MatmulPlan, MatmulPrecision, MatmulShape, SelectedAlgorithm};
pub use module::{Module, Modules};
pub use pinned::{Direction, PinnedBuffer};
pub use probe::{Driver, LEAST_DRIVER};
pub use stream::Stream;
pub use version::Version;
pub use wait::WaitPolicy;
