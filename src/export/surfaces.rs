//! What the admin server shows, handed over by whoever wires the process.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::stats::HostedModels;
use crate::ledger::Stamp;
use crate::metrics::{Counters, Registry};
use crate::settings::ConfigHandle;

/// The answer of a [`Probe`]: `Err` with the reason in words.
pub type Probing = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

/// Finds out whether the upstream accepts connections.
pub type Probe = Arc<dyn Fn() -> Probing + Send + Sync>;

/// Bounds that the registry does not know, for `/stats` to say how full each is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Closed ledgers that fit the queue to the aggregator.
    pub queue: usize,
    /// Ledgers that may wait for their spans.
    pub pending: usize,
    /// Spans that may wait for their exchange.
    pub orphan_spans: usize,
}

/// Everything that the admin server reads.
#[derive(Clone)]
pub struct Surfaces {
    /// Series and exchanges. Locked for microseconds at a time.
    pub registry: Arc<Mutex<Registry>>,
    /// The profiler's account of itself.
    pub counters: Arc<Counters>,
    /// The effective configuration, secrets masked already; `/config` shows it as it is.
    pub config: ConfigHandle<serde_json::Value>,
    /// The models that this process serves itself.
    pub engine: HostedModels,
    /// For `/readyz`; given up after two seconds.
    pub ready: Probe,
    /// Cancelled when shutdown begins: `/readyz` says so at once, while the rest is still served.
    pub draining: CancellationToken,
    /// Bounds for `/stats`.
    pub limits: ConfigHandle<Limits>,
    /// When the process started, nanoseconds since the Unix epoch.
    pub started_unix_ns: u64,
    /// When the process started, by the monotonic clock.
    pub started: Stamp,
}
