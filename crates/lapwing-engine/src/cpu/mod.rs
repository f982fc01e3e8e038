//! Runs plans on the CPU: a kernel for every node, selected once for the processor's vector instructions, and an
//! executor that calls them in order on one block of memory.
//!
//! `unsafe` is used for vector instructions and for memory that several values share; every block states why it is
//! sound.

#![allow(unsafe_code, reason = "vector instructions, and one block of memory shared by all values")]

pub mod attention;
pub mod conv;
mod cost;
mod dispatch;
pub mod embed;
mod executor;
pub mod gemm;
pub mod level;
pub mod map;
mod math;
mod nodes;
pub mod norm;
pub mod peaks;
pub mod pool;
mod prepare;
mod products;
pub mod program;
pub mod reduce;
mod rotate;
mod run;
mod scratch;
pub mod shape;
mod simd;
#[cfg(target_arch = "x86_64")]
mod simd_x86;
pub mod threads;

pub use executor::{CpuExecutor, CpuOptions, CpuState, ProductObserver};
pub use prepare::PrepareError;

#[cfg(test)]
mod tests;
