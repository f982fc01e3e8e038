//! `/livez` and `/readyz`: whether the process runs, and whether traffic should come.

use std::time::Duration;

use super::surfaces::Surfaces;

/// For how long the upstream may think about a probe.
const PATIENCE: Duration = Duration::from_secs(2);

/// Whether traffic should come: the upstream accepts and nobody asked us to stop.
///
/// # Errors
///
/// The reason in words.
pub(super) async fn readiness(surfaces: &Surfaces) -> Result<(), String> {
    if surfaces.draining.is_cancelled() {
        return Err("draining: lapwing is shutting down".to_owned());
    }
    match tokio::time::timeout(PATIENCE, (surfaces.ready)()).await {
        Ok(answer) => answer,
        Err(_) => Err(format!("the upstream did not answer a probe within {PATIENCE:?}")),
    }
}
