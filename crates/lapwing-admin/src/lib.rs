//! The admin server: stats, exchanges, diagnosis, metrics, HDR logs, configuration and health.
//!
//! It reads what the aggregator wrote and never changes it; `/record` alone starts something. Responses are made on tokio's blocking
//! threads, one at a time; at most four are made or wait to be read. They lock the registry for one series at a time, so that neither requests nor
//! the aggregator wait.

#![forbid(unsafe_code)]

mod access;
mod access_line;
mod diagnosis;
mod endpoints;
mod hdr;
mod health;
mod inferred;
mod openapi;
mod otlp;
mod page;
mod prometheus;
mod query;
mod record;
mod server;
mod shadow;
mod stats;
mod surfaces;

pub use access_line::access_line;
pub use diagnosis::DiagnosisSurface;
pub use inferred::Inference;
pub use otlp::otlp_metrics;
pub use record::{RecordOptions, RecordedLines, StartRecording};
pub use server::{router, serve};
pub use shadow::{ComparedTargets, compared_targets};
pub use stats::{HostedFallback, HostedModel, HostedModels};
pub use surfaces::{Probe, Probing, ShadowSurface, Surfaces};

#[cfg(test)]
mod tests;
