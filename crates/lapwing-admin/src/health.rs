//! `/readyz`: whether traffic should be sent here.

use std::time::Duration;

use super::surfaces::Surfaces;
use lapwing_metrics::Counter;

/// How long the upstream may take to answer a probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// Succeeds when the upstream accepts connections, the hosted models are ready, no client waits for a file descriptor, nobody
/// asked it to leave, and no shutdown has begun.
///
/// # Errors
///
/// The reason why traffic should not be sent here.
pub(crate) async fn readiness(surfaces: &Surfaces) -> Result<(), String> {
    if surfaces.draining.is_cancelled() {
        return Err("draining: lapwing is shutting down".to_owned());
    }
    if surfaces.leaving.is_cancelled() {
        return Err("leaving: clients are to go elsewhere (/leave)".to_owned());
    }
    if surfaces.counters.get(Counter::ClientsWaiting) > 0 {
        let (clients, files) = (lapwing_net::client_connections(), lapwing_net::descriptors());
        return Err(format!(
            "client connections wait for a file descriptor: clients have {clients} of {files}; raise the limit on open files (ulimit -n)"
        ));
    }
    match tokio::time::timeout(PROBE_TIMEOUT, (surfaces.ready)()).await {
        Ok(answer) => answer,
        Err(_) => Err(format!("the upstream did not answer a probe within {PROBE_TIMEOUT:?}")),
    }
}
