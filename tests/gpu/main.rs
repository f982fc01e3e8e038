//! Plans on a device: the driver's own interface, graphs and memory, with every kernel. The device is the emulated one
//! of tests/gpu (the kernels' own sources, run on the processor) or, with LAPWING_TEST_CUDA=1, the machine's GPU.

#![cfg(feature = "cuda")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod common;
mod faults;
mod kernels;
mod measured;
mod plans;
