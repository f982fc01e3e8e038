//! What a user chose.

use std::net::SocketAddr;

use super::scenario::Played;

/// The user's choices.
#[derive(Clone, Debug, PartialEq)]
pub struct Demo {
    /// How long to run; `None` until stopped.
    pub seconds: Option<u64>,
    /// Requests per second, all clients together; at least 0.1. `None`: 50, or what the scenario says.
    pub rate: Option<f64>,
    /// Clients, each with one kept-alive connection; at least 1.
    pub clients: usize,
    /// The address of the model server itself, which is printed at the start.
    pub server: Option<SocketAddr>,
    /// The scenario that is played, if any; its load replaces the clients.
    pub(crate) played: Option<Played>,
}

impl Default for Demo {
    fn default() -> Self {
        Self { seconds: None, rate: None, clients: 4, server: None, played: None }
    }
}

/// Requests per second without a scenario.
pub(crate) const RATE: f64 = 50.0;
