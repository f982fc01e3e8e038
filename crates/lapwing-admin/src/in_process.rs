//! Reports as JSON for a reader in the same process, who needs neither a connection nor a token.

use super::surfaces::Surfaces;
use super::{cache, dispatch};

/// What `GET path` answers as JSON, of `/cache` and `/dispatch`; `None` for any other path.
#[must_use]
pub fn report_json(surfaces: &Surfaces, path: &str) -> Option<Vec<u8>> {
    let labels = surfaces.registry.lock().labels().clone();
    match path.split('?').next()? {
        "/cache" => serde_json::to_vec(&surfaces.cache.as_ref().and_then(|caching| cache::view(caching, &labels))).ok(),
        "/dispatch" => {
            let view = surfaces.dispatch.as_ref().and_then(|dispatch| dispatch::view(dispatch, &labels, &surfaces.counters));
            serde_json::to_vec(&view).ok()
        }
        _ => None,
    }
}
