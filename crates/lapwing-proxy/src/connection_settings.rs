//! The settings of a client's connection: those in force when a request begins, and for the connection itself when it is accepted.

use std::sync::Arc;

use super::config::Config;
use super::hold;
use super::in_flight::Observer;
use super::layer::tap::StackTap;
use super::layer::trace::Tracing;

/// The settings of a client's connection and its requests.
#[derive(Clone)]
pub struct ConnectionSettings {
    /// Limits and timeouts.
    pub config: Config,
    /// The bounds of held requests: the section `hold`.
    pub hold: hold::Config,
    /// Whether responses carry `Server-Timing`: the top-level key `respond_server_timing`.
    pub respond_server_timing: bool,
    /// How spans are created.
    pub tracing: Tracing,
    /// Sees requests before they go to the upstream, and may capture them.
    pub tap: Option<StackTap>,
    /// Sees every request.
    pub observer: Arc<dyn Observer>,
}
