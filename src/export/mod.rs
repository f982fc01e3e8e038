//! The admin server: stats, exchanges, metrics, HDR logs, configuration and health.
//!
//! It reads what the aggregator wrote and never changes it; `/record` alone starts something. Responses are made on tokio's blocking threads, two at a time. They lock
//! the registry for one series at a time, so that neither requests nor the aggregator wait.

mod exchanges;
mod gather;
mod hdr;
mod health;
mod pairs;
mod pieces;
mod process;
mod prometheus;
mod query;
mod record;
mod request_work;
mod server;
mod shadow;
mod stats;
mod surfaces;

pub use record::{RecordOptions, RecordedLines, StartRecording};
pub use server::{PATHS, router, serve};
pub use shadow::{ComparedTargets, compared_targets};
pub use stats::{HostedFallback, HostedModel, HostedModels};
pub use surfaces::{Probe, Probing, ProfilerLimits, ShadowSurface, Surfaces};

#[cfg(test)]
mod tests;
