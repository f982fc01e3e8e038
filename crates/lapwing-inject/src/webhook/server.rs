//! The webhook's listeners.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use lapwing_net::{AcceptLimits, BoundListener, ServerLimits};
use tokio_util::sync::CancellationToken;

use super::metrics::WebhookMetrics;
use super::router::{admin_router, router};
use crate::options::InjectOptions;

/// The API server keeps its connections; one that is silent for longer than its pause between pings has gone.
const IDLE: Duration = Duration::from_secs(120);
/// The time for the first request of a connection to come, and for an answer to be taken.
const FIRST_REQUEST: Duration = Duration::from_secs(10);
const WRITE: Duration = Duration::from_secs(5);
/// How long reviews may take to end after the stop: the API server waits 30 s at most.
const GRACE: Duration = Duration::from_secs(10);

/// Serves reviews until `stop`, then ends when those begun are answered.
///
/// # Errors
///
/// When the listener cannot be registered with the runtime.
pub async fn serve(
    listener: BoundListener,
    options: InjectOptions,
    metrics: Arc<WebhookMetrics>,
    stop: CancellationToken,
) -> io::Result<()> {
    lapwing_net::serve(listener.registered()?, router(options, metrics), limits("webhook"), stop).await;
    Ok(())
}

/// Serves `/livez`, `/readyz` and `/metrics` until `stop`; not ready from `draining` on.
///
/// # Errors
///
/// When the listener cannot be registered with the runtime.
pub async fn serve_admin(
    listener: BoundListener,
    metrics: Arc<WebhookMetrics>,
    draining: CancellationToken,
    stop: CancellationToken,
) -> io::Result<()> {
    lapwing_net::serve(listener.registered()?, admin_router(metrics, draining), limits("webhook admin"), stop).await;
    Ok(())
}

fn limits(name: &'static str) -> ServerLimits {
    ServerLimits {
        accept: AcceptLimits { max_connections: Some(lapwing_net::control_connections()), ..AcceptLimits::default() },
        grace: GRACE,
        first_request_timeout: Some(FIRST_REQUEST),
        idle_timeout: Some(IDLE),
        write_timeout: Some(WRITE),
        ..ServerLimits::new(name)
    }
}
