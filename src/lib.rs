//! Lapwing: a sidecar latency-profiling proxy for ML model servers: where does an inference request's time go?
//!
//! This package is the command: the configuration assembled from the sections of all crates, the command line, threads and
//! shutdown. What it puts together is in `crates/`; ARCHITECTURE.md has the picture and the reasons.

#![forbid(unsafe_code)]

pub mod app;
pub mod config;
#[cfg(feature = "engine")]
pub use lapwing_serving as serving;
#[cfg(not(feature = "engine"))]
pub mod without_engine;
#[cfg(not(feature = "engine"))]
pub use without_engine as serving;
