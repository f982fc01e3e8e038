//! The settings of a client's connection: loaded when it is accepted, and kept until it is closed.

use std::sync::Arc;

use super::config::Config;
use super::in_flight::Observer;
use super::layer::shadow::ShadowRole;
use super::layer::trace::Tracing;

/// The settings of a client's connection, from accept to close.
#[derive(Clone)]
pub struct ConnectionSettings {
    /// Limits and timeouts.
    pub config: Config,
    /// Whether responses carry `Server-Timing`: the top-level key `respond_server_timing`.
    pub respond_server_timing: bool,
    /// How spans are created.
    pub tracing: Tracing,
    /// Whether requests are copied, or are copies themselves.
    pub shadow: ShadowRole,
    /// Sees every request.
    pub observer: Arc<dyn Observer>,
}
