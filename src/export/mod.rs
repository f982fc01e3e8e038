//! The admin server: stats, exchanges, metrics, HDR logs, configuration and health.
//!
//! It reads what the aggregator wrote and never changes it. Each answer is made on a thread of its own kind (two at a
//! time), which takes the registry's lock for one series at a time, so that neither requests nor the aggregator wait.

mod asked;
mod exchanges;
mod gather;
mod hdr;
mod health;
mod pairs;
mod process;
mod prometheus;
mod query;
mod server;
mod stats;
mod surfaces;

pub use server::{PATHS, router, serve};
pub use stats::{HostedFallback, HostedModel, HostedModels};
pub use surfaces::{Limits, Probe, Probing, Surfaces};

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod work_tests;
