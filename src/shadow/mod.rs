//! Shadow-serving: copies of sampled requests go to other targets, and the answers and latencies of both sides are compared.
//!
//! - `ab`: the statistics of latency, paired and unpaired, valid however often one looks;
//! - `compare`: decoded outputs against each other, net of the noise of the primary itself.

pub mod ab;
pub mod compare;
